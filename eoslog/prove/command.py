"""`eoslog prove`: the command line.

Exit status: 0 proven, 1 not right, 2 could not be judged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np
import pyarrow as pa

import eoslog
from eoslog.audit.bounds import AuditedRange, Bound, places
from eoslog.audit.digest import Raw
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets, settled_end
from eoslog.client.records.fetch import count_rows
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.output import ProgressListener, several, shown
from eoslog.commands.session import CommandSession, cluster_command, judging, pairs
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.source.past_batches import decisions_in_log
from eoslog.errors import RetriesExhausted, UnknownTopic
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.prove.batches import Case, History, Judged, Line, NoProof, judge, others_read, unknown_producers
from eoslog.prove.document import (
    FORMAT,
    Difference,
    Entry,
    Part,
    aligned,
    batch_entry,
    chained,
    is_like,
    partition_entry,
    parts_of,
    read_document,
    reordered,
    spans,
)
from eoslog.prove.logs import Content, PartitionLog, measured, names_of, partition_logs, pieces_of

WRONG, UNKNOWN = 1, 2
_EXIT = {"proven": 0, "wrong": WRONG, "unknown": UNKNOWN}
_LOOKS = 4
"""How often a partition of a copy that differs is read to find what has moved."""
_SHOWN = 20
"""Findings of each kind to print. The document has all."""
_SAID = {
    "proven": "proven: each batch is in the log, whole and once",
    "wrong": "WRONG: the logs are not what the sink has decided",
    "unknown": "NOT PROVEN: not all of it could be judged",
}


@click.command()
@click.argument("sink", required=False)
@click.option("--out", metavar="FILE", help="The document, a new file.")
@click.option("--since", metavar="BATCH|TIME",
              help="Begin with this batch of the last query, or at this time, as "
              "2026-11-21T10:00:00+01:00.  [default: the first batch]")  # fmt: skip
@click.option("--decision-topic", metavar="TOPIC", help="The sink's option decision.topic, if it has one.")
@click.option("--check", metavar="FILE", help="Check a document, and the topics here by it.")
@click.option("--topic", "copies", multiple=True, metavar="TOPIC=COPY",
              help="The copy's name, if it is another one; repeatable.")  # fmt: skip
@click.option("--allow-foreign", is_flag=True, help="Others write to the topics, too.")
@judging
@cluster_command
def command(
    session: CommandSession,
    sink: str | None,
    out: str | None,
    check: str | None,
    allow_foreign: bool,
    **options: Any,
) -> None:
    """Prove that topics have each batch of SINK, a transactional.id, whole and once; write what proves it.

    Exit status: 0 proven, 1 not right, 2 could not be judged.
    """
    pa.set_memory_pool(pa.system_memory_pool())  # as in eoslog audit: it gives memory back
    if check is not None and sink is None and out is None and options["since"] is None:
        verdict = _check(session, Path(check), pairs(options["copies"], "--topic"), allow_foreign)
    elif check is None and sink is not None and out is not None and not options["copies"]:
        since, topic = _since(options["since"]), options["decision_topic"] or ANCHOR
        verdict = _prove(session, Sink(sink), since, topic, Path(out), allow_foreign)
    else:
        raise click.UsageError("give SINK and --out FILE to write a document, or --check FILE to check one")
    if verdict != "proven":
        raise click.exceptions.Exit(_EXIT[verdict])


def _since(text: str | None) -> tuple[int | None, int | None]:
    """The batch, and the time in ms since 1970, of --since. Raises click.UsageError."""
    if text is None or text.isdecimal():
        return None if text is None else int(text), None
    try:
        return None, int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise click.UsageError(
            f"--since {text}: give the number of a batch, or a time as 2026-11-21T10:00:00+01:00"
        ) from error


# -- prove -----------------------------------------------------------------------------------------


def _prove(
    session: CommandSession,
    sink: Sink,
    since: tuple[int | None, int | None],
    decisions: str,
    out: Path,
    allow_foreign: bool,
) -> str:
    """Write the document and print what it says. Returns the verdict."""
    cluster = session.cluster
    try:
        file = out.open("x", encoding="utf-8")
    except FileExistsError as error:
        raise NoProof(
            f"{out} is there: no document is written over another file. Give another name"
        ) from error
    try:
        with file, shown() as watch:
            case = _case(cluster, sink, since, decisions, watch)
            judged = judge(case)
            _check_readable(case, judged)
            entries = list(_entries(cluster, case, judged, decisions, allow_foreign, watch))
            last = _write(file, entries)
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    _tell(session, entries, out, last)
    verdict: str = entries[-1]["verdict"]
    return verdict


def _case(
    cluster: Cluster,
    sink: Sink,
    since: tuple[int | None, int | None],
    decisions: str,
    watch: ProgressListener,
) -> Case:
    """What is judged. The decisions are read again behind the logs: a sink that runs goes on meanwhile, and
    the rows of its later batches are not unknown."""
    history = History.of(sink, decisions_in_log(cluster, sink, decisions))
    first, last = history.first_since(*since), history.last
    if not last or first > last:
        raise NoProof(
            f"{ANCHOR} has no decision of sink {sink.id}{' since then' if last else ''}: check its name, "
            "--since and --decision-topic. Brokers compact former decisions away, and forget sinks that "
            "rest; at_least_once makes none"
        )
    judged = [one.decision for one in history.judged_since(first)]
    _settle(cluster, {(p.topic, p.partition): p.offset + 1 for one in judged for p in one.places})
    logs = partition_logs(cluster, {topic for one in judged for topic, _ in one.written}, watch)
    history = History.of(sink, decisions_in_log(cluster, sink, decisions))
    names = names_of(cluster, unknown_producers(history, logs))
    return Case(sink, history, first, last, logs, names)


def _settle(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> None:
    """Wait until readers of committed rows come to these offsets, where the log has them, or for --timeout.
    What they do not come to is found later."""
    for topic in sorted({topic for topic, _ in wanted}):
        with suppress(UnknownTopic):
            cluster.describe(topic)
            asked = {where: offset for where, offset in wanted.items() if where[0] == topic}
            ends = list_offsets(cluster, dict.fromkeys(asked, LATEST), committed=False)
            try:
                for where, offset in asked.items():
                    settled_end(cluster, where, min(offset, ends[where]))
            except RetriesExhausted:
                return


def _check_readable(case: Case, judged: Judged) -> None:
    """Raise NoProof if rows of decided batches cannot be read, though nothing is wrong with them."""
    held = sorted(
        where
        for line in judged.lines
        for where, own in line.own.items()
        if any(one.last >= case.logs[where].stable for one in own)
    )
    if held and not any(line.wrong for line in judged.lines):
        (topic, partition), at = held[0], case.logs[held[0]].stable
        raise NoProof(
            f"{topic}-{partition}: an open transaction of others holds readers back at offset {at}, before "
            "rows of decided batches. Nothing was written. Find it with eoslog transactions, and end it first"
        )


def _entries(
    cluster: Cluster, case: Case, judged: Judged, decisions: str, allow_foreign: bool, watch: ProgressListener
) -> Iterator[Entry]:
    contents: list[dict[TopicPartition, Content]] = [{} for _ in judged.lines]
    partitions = []
    for where, log in sorted(case.logs.items()):
        rows = _measure(cluster, where, log, judged.lines, contents, watch)
        partitions.append(partition_entry(where, log, rows))
    batches = [batch_entry(*one) for one in zip(judged.lines, contents, strict=True)]
    wrong = [*judged.wrong, *([] if allow_foreign else judged.foreign)]
    unknown = [*judged.unknown, *(judged.unnamed if allow_foreign else [])]
    is_wrong, is_unknown = (
        bool(found) or any(entry[kind] for entry in batches)
        for found, kind in ((wrong, "wrong"), (unknown, "unknown"))
    )
    yield {
        "kind": "sink", "format": FORMAT, "eoslog": eoslog.__version__, "cluster": cluster.cluster_id,
        "sink": case.sink.id, "decisions": decisions, "first": case.first, "last": case.last,
        "made_ms": int(time.time() * 1000),
    }  # fmt: skip
    yield from partitions
    yield from batches
    yield {
        "kind": "end", "lines": 2 + len(partitions) + len(batches), "batches": len(batches),
        "rows": sum(log["rows"] for entry in batches for log in entry["log"]), "wrong": wrong,
        "unknown": unknown, "foreign": judged.foreign, "sources_not_judged": list(others_read(judged.lines)),
        "verdict": "wrong" if is_wrong else "unknown" if is_unknown else "proven",
    }  # fmt: skip


def _measure(
    cluster: Cluster,
    where: TopicPartition,
    log: PartitionLog,
    lines: Sequence[Line],
    contents: Sequence[dict[TopicPartition, Content]],
    watch: ProgressListener,
) -> int:
    """Put what a partition has of each batch into `contents`. Returns how many rows readers see there."""
    found = [(number, line.committed(where)) for number, line in enumerate(lines) if where in line.own]
    parts = sorted(
        (min(one.first for one in own), min(max(one.last for one in own) + 1, log.stable), number)
        for number, own in found
        if own and min(one.first for one in own) < log.stable
    )
    if not parts:
        return _count(cluster, where, log, log.begins, log.stable)
    begin, end = parts[0][0], max(behind for _, behind, _ in parts)
    place = AuditedRange(where[0], log.topic_id, where[1], begin, end)
    before = _count(cluster, where, log, log.begins, begin)
    measure = measured(pieces_of(cluster, place, watch), [part[:2] for part in parts], before)
    removes = log.compacted or list_offsets(cluster, {where: EARLIEST}, committed=True)[where] > log.begins
    for (_, _, number), content in zip(parts, measure.contents, strict=True):
        contents[number][where] = content
        rows = sum(one.rows for one in lines[number].committed(where))
        if content.rows < rows:  # retention or compaction may have taken them just now
            finding = lines[number].unknown if removes else lines[number].wrong
            finding.append(f"{place}: readers see {content.rows} of its {rows} rows")
    return measure.rows + _count(cluster, where, log, end, log.stable)


def _count(cluster: Cluster, where: TopicPartition, log: PartitionLog, start: int, end: int) -> int:
    if start >= end:
        return 0
    return sum(
        rows for rows, _ in count_rows(cluster, *where, start, end, committed=True, topic_id=log.topic_id)
    )


def _write(file: TextIO, entries: Iterable[Entry]) -> str:
    """Write the lines. Returns the last one's hash."""
    text = ""
    for text in chained(entries):
        file.write(text + "\n")
    found: str = json.loads(text)["sha256"]
    return found


