"""The rights that pages and `eoslog acls suggest` name are enough, and none too many."""

from __future__ import annotations

import json
import logging
import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic

from eoslog.cli import main
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit import decision as decisions
from eoslog.connector.commit.faults import BatchRefused, CommitFault, StartsElsewhere
from eoslog.connector.commit.task_reports import Batch, Report
from eoslog.connector.options import rights as rules
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run.markers import find_held, find_open
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss, OptionError
from eoslog.protocol.acls import AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.apis import ApiKey
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import ADMIN, SECRET, Site
from tests.docs.reader import all_match

# -- what cluster.md says ------------------------------------------------------------------------
# docs/cluster.md has exactly the rights that a query needs: with them it runs, without any one of them not.
#
# The query is a micro-batch of the real source and the real sink, without Spark around them, on the bundled
# broker with every right denied that no ACL gives.

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
USER = "alice"
PATIENCE_S = 60.0


class Right(NamedTuple):
    """A line of the page's table."""

    operation: str
    resource: str
    name: str
    pattern: str

    def entry(self) -> dict[str, object]:
        """As CreateAcls and DeleteAcls have it, but for the prefixes of the fields' names."""
        return {
            "resource_type": ResourceType[_upper(self.resource)],
            "operation": AclOperation[_upper(self.operation)],
            "pattern_type": Pattern[self.pattern.upper()],
        }


