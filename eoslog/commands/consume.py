"""`eoslog consume`: the records of a topic on standard output, without a group."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import click

from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.records.fetch import fetch
from eoslog.commands.output import show_json
from eoslog.commands.session import CommandSession, cluster_command, partitions_of
from eoslog.protocol.decode import DecodedRecords
from eoslog.protocol.topic_partitions import TopicPartition

_PAUSE_S = 0.1


@click.command()
@click.argument("topic", metavar="TOPIC[:0,1]")
@click.option("--from-beginning", is_flag=True, help="From the first record; otherwise only new records.")
@click.option("--to-end", is_flag=True, help="Stop at the topic's present end.")
@click.option("--max-messages", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--print-timestamp", is_flag=True, help="CreateTime: or LogAppendTime: and ms since 1970.")
@click.option("--print-partition", is_flag=True, help="Partition: and its number.")
@click.option("--print-offset", is_flag=True, help="Offset: and the record's.")
@click.option("--print-headers", is_flag=True, help="name:value,name:value, or NO_HEADERS.")
@click.option("--print-key", is_flag=True, help="The key and a tab before the value.")
@click.option("--read-uncommitted", is_flag=True, help="Records of open and aborted transactions too.")
@cluster_command
def command(
    session: CommandSession,
    topic: str,
    from_beginning: bool,
    to_end: bool,
    max_messages: int | None,
    read_uncommitted: bool,
    **shown: bool,
) -> None:
    """Print the records of a topic, one a line; with --json one object a line. Ctrl-C ends it.

    Other parts of a record come before its value, as in Kafka's console consumer.
    """
    places = _places(session, topic)
    committed = not read_uncommitted
    position = list_offsets(
        session.cluster, dict.fromkeys(places, EARLIEST if from_beginning else LATEST), committed=committed
    )
    with suppress(KeyboardInterrupt):
        wanted = [name for name in _PARTS if shown[f"print_{name}"]]
        _print_all(session, _rows(session, position, committed, to_end), max_messages, wanted)


def _print_all(
    session: CommandSession,
    batches: Iterator[tuple[TopicPartition, list[dict[str, Any]]]],
    left: int | None,
    wanted: Sequence[str],
) -> None:
    for place, rows in batches:
        if left is not None:
            rows, left = rows[:left], left - len(rows)
        for row in rows:
            _print(session, place, row, wanted)
        sys.stdout.flush()
        if left is not None and left <= 0:
            return


def _places(session: CommandSession, text: str) -> list[TopicPartition]:
    name = text.partition(":")[0]
    return partitions_of(text, {name: session.cluster.partitions(name)})


def _rows(
    session: CommandSession, position: dict[TopicPartition, int], committed: bool, to_end: bool
) -> Iterator[tuple[TopicPartition, list[dict[str, Any]]]]:
    """Rows as they arrive, partition by partition; advances `position`."""
    while True:
        ends = list_offsets(session.cluster, dict.fromkeys(position, LATEST), committed=committed)
        behind = [place for place in position if position[place] < ends[place]]
        for place in behind:
            span = position[place], ends[place]
            for decoded in fetch(session.cluster, *place, *span, committed=committed, headers=True):
                yield place, _records(decoded)
            position[place] = ends[place]
        if to_end:
            return
        if not behind:
            time.sleep(_PAUSE_S)


def _records(decoded: DecodedRecords) -> list[dict[str, Any]]:
    columns = {
        "offset": decoded.offset.to_pylist(),
        "timestamp": decoded.timestamp.to_pylist(),
        "timestamp_type": decoded.timestamp_type.to_pylist(),
        "headers": decoded.headers.to_pylist() if decoded.headers is not None else [[]] * len(decoded),
        "key": decoded.key.to_pylist(),
        "value": decoded.value.to_pylist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _print(
    session: CommandSession, place: TopicPartition, row: dict[str, Any], wanted: Sequence[str]
) -> None:
    row = {"topic": place[0], "partition": place[1], **row}
    if session.as_json:
        show_json(row, indent=None)
        return
    parts = [_PARTS[name](row) for name in wanted]
    sys.stdout.buffer.write(b"\t".join([*parts, row["value"] or b""]) + b"\n")


_TIMES = {0: b"CreateTime", 1: b"LogAppendTime"}
_PARTS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "timestamp": lambda row: b"%s:%d" % (_TIMES[row["timestamp_type"]], row["timestamp"]),
    "partition": lambda row: b"Partition:%d" % row["partition"],
    "offset": lambda row: b"Offset:%d" % row["offset"],
    "headers": lambda row: b",".join(map(_header, row["headers"])) or b"NO_HEADERS",
    "key": lambda row: bytes(row["key"] or b""),
}
"""The parts of a record that --print-... adds, in this order."""


def _header(header: dict[str, Any]) -> bytes:
    name: str = header["key"]
    value: bytes | None = header["value"]
    return name.encode() + b":" + (b"null" if value is None else value)
