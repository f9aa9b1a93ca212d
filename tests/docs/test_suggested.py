"""The rights that connector/options/rights.py tells of are enough, each is needed; cluster.md has the same.

The queries are those of the real source and sink, without Spark around them, on the bundled broker with every
right denied that no ACL gives.
"""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic

from eoslog.cli import main
from eoslog.connector.commit.task_reports import Report
from eoslog.connector.options import rights as rules
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import OptionError
from tests.broker.security.acl_site import Site
from tests.broker.security.securitykit import ADMIN, SECRET
from tests.docs.test_rights import PAGE, PATIENCE_S, USER, Right, Rights, of, rights

BROKER = {"kafka.bootstrap.servers": "b:9092"}
FROM, TO = {"subscribe": "orders"}, {"topic": "orders_copy"}
FROM_MORE, FROM_LARGE = {"subscribe": "more"}, {"subscribe": "large"}
NAMED, GROUP = {"transactional.id": "copy{n}"}, {"kafka.group.id": "dashboards{n}"}
GOES_ON = {"startingOffsets": "committed", **GROUP}
SHADOW = {"shadow.of": "then{n}", "shadow.topic": "orders_copy", "shadow.into": "shadowed"}
AT_MOST_ONCE = {"processing.guarantee": "at_most_once"}
AT_LEAST_ONCE = {"processing.guarantee": "at_least_once"}
SEALED = {"two.phase.commit": "require"}
NUMBERS = count()


@dataclass
class Query:
    """A query's options, where {n} is the number of the run: a sink goes on with one query only."""

    source: dict[str, str] = field(default_factory=dict)
    sink: dict[str, str] = field(default_factory=dict)
    stream: bool = True
    after_another: bool = False
    """Whether another query has written before, under the same names."""

    def numbered(self, n: int) -> Query:
        source, sink = (
            {name: value.replace("{n}", str(n)) for name, value in options.items()}
            for options in (self.source, self.sink)
        )
        return replace(self, source=source, sink=sink)

    def needs(self) -> rules.Needed:
        found = source_options(BROKER | self.source, stream=self.stream) if self.source else None
        wanted = sink_options(BROKER | self.sink, stream=self.stream) if self.sink else None
        return rules.needed(found, wanted, stream=self.stream)

    def rights(self) -> list[Right]:
        return [
            Right(one.operation, one.resource, one.name, "prefixed" if one.prefixed else "literal")
            for one in self.needs().rights
        ]