def _tell(session: CommandSession, entries: Sequence[Entry], out: Path, last: str) -> None:
    end, batches = entries[-1], [entry for entry in entries if entry["kind"] == "batch"]
    kinds = {
        kind: [
            *(f"batch {b['batch']} (decision {b['decision']}): {text}" for b in batches for text in b[kind]),
            *end[kind],
        ]
        for kind in ("wrong", "unknown")
    }
    found = {name: end[name] for name in ("verdict", "batches", "rows", "foreign", "sources_not_judged")}
    if session.as_json:
        session.show_json({**found, **kinds, "file": str(out), "sha256": last})
        return
    head = entries[0]
    click.echo(
        f"sink {head['sink']}: {several(len(batches), 'decision')} from {head['first']} to {head['last']}, "
        f"{several(end['rows'], 'row')}"
    )
    for kind, texts in kinds.items():
        _list(kind, texts)
    if end["sources_not_judged"]:
        click.echo(f"note: what these sources read is not judged: {', '.join(end['sources_not_judged'])}")
    click.echo(_SAID[end["verdict"]])
    click.echo(f"{out}: sha256 {last}")


def _list(kind: str, texts: Sequence[str]) -> None:
    for text in texts[:_SHOWN]:
        click.echo(f"{kind}: {text}")
    if len(texts) > _SHOWN:
        click.echo(f"... and {len(texts) - _SHOWN:,} more")


