"""A reader of whole batches (read.whole.batches) in a world: it gets all rows of a micro-batch, or none."""

from typing import TYPE_CHECKING

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import BatchReader
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from tests.histories import judge
from tests.histories.judge import Finding

if TYPE_CHECKING:
    from tests.histories.query import Query
    from tests.histories.world import World

_TIMEOUT_MS = "500"
"""For how long such a reader waits: nobody finishes a batch meanwhile."""


def read_whole(world: "World") -> None:
    """Each topic of a query is read so. A batch of which some rows are got, and others stand in the topic, is
    torn."""
    for query in () if world.parted else list(world.queries.values()):  # a decision is older than its rows
        exact = query.sink.get("processing.guarantee", "exactly_once") == "exactly_once"
        exact &= not query.lineage.may_lack and not query.lineage.may_double  # no edit, and no word
        if exact and query.token is None and query.checkpoint.exists() and not query.by_rows:
            world.turn(query.servers)
            _read(world, query)


def _read(world: "World", query: "Query") -> None:
    note, lineage = NotedSink.read(Checkpoint.at(str(query.checkpoint))), query.lineage
    topic, mark = query.sink["topic"], f"{lineage.name}:"
    mirrored = [one for one in world.ground.sites.values() if topic in one.topics]
    if note is None or note.sink is None or mirrored != [world.cluster]:
        return  # a mirror's copies come as they stand
    options = {
        "kafka.bootstrap.servers": query.servers, "subscribe": topic, "startingOffsets": "earliest",
        "read.whole.batches": note.sink, "kafka.default.api.timeout.ms": _TIMEOUT_MS,
        "kafka.request.timeout.ms": _TIMEOUT_MS,
    }  # fmt: skip
    try:
        with world.ground.shell(None):
            reader = BatchReader(source_options(options, stream=False))
            parts = [rows for part in reader.partitions() for rows in reader.read(part)]
    except (EoslogError, KafkaError):
        return  # it has got none
    got = {value.decode() for rows in parts for value in rows.column("value").to_pylist()}
    there = judge.written(world.cluster, [topic])
    batches = [rows for (of, _), rows in lineage.noted.items() if of in lineage.queries]
    for rows in [*batches, *lineage.batches.values()]:
        mine = {mark + uid for uid in rows if there[mark + uid]}
        lacks = mine - got
        if mine & got and lacks:
            told = f"{len(lacks)} of {len(mine)} rows of a batch of {lineage.name} ({min(lacks)})"
            world.findings.append(Finding("torn", told))