QUERIES = {
    "a stream's source": Query(FROM),
    "a batch's source": Query(FROM, stream=False),
    "a pattern": Query({"subscribePattern": "ord.*s"}),
    "partitions": Query({"assign": '{"orders": [0]}'}),
    "where a group stands": Query(FROM_MORE | GOES_ON, after_another=True),
    "in a sink's place, without it": Query(FROM_MORE | NAMED | GOES_ON, after_another=True),
    "in a sink's place": Query(FROM_MORE | NAMED | GOES_ON, TO | NAMED | GROUP, after_another=True),
    "a shadow's source": Query(FROM_MORE | GOES_ON | SHADOW, after_another=True),
    "a stream": Query(FROM, TO | NAMED),
    "a stream, sealed": Query(FROM, TO | NAMED | SEALED),
    "a name with signs": Query(FROM, TO | {"transactional.id": "to/copy%{n}"}),
    "a group": Query(FROM, TO | NAMED | GROUP),
    "dead letters": Query(FROM_LARGE, TO | NAMED | {"deadletter.topic": "orders_bad"}),
    "saved state": Query(FROM, TO | NAMED | {"state.topic": "state"}),
    "at most once": Query(FROM, TO | NAMED | AT_MOST_ONCE),
    "at least once": Query(FROM, TO | AT_LEAST_ONCE),
    "at least once, named": Query(FROM, TO | NAMED | AT_LEAST_ONCE),
    "at least once, a group": Query(FROM, TO | AT_LEAST_ONCE | GROUP),
    "at least once, dead letters": Query(FROM_LARGE, TO | AT_LEAST_ONCE | {"deadletter.topic": "orders_bad"}),
    "a batch write": Query(FROM, TO | NAMED, stream=False),
    "a batch write, at most once": Query(FROM, TO | NAMED | AT_MOST_ONCE, stream=False),
    "a batch write, at least once": Query(FROM, TO | AT_LEAST_ONCE, stream=False),
    "a batch write, at least once, named": Query(FROM, TO | NAMED | AT_LEAST_ONCE, stream=False),
    "a token": Query(FROM, TO | NAMED | {"write.token": "job-"}, stream=False),
    "a token, sealed": Query(FROM, TO | {"write.token": "job{n}-"} | SEALED, stream=False),
    "a token of a name with signs": Query(
        FROM, TO | {"transactional.id": "a:b/c%{n}", "write.token": "job-"}, stream=False
    ),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as made:
        made.create("orders", "more", "large", "orders_bad", "shadowed")
        admin = made.admin()
        small = NewTopic("orders_copy", 1, config={"max.message.bytes": "5000"})
        admin.create_topics([small])["orders_copy"].result(10)
        state = NewTopic("state", 1, config={"cleanup.policy": "compact"})
        admin.create_topics([state])["state"].result(10)
        fill(made, "orders", b"a", b"b")
        fill(made, "large", b"small", b"large" * 2000)
        yield made


def fill(site: Site, topic: str, *values: bytes) -> None:
    into = {**of(site, ADMIN, SECRET), "topic": topic, "transactional.id": "fill"}
    write_batch(sink_options(into, stream=False), [pa.record_batch({"value": pa.array(values)})])


def write_batch(options: SinkOptions, batches: list[pa.RecordBatch]) -> None:
    begun = committer.begin_batch(options)
    batch = begun and begun.batch
    attempt = Attempt(batch.query_id, batch.batch_id, 0) if batch else Attempt("", 0, 0)
    committer.commit_batch(options, [write_rows(options, begun, attempt, iter(batches)).report])


def prepare(site: Site, query: Query) -> None:
    """What another query has done before."""
    if query.after_another:
        other = query.source.get("shadow.of") or query.source.get("transactional.id")
        into = {**TO, "transactional.id": other or f"then{next(NUMBERS)}"}
        into["kafka.group.id"] = query.source["kafka.group.id"]
        run_stream(site, ADMIN, SECRET, FROM_MORE | {"startingOffsets": "latest"}, into)
        fill(site, "more", b"another")


def run(site: Site, query: Query) -> None:
    """Once, as alice. A token comes twice, as the second write goes on where the first one was."""
    password = f"{USER}-password"
    if query.stream:
        run_stream(site, USER, password, {"startingOffsets": "earliest"} | query.source, query.sink)
        return
    mine = of(site, USER, password)
    reader = BatchReader(source_options(mine | query.source, stream=False))
    rows = [batch.select(["value"]) for task in reader.partitions() for batch in reader.read(task)]
    assert sum(map(len, rows)) == 2
    for _ in range(2 if query.sink else 0):
        token = query.sink.get("write.token")
        numbered = {} if token is None else {"write.token": f"{token}{next(NUMBERS)}"}
        write_batch(sink_options(mine | query.sink | numbered, stream=False), rows)


def run_stream(site: Site, user: str, password: str, source: dict[str, str], into: dict[str, str]) -> None:
    """A first micro-batch; and a second one where the first has only noted where the query begins."""
    mine = of(site, user, password)
    reader = StreamReader(source_options(mine | source, stream=True))
    checkpoint = Path(site.broker.data) / f"checkpoint-{next(NUMBERS)}"
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    into = into and mine | into | {"checkpointLocation": str(checkpoint)}
    try:
        begin = reader.initialOffset()
        for number in range(1 if source["startingOffsets"] == "earliest" else 2):
            end = reader.latestOffset(begin, ReadAllAvailable())
            tasks = reader.partitions(begin, end)
            read = [[batch.select(["value"]) for batch in reader.read(task)] for task in tasks]
            if source["startingOffsets"] == "earliest":
                assert sum(len(batch) for batches in read for batch in batches) == 2
            (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
            if into:
                write_stream(sink_options(into, stream=True), number, read)
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
            begin = end
    finally:
        reader.stop()


def write_stream(options: SinkOptions, number: int, read: list[list[pa.RecordBatch]]) -> None:
    assert options.checkpoint_location is not None
    query = json.loads((Path(options.checkpoint_location) / "metadata").read_text())["id"]
    begun = committer.begin_stream(options)
    reports: list[Report | None] = []
    try:
        for task, batches in enumerate(read or [[]]):
            reports.append(write_rows(options, begun, Attempt(query, number, task), iter(batches)).report)
        committer.commit_stream(options, reports, number)
    except Exception:
        committer.abort_batch(options, reports, number)
        raise


@pytest.fixture
def give(site: Site) -> Iterator[Callable[[list[Right]], None]]:
    """Give alice exactly these rights."""
    with site.wire(ADMIN) as wire:
        wire.socket.settimeout(PATIENCE_S)
        made = Rights(wire)
        held: list[Right] = []

        def exactly(some: list[Right]) -> None:
            for one in held:
                made.take(one)
            held[:] = some
            made.give(*some)

        yield exactly
        exactly([])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUERIES)
def test_they_are_enough_and_each_is_needed(
    site: Site, give: Callable[[list[Right]], None], name: str
) -> None:
    for left_out in (None, *range(len(QUERIES[name].rights()))):
        query = QUERIES[name].numbered(next(NUMBERS))
        prepare(site, query)
        rights = query.rights()
        give([right for index, right in enumerate(rights) if index != left_out])
        if left_out is None:
            run(site, query)
        else:
            with pytest.raises(Exception, match=r"AUTHORIZATION_FAILED|assert 0 == 2"):
                run(site, query)
                pytest.fail(f"{name} runs without {rights[left_out]}")


def test_the_page_has_the_same() -> None:
    everything = TO | NAMED | {"deadletter.topic": "orders_bad"} | SEALED
    query = Query(FROM, {name: value.replace("{n}", "") for name, value in everything.items()})
    assert set(query.rights()) == set(rights())
    tokens = Query({}, {"topic": "t", "transactional.id": "copy", "write.token": "job-1"}, stream=False)
    others = {
        Right("Write", "Topic", "t", "literal"),
        Right("Read", "Topic", "__consumer_offsets", "literal"),
    }
    assert set(tokens.rights()) == set(rights("rights of tokens")) | others


def test_what_the_page_types_is_what_it_prints() -> None:
    blocks = re.findall(r"```console\n\$ (eoslog acls suggest .*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        command, _, printed = block.replace("\\\n", "").partition("\n")
        assert CliRunner().invoke(main, shlex.split(command)[1:]).output == printed


@pytest.mark.parametrize(
    ("pattern", "name", "prefixed"),
    [
        ("orders", "orders", False),
        ("orders-.*", "orders-", True),
        (r"a\.b\.\d+", "a.b.", True),
        ("orders?", "order", True),
        ("orders*", "order", True),
        ("a{2}", "*", False),
        ("ab{2}", "a", True),
        ("(a|b)c", "*", False),
        ("aa|ab", "*", False),
        (".*", "*", False),
    ],
)
def test_a_pattern_has_what_all_its_names_begin_with(pattern: str, name: str, prefixed: bool) -> None:
    (one,) = Query({"subscribePattern": pattern}).needs().rights
    assert (one.operation, one.resource, one.name, one.prefixed) == ("Read", "Topic", name, prefixed)


@pytest.mark.parametrize("stream", [True, False])
def test_without_a_name_there_is_nothing_to_give(stream: bool) -> None:
    with pytest.raises(OptionError, match=r"give transactional\.id"):
        Query({}, TO, stream).needs()


def test_what_options_cannot_tell_is_said() -> None:
    notes = Query({}, NAMED | {"kafka.group.id": "g"}).needs().notes
    assert any("each row names its topic" in note for note in notes)
    assert any("very many topics: Read on groups copy{n}/, prefixed, as well" in note for note in notes)
    assert any("Read on the topics of the source" in note for note in notes)
    assert any("two.phase.commit=auto" in note for note in notes)
    token = Query({}, TO | NAMED | {"write.token": "job-"}, stream=False).needs().notes
    assert "in foreachBatch: Read on groups eoslog-write:, prefixed, as well" in token
    assert Query(FROM, TO | NAMED | {"two.phase.commit": "false"}).needs().notes == ()