# -- check -----------------------------------------------------------------------------------------


def _check(session: CommandSession, file: Path, copies: Mapping[str, str], allow_foreign: bool) -> str:
    """Check a document and the topics by it, and print what was found. Returns the verdict."""
    with file.open(encoding="utf-8", newline="\n") as stream:
        try:
            entries, last = read_document(stream)
        except NoProof as error:
            raise NoProof(f"{file}: {error}") from error
        except UnicodeDecodeError as error:
            raise NoProof(f"{file} is no document of eoslog prove: {error}") from error
    with shown() as watch:
        found = list(_differences(session.cluster, entries, copies, watch))
    wrong = [text for text, outside in found if not (outside and allow_foreign)]
    end = entries[-1]
    verdict: str = "wrong" if wrong else end["verdict"]
    if session.as_json:
        noted = [one.text for one in found if one.text not in wrong]
        session.show_json({
            "verdict": verdict, "document": end["verdict"], "batches": end["batches"], "rows": end["rows"],
            "wrong": wrong, "allowed": noted, "sha256": last,
        })  # fmt: skip
        return verdict
    click.echo(
        f"{file}: {several(end['batches'], 'decision')} of sink {entries[0]['sink']}, {end['verdict']}"
    )
    _list("wrong", wrong)
    if wrong:
        click.echo(f"WRONG: the copy differs in {several(len(wrong), 'place')}")
    elif verdict == "proven":
        click.echo(f"right: the copy has each of its batches, whole and once, {several(end['rows'], 'row')}")
    else:
        click.echo(f"the copy has what the document has, {several(end['rows'], 'row')}. {_SAID[verdict]}")
    click.echo(f"{file}: sha256 {last}")
    return verdict