def _upper(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def rights(of: str = "rights") -> list[Right]:
    """The table between the marks, in order."""
    found = re.search(rf"<!-- {of} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return [_right(line) for line in found[1].strip().splitlines()[2:]]


def _right(line: str) -> Right:
    """Of a line like | Write on TransactionalId `copy/`, prefixed | what for |."""
    told = re.match(r"\| (\w+) on (\w+) `([^`]+)`(, prefixed)? \| ", line)
    assert told is not None, line
    return Right(told[1], told[2], told[3], "prefixed" if told[4] else "literal")


class Rights:
    """What alice may do, changed by the administrator."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def give(self, *some: Right) -> None:
        creations = [
            {
                "resource_type": one.entry()["resource_type"], "resource_name": one.name,
                "resource_pattern_type": one.entry()["pattern_type"], "principal": f"User:{USER}",
                "host": "*", "operation": one.entry()["operation"], "permission_type": Permission.ALLOW,
            }
            for one in some
        ]  # fmt: skip
        answer = self._wire.call(ApiKey.CREATE_ACLS, 3, creations=creations)
        assert [result["error_code"] for result in answer["results"]] == [0] * len(some)

    def take(self, one: Right) -> None:
        wanted = {
            "resource_type_filter": one.entry()["resource_type"], "resource_name_filter": one.name,
            "pattern_type_filter": one.entry()["pattern_type"], "principal_filter": f"User:{USER}",
            "host_filter": "*", "operation": one.entry()["operation"], "permission_type": Permission.ALLOW,
        }  # fmt: skip
        answer = self._wire.call(ApiKey.DELETE_ACLS, 3, filters=[wanted])
        assert len(answer["filter_results"][0]["matching_acls"]) == 1, one


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as made:
        with made.wire(ADMIN) as wire:
            named = {"orders": {}, "orders_copy": {"max.message.bytes": "5000"}, "orders_bad": {}}
            topics = [
                {
                    "name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
                    "configs": [{"name": key, "value": value} for key, value in configs.items()],
                }
                for name, configs in named.items()
            ]  # fmt: skip
            done = wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=30_000, validate_only=False)
            assert [topic["error_code"] for topic in done["topics"]] == [0] * len(named)
        options = sink_options({**of(made, ADMIN, SECRET), "topic": "orders", "transactional.id": "fill"},
                               stream=False)  # fmt: skip
        rows = pa.record_batch({"value": pa.array([b"small", b"large" * 2000])})
        begun = committer.begin_batch(options)
        assert begun is not None and begun.batch is not None
        report = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), iter([rows])).report
        committer.commit_batch(options, [report])
        yield made


@pytest.fixture(scope="module")
def given(site: Site) -> Iterator[Rights]:
    with site.wire(ADMIN) as wire:
        wire.socket.settimeout(PATIENCE_S)
        made = Rights(wire)
        made.give(*rights())
        yield made


def of(site: Site, user: str, password: str) -> dict[str, str]:
    """Connection options of a user."""
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{site.port}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": user,
        "kafka.sasl.password": password,
    }


def source(site: Site) -> StreamReader:
    """That of a query that uses all that the table tells of."""
    mine = of(site, USER, f"{USER}-password")
    return StreamReader(
        source_options({**mine, "subscribe": "orders", "startingOffsets": "earliest"}, stream=True)
    )


def run_batch(site: Site, checkpoint: Path, two_phase: str) -> list[int]:
    """A first micro-batch of such a query; how many rows each task read."""
    reader = source(site)
    try:
        return run_batch_of(reader, site, checkpoint, two_phase)
    finally:
        reader.stop()


def run_batch_of(
    reader: StreamReader, site: Site, checkpoint: Path, two_phase: str, *, by_rows: bool = False
) -> list[int]:
    """The same of a query that goes on; with a checkpoint that is there, the batch that is planned in it.
    `by_rows`: the rows name their topic."""
    mine = of(site, USER, f"{USER}-password")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    if not checkpoint.exists():
        checkpoint.mkdir()
        (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        (checkpoint / "offsets").mkdir()
        (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    given = {
        **mine, "transactional.id": "copy", "two.phase.commit": two_phase,
        "deadletter.topic": "orders_bad",
        **({} if by_rows else {"topic": "orders_copy"}),
        "checkpointLocation": str(checkpoint),
    }  # fmt: skip
    options = sink_options(given, stream=True)
    reports, counts = [], []
    try:
        begun = committer.begin_stream(options)
    except StartsElsewhere as error:  # each test begins again at the log's beginning
        (word,) = re.findall(r"set start\.accepted=(new-checkpoint:[\w:-]*\w)", str(error))
        options = sink_options({**given, "start.accepted": word}, stream=True)
        begun = committer.begin_stream(options)
    try:
        for number, task in enumerate(reader.partitions(start, end)):
            read = [batch.select(["value"]) for batch in reader.read(task)]
            if by_rows:
                read = [
                    batch.append_column("topic", pa.array(["orders_copy"] * len(batch))) for batch in read
                ]
            counts.append(sum(map(len, read)))
            reports.append(write_rows(options, begun, Attempt(query, 0, number), iter(read)).report)
        committer.commit_stream(options, reports, 0)
    except Exception:
        committer.abort_batch(options, reports, 0)
        raise
    return counts


def test_with_the_rights_of_the_page_a_query_runs(site: Site, given: Rights, tmp_path: Path) -> None:
    assert run_batch(site, tmp_path / "checkpoint", "require") == [2]


@pytest.mark.parametrize("one", rights(), ids=lambda one: f"{one.operation} {one.resource} {one.name}")
def test_without_any_one_of_them_it_does_not(site: Site, given: Rights, tmp_path: Path, one: Right) -> None:
    two_phase = "require" if one.operation == "TwoPhaseCommit" else "auto"
    given.take(one)
    try:
        with pytest.raises(Exception, match="AUTHORIZATION_FAILED"):
            run_batch(site, tmp_path / "checkpoint", two_phase)
    finally:
        given.give(one)


def copied(site: Site) -> int:
    """How many rows of orders_copy can be read."""
    options = source_options({**of(site, ADMIN, SECRET), "subscribe": "orders_copy"}, stream=False)
    reader = BatchReader(options)
    return sum(len(rows) for task in reader.partitions() for rows in reader.read(task))


def test_a_decision_of_several_groups_needs_one_more_right(
    site: Site,
    given: Rights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a batch decides is known when its rows are written. Without the right it stops, nothing becomes
    visible, and with it the same batch is written once. Where rows name their topics, a start warns."""
    more, size = Right("Read", "Group", "copy/", "prefixed"), decisions.METADATA_LIMIT
    assert "| Read on Group `copy/`, prefixed | a batch of very many tasks or topics" in PAGE.read_text()
    before, checkpoint, reader = copied(site), tmp_path / "checkpoint", source(site)
    monkeypatch.setattr(decisions, "METADATA_LIMIT", decisions._HEAD_ROOM + 20)
    for _ in range(2):
        with pytest.raises(
            BatchRefused, match=r"group copy/1 could not be added: .*that begin with <transac"
        ):
            run_batch_of(reader, site, checkpoint, "auto", by_rows=True)
        assert copied(site) == before
    assert "Give the user Read on groups that begin with copy/." in caplog.text
    given.give(more)
    caplog.clear()
    assert run_batch_of(reader, site, checkpoint, "auto", by_rows=True) == [2]
    assert copied(site) == before + 1 and "that begin with" not in caplog.text
    given.take(more)
    with pytest.raises(CommitFault, match=r"cannot be read: .*group 'copy/1': GROUP_AUTHORIZATION_FAILED"):
        run_batch_of(reader, site, checkpoint, "auto")
    given.give(more)
    monkeypatch.setattr(decisions, "METADATA_LIMIT", size)
    assert run_batch_of(reader, site, checkpoint, "auto", by_rows=True) == [2]
    assert copied(site) == before + 1, "the batch was decided, and came again"
    assert run_batch(site, tmp_path / "next", "auto") == [2]
    given.take(more)
    assert run_batch(site, tmp_path / "last", "auto") == [2], "a decision that has room needs no more"


OF_TOKENS = rights("rights of tokens")


def write_under(site: Site, token: str, query: str | None = None) -> None:
    """A batch write with a token; two are, as the second one goes on where the first one was. `query`: in its
    foreachBatch."""
    given = {**of(site, USER, f"{USER}-password"), "topic": "orders_copy", "transactional.id": "copy"}
    for number in range(2):
        options = sink_options({**given, "write.token": f"{token}{number}"}, stream=False)
        begun = committer.begin_batch(options)
        assert begun is not None
        within = None if query is None else Batch(query, number)
        attempt = Attempt(begun.batch.query_id, begun.batch.batch_id, 0, within)
        rows = pa.record_batch({"value": pa.array([b"row"])})
        committer.commit_batch(options, [write_rows(options, begun, attempt, iter([rows])).report])


@pytest.mark.parametrize("taken", [None, *OF_TOKENS], ids=str)
def test_with_the_rights_of_the_page_a_token_is_written(
    site: Site, given: Rights, taken: Right | None
) -> None:
    """And without any one of them it is not."""
    others = [one for one in rights() if one.name in ("copy", "copy/", "orders")]
    for one in others:
        given.take(one)
    given.give(*(one for one in OF_TOKENS if one != taken))
    try:
        if taken is None:
            write_under(site, "job-")
            with pytest.raises(CommitFault, match="Read on groups that begin with eoslog-write:"):
                write_under(site, "task-", "q")
            more = Right("Read", "Group", "eoslog-write:", "prefixed")
            assert "a token also needs Read on groups that begin with `eoslog-write:`" in PAGE.read_text()
            given.give(more)
            write_under(site, "last-", "q")
            given.take(more)
        else:
            with pytest.raises(Exception, match="AUTHORIZATION_FAILED"):
                write_under(site, "job-")
    finally:
        for one in OF_TOKENS:
            if one != taken:
                given.take(one)
        given.give(*others)


def test_a_process_has_as_many_connections_as_the_page_says(
    site: Site, given: Rights, tmp_path: Path
) -> None:
    """Two to a broker for the source, three for the sink, two for small batches. The page counts by roles:
    a task has two and two, a query's driver four for its sink (tests/test_simulation.py), and for its source
    two in each of at most three processes, and the two for small batches."""
    reader = source(site)
    for batch in range(3):
        run_batch_of(reader, site, tmp_path / str(batch), "auto")
    mine = [
        one for one in psutil.Process().net_connections("tcp") if one.raddr and one.raddr.port == site.port
    ]
    administrators = 1 + 2  # the one that gives rights, and the batch write that has filled the source
    page = PAGE.read_text().replace("\N{MULTIPLICATION SIGN}", "*")
    assert "at most 4 * tasks that run at a time + 12 * queries" in page
    assert len(mine) <= 2 + 3 + 2 + administrators


def write_one_row(options: SinkOptions) -> None:
    begun = committer.begin_batch(options)
    assert begun is not None and begun.batch is not None
    rows = pa.record_batch({"value": pa.array([b"row"])})
    report = write_rows(options, begun, Attempt(begun.batch.query_id, 0, 0), iter([rows])).report
    committer.commit_batch(options, [report])


def test_a_pattern_finds_what_its_user_may_see_as_the_page_says(site: Site, given: Rights) -> None:
    """A topic without any right is not found, one with Describe alone stops the query at its first rows, and
    so does one that was read and is hidden now."""
    page = " ".join(PAGE.read_text().split())
    assert "`subscribePattern` finds only topics that the user may describe" in page
    filled = ("seen-a", "seen-b", "seen-c")
    for topic in filled:
        site.create(topic)
        options = {**of(site, ADMIN, SECRET), "topic": topic, "transactional.id": f"fill-{topic}"}
        write_one_row(sink_options(options, stream=False))
    read = [Right("Read", "Topic", topic, "literal") for topic in ("seen-a", "seen-b")]
    seen = Right("Describe", "Topic", "seen-c", "literal")
    given.give(*read)
    mine = {**of(site, USER, f"{USER}-password"), "subscribePattern": "seen-.*"}
    reader = StreamReader(source_options({**mine, "startingOffsets": "earliest"}, stream=True))
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert {topic for topic in end if topic in filled} == {"seen-a", "seen-b"}
        given.give(seen)
        more = reader.latestOffset(end, ReadAllAvailable())
        assert "seen-c" in more
        with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
            for task in reader.partitions(end, more):
                list(reader.read(task))
        given.take(seen)
        given.take(read[1])
        with pytest.raises(DataLoss, match="seen-b-0 does not exist any more"):
            reader.latestOffset(end, ReadAllAvailable())
    finally:
        reader.stop()
        given.take(read[0])


def test_the_table_is_there() -> None:
    assert len(rights()) >= 9


# -- what is suggested ---------------------------------------------------------------------------
# The rights that connector/options/rights.py tells of are enough, each is needed; cluster.md has the same.
#
# The queries are those of the real source and sink, without Spark around them, on the bundled broker with
# every right denied that no ACL gives.

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

    def rights(self, *, optional: bool = False) -> list[Right]:
        """Those that it cannot do without; `optional`: those that it can as well."""
        return [
            Right(one.operation, one.resource, one.name, "prefixed" if one.prefixed else "literal")
            for one in self.needs().rights
            if optional or not one.optional
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
def suggested_site() -> Iterator[Site]:
    with Site() as made:
        made.create("orders", "more", "large", "orders_bad", "shadowed")
        admin = made.admin()
        small = NewTopic("orders_copy", 1, config={"max.message.bytes": "5000"})
        admin.create_topics([small])["orders_copy"].result(10)
        state = NewTopic("state", 1, config={"cleanup.policy": "compact"})
        admin.create_topics([state])["state"].result(10)
        admin.create_topics([NewTopic("wide", 2)])["wide"].result(10)
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
def give(suggested_site: Site) -> Iterator[Callable[[list[Right]], None]]:
    """Give alice exactly these rights."""
    with suggested_site.wire(ADMIN) as wire:
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
    suggested_site: Site, give: Callable[[list[Right]], None], name: str
) -> None:
    for left_out in (None, *range(len(QUERIES[name].rights()))):
        query = QUERIES[name].numbered(next(NUMBERS))
        prepare(suggested_site, query)
        rights = query.rights()
        give([right for index, right in enumerate(rights) if index != left_out])
        if left_out is None:
            run(suggested_site, query)
        else:
            with pytest.raises(Exception, match=r"AUTHORIZATION_FAILED|assert 0 == 2"):
                run(suggested_site, query)
                pytest.fail(f"{name} runs without {rights[left_out]}")


class AuditedSite(Site):
    """One whose log of refusals is in the test's own process."""

    in_thread = True


@pytest.fixture(scope="module")
def audited_site() -> Iterator[Site]:
    with AuditedSite() as made:
        made.create("orders", "orders_copy")
        yield made


@pytest.mark.parametrize("optional", [True, False], ids=["all that is suggested", "what is needed alone"])
def test_micro_batches_are_not_refused_again_and_again(
    audited_site: Site, optional: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(FROM, TO | NAMED).numbered(next(NUMBERS))
    with audited_site.wire(ADMIN) as wire, caplog.at_level(logging.INFO, "eoslog.broker.authorizer"):
        wire.socket.settimeout(PATIENCE_S)
        Rights(wire).give(*query.rights(optional=optional))
        try:
            run_batches(audited_site, query, 10)
        finally:
            for one in query.rights(optional=optional):
                Rights(wire).take(one)
        denied = [record.getMessage() for record in caplog.records if "is Denied" in record.getMessage()]
    asked = {
        (line.partition("operation = ")[2].split()[0], line.partition("resource = ")[2]) for line in denied
    }
    assert len(denied) == len(asked), "a refusal is remembered"
    assert sorted(operation for operation, _ in asked) == (
        [] if optional else ["DESCRIBE", "DESCRIBE", "TWO_PHASE_COMMIT"]
    ), denied


@pytest.mark.parametrize("optional", [True, False], ids=["all that is suggested", "what is needed alone"])
@pytest.mark.parametrize("look", ["find_held", "find_open"])
def test_a_warning_of_what_is_not_proven_names_a_right_that_is_suggested_once(
    suggested_site: Site,
    give: Callable[[list[Right]], None],
    optional: bool,
    look: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A restart after a kill asks each partition that has rows of the batch."""
    query = Query(FROM, {"topic": "wide"} | NAMED).numbered(next(NUMBERS))
    give(query.rights(optional=optional))
    user = of(suggested_site, USER, f"{USER}-password")
    cluster = Cluster(sink_options(user | query.sink, stream=True).client)
    for _ in range(2):
        if look == "find_held":
            assert not find_held(cluster, [("wide", 0), ("wide", 1)], [])
        else:
            assert not find_open(cluster, "wide", [0, 1], "then", 1)
    cluster.close()
    said = [record.getMessage() for record in caplog.records if "not proven" in record.getMessage()]
    assert len(said) == (0 if optional else 1), said
    named = {
        (operation, topic)
        for one in said
        for operation, topic in re.findall(r"right (\w+) on topic (\w+)", one)
    }
    assert named == (set() if optional else {("Read", "wide")})
    assert named <= {(one.operation, one.name) for one in query.rights(optional=True)}


def run_batches(site: Site, query: Query, number: int) -> None:
    """So many micro-batches of a few rows each, in one run."""
    mine = of(site, USER, f"{USER}-password")
    fill(site, "orders", *(b"%d" % row for row in range(5 * number)))
    source = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    reader = StreamReader(source_options(mine | query.source | source, stream=True))
    checkpoint = Path(site.broker.data) / f"checkpoint-{next(NUMBERS)}"
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    options = sink_options(mine | query.sink | {"checkpointLocation": str(checkpoint)}, stream=True)
    try:
        begin = reader.initialOffset()
        for batch in range(number):
            end = reader.latestOffset(begin, reader.getDefaultReadLimit())
            tasks = reader.partitions(begin, end)
            read = [[rows.select(["value"]) for rows in reader.read(task)] for task in tasks]
            assert sum(len(rows) for batches in read for rows in batches) > 2
            (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
            write_stream(options, batch, read)
            (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
            begin = end
    finally:
        reader.stop()


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
    assert len(blocks) == 1
    for block in blocks:
        command, _, printed = block.replace("\\\n", "").partition("\n")
        found = CliRunner().invoke(main, shlex.split(command)[1:]).output
        assert all_match(found.splitlines(), printed.splitlines()), found


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
    assert any("Read on the topics of the source" in note for note in notes)
    assert "two.phase.commit=auto" in str(Query({}, TO | NAMED).needs().rights)
    token = Query({}, TO | NAMED | {"write.token": "job-"}, stream=False).needs().notes
    assert "in foreachBatch: Read on groups eoslog-write:, prefixed, as well" in token
    assert Query(FROM, TO | NAMED | {"two.phase.commit": "false"}).needs().notes == ()
