"""docs/cluster.md has exactly the rights that a query needs: with them it runs, without any one of them not.

The query is a micro-batch of the real source and the real sink, without Spark around them, on the bundled
broker with every right denied that no ACL gives.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pytest

from eoslog.connector.commit import decision as decisions
from eoslog.connector.commit.faults import BatchRefused, CommitFault
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.connector.source.reader import BatchReader, StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.protocol.acls import AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.apis import ApiKey
from tests.broker.broker_clients import Wire
from tests.broker.security.acl_site import Site
from tests.broker.security.securitykit import ADMIN, SECRET

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
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in found[1].strip().splitlines()]
    return [Right(*row[:4]) for row in cells[2:]]


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


ANEW = ",".join(f"new-checkpoint:{number}" for number in range(400))
"""Each test begins again at the log's beginning, whatever was decided before."""


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
    options = sink_options(
        {
            **mine, "transactional.id": "copy", "two.phase.commit": two_phase,
            "deadletter.topic": "orders_bad",
            **({} if by_rows else {"topic": "orders_copy"}),
            "checkpointLocation": str(checkpoint),
            "start.accepted": ANEW,
        },
        stream=True,
    )  # fmt: skip
    reports, counts = [], []
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
    assert "| Read | Group | `copy/`, prefixed | a batch of very many tasks or topics" in PAGE.read_text()
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
            assert "it needs Read on groups that begin with `eoslog-write:`" in PAGE.read_text()
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
    """Two to a broker for the source, three for the sink, two for small batches."""
    reader = source(site)
    for batch in range(3):
        run_batch_of(reader, site, tmp_path / str(batch), "auto")
    mine = [
        one for one in psutil.Process().net_connections("tcp") if one.raddr and one.raddr.port == site.port
    ]
    administrators = 1 + 2  # the one that gives rights, and the batch write that has filled the source
    assert "at most two for the source and three for the sink" in " ".join(PAGE.read_text().split())
    assert len(mine) <= 2 + 3 + 2 + administrators


def test_the_table_is_there() -> None:
    assert len(rights()) >= 9