def _differences(
    cluster: Cluster, entries: Sequence[Entry], copies: Mapping[str, str], watch: ProgressListener
) -> Iterator[Difference]:
    totals = {(e["topic"], e["partition"]): e["rows"] for e in entries if e["kind"] == "partition"}
    parts = parts_of(entries)
    whole = [Bound("", special=EARLIEST), Bound("", special=LATEST)]
    for topic in dict.fromkeys(topic for topic, _ in totals):
        there = places(cluster, [copies.get(topic, topic)], *whole, committed=True)
        numbers = {place.partition: place for place in there}
        for where in [where for where in totals if where[0] == topic]:
            place = numbers.pop(where[1], None)
            if place is None:
                yield Difference(f"{copies.get(topic, topic)} has no partition {where[1]}", not parts[where])
                continue
            yield from _of_partition(cluster, place, parts[where], totals[where], watch)
        for place in numbers.values():
            yield from _of_partition(cluster, place, [], 0, watch)


def _of_partition(
    cluster: Cluster, place: AuditedRange, parts: Sequence[Part], total: int, watch: ProgressListener
) -> Iterator[Difference]:
    """How a copy's partition differs. Only one that does is read again, with 16 bytes a row in memory."""
    copy = measured(pieces_of(cluster, place, watch), spans(parts), by_number=True)
    found = reordered(parts, copy)
    if not is_like(parts, total, copy):
        rows = [np.zeros((1, 2), np.uint64), *(piece.digests for piece in pieces_of(cluster, place, watch))]
        sums = np.cumsum(np.concatenate(rows), axis=0, dtype=np.uint64)
        found += _aligned(cluster, place, parts, total, sums, watch)
    for one in found:
        yield Difference(f"{place}, {one.text}", one.outside)


def _aligned(
    cluster: Cluster,
    place: AuditedRange,
    parts: Sequence[Part],
    total: int,
    sums: Raw,
    watch: ProgressListener,
) -> list[Difference]:
    """The differences, when batches that seem to have moved were looked at: their rows must be in order."""
    refused = set[tuple[int, int]]()
    for _ in range(_LOOKS):
        found = aligned(parts, total, sums, refused)
        moved = sorted(found.moved, key=lambda one: one[1])
        there = [(at, at + parts[number].rows) for number, at in moved]
        again = measured(pieces_of(cluster, place, watch), there, by_number=True) if moved else None
        others = {
            one
            for one, content in zip(moved, again.contents if again else (), strict=True)
            if content.sha256.hexdigest() != parts[one[0]].sha256
        }
        if not others:
            break
        refused |= others
    return found.differences
