"""The document: lines of JSON, each chained to the one before; and how a copy of the topics differs. Pure.

A line is canonical JSON (RFC 8785), with `sha256`: that of the line before it and of the line without it. So
no line can be edited, left out or moved without changing all that follow, and the last one says how many
there are. Its hash stands for the whole: whoever has it from elsewhere knows that the document is the one.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eoslog.audit.digest import Raw
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.prove.batches import Line, NoProof
from eoslog.prove.logs import Content, Measured, PartitionLog

FORMAT = 1
"""What the lines' fields mean. Raise it when one gets another meaning."""
_HASH = "sha256"
Entry = Mapping[str, Any]

# -- lines -----------------------------------------------------------------------------------------


def partition_entry(where: TopicPartition, log: PartitionLog, rows: int) -> Entry:
    """A partition, and how many rows readers see from its first offset up to `ends`."""
    return {
        "kind": "partition", "topic": where[0], "id": log.topic_id, "partition": where[1],
        "begins": log.begins, "ends": log.stable, "rows": rows,
    }  # fmt: skip


def batch_entry(line: Line, contents: Mapping[TopicPartition, Content]) -> Entry:
    """A decision, and what the logs hold of it. `contents`: of partitions where readers see rows of it."""
    decided = line.decided.decision
    return {
        "kind": "batch",
        "decision": decided.sequence,
        "time_ms": line.decided.time_ms,
        "query": decided.batch.query_id,
        "batch": decided.batch.batch_id,
        "digest": decided.batch.digest,
        "write": decided.is_write,
        "source": line.source,
        "rows": list(decided.rows),
        "checksums": list(decided.checksums),
        "places": [
            {"topic": place.topic, "id": place.topic_id, "partition": place.partition,
             "offset": place.offset, "writer": str(place.writer), "time_ms": place.time_ms}
            for place in decided.places
        ],
        "transactions": [
            {"task": winner.partition, "name": winner.participant.name,
             "writer": str(winner.participant.identity)}
            for winner in decided.winners
        ],
        "log": [_log_entry(where, line, content) for where, content in sorted(contents.items())],
        "wrong": line.wrong,
        "unknown": line.unknown,
    }  # fmt: skip


def _log_entry(where: TopicPartition, line: Line, content: Content) -> Entry:
    own = line.committed(where)
    rows = sum(one.rows for one in own)
    return {
        "topic": where[0], "partition": where[1], "rows": rows, "others": content.rows - rows,
        "first": min(one.first for one in own), "last": max(one.last for one in own),
        "markers": sorted(one.marker for one in own),
        "before": content.before, "sum": content.sum, "sha256": content.sha256.hexdigest(),
    }  # fmt: skip


def chained(entries: Iterable[Entry]) -> Iterator[str]:
    """The lines of these entries, which the last one ends."""
    before = ""
    for entry in entries:
        before = _hash(before, entry)
        yield _canonical({**entry, _HASH: before})


def read_document(lines: Iterable[str]) -> tuple[list[Entry], str]:
    """The entries of a document, which is as it was written, and the last line's hash. Raises NoProof."""
    entries, before = list[Entry](), ""
    for number, text in enumerate(lines, 1):
        try:
            entry = json.loads(text)
            del entry[_HASH]
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise NoProof(f"line {number} is no line of a document of eoslog prove. {_REFUSED}") from error
        before = _hash(before, entry)
        if text.rstrip("\n") != _canonical({**entry, _HASH: before}):
            raise NoProof(f"line {number} is not as it was written, or not behind the same line. {_REFUSED}")
        entries.append(entry)
    _check_whole(entries)
    return entries, before


_REFUSED = "The document was changed, and proves nothing. Take the one that eoslog prove has written"


def _check_whole(entries: Sequence[Entry]) -> None:
    if not entries or entries[0].get("kind") != "sink":
        raise NoProof(f"this is no document of eoslog prove, or its beginning is missing. {_REFUSED}")
    if entries[0]["format"] > FORMAT:
        raise NoProof(
            f"a later version of eoslog has written it (format {entries[0]['format']}): use that one"
        )
    if entries[-1].get("kind") != "end" or entries[-1]["lines"] != len(entries):
        raise NoProof(f"its end is missing: {len(entries)} lines are here. {_REFUSED}")


def _hash(before: str, entry: Entry) -> str:
    return hashlib.sha256((before + _canonical(entry)).encode()).hexdigest()


def _canonical(entry: Entry) -> str:
    """Canonical JSON: names in order, no blanks, no escapes that are not needed."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# -- copies ----------------------------------------------------------------------------------------


class Part(NamedTuple):
    """The rows of a batch in a partition, as the document has them: `name` of the batch, how many rows are
    before them, how many they are, and what."""

    name: str
    before: int
    rows: int
    sum: str
    sha256: str


class Difference(NamedTuple):
    """How a copy differs. `outside`: no batch of the document lacks a row for that."""

    text: str
    outside: bool = False


def parts_of(entries: Sequence[Entry]) -> dict[TopicPartition, list[Part]]:
    """The batches of a document by partition, in the order of their rows."""
    found: dict[TopicPartition, list[Part]] = {}
    for entry in entries:
        if entry["kind"] == "partition":
            found[entry["topic"], entry["partition"]] = []
        for log in entry["log"] if entry["kind"] == "batch" else ():
            name = f"batch {entry['batch']} (decision {entry['decision']})"
            part = Part(name, log["before"], log["rows"] + log["others"], log["sum"], log["sha256"])
            found[log["topic"], log["partition"]].append(part)
    return {where: sorted(parts, key=lambda part: part.before) for where, parts in found.items()}


def spans(parts: Sequence[Part]) -> list[tuple[int, int]]:
    """Where the parts are, by the numbers of the partition's rows."""
    return [(part.before, part.before + part.rows) for part in parts]


def is_like(parts: Sequence[Part], total: int, copy: Measured) -> bool:
    """Whether a copy has these parts where the document has them, and `total` rows as it does."""
    return (
        copy.rows == total
        and not reordered(parts, copy)
        and all(content.sum == part.sum for part, content in zip(parts, copy.contents, strict=True))
    )


def reordered(parts: Sequence[Part], copy: Measured) -> list[Difference]:
    """The parts of which the copy has the rows, and not in their order."""
    return [
        Difference(f"{part.name}: its rows are in another order")
        for part, content in zip(parts, copy.contents, strict=True)
        if content.sum == part.sum and content.sha256.hexdigest() != part.sha256
    ]


class Alignment(NamedTuple):
    """How a copy differs, and `moved`: which parts, by number, were found elsewhere than by counting, and
    where. The sum found them, which any order of their rows has."""

    differences: list[Difference]
    moved: list[tuple[int, int]]


def aligned(
    parts: Sequence[Part], total: int, sums: Raw, refused: Collection[tuple[int, int]] = ()
) -> Alignment:
    """How a copy differs from `total` rows with these parts. `sums`: for each of its rows the sum of the
    digests of those before it, and the sum of all; an array of shape (rows + 1, 2). `refused`: where parts
    are not, though their sum says so."""
    found, moved = list[Difference](), list[tuple[int, int]]()
    here, there = 0, 0  # up to where both are compared: in the document, and in the copy
    lost = list[Part]()
    for number, part in enumerate(parts):
        counted = there + part.before - here
        at = _found(part, counted, there, sums, {at for one, at in refused if one == number})
        if at is None or (at != counted and _next_stands(parts[number + 1 :], there - here, sums)):
            lost.append(part)
            continue
        moved += [] if at == part.before else [(number, at)]
        found += _said(lost, at - counted, f"before {part.name}")
        here, there, lost = part.before + part.rows, at + part.rows, []
    found += _said(lost, (len(sums) - 1 - there) - (total - here), "behind the last batch")
    return Alignment(found, moved)


def _next_stands(parts: Sequence[Part], shift: int, sums: Raw) -> bool:
    """Whether the next part stands where it should: then the one before has kept its place, too."""
    return bool(parts) and _stands(parts[0], parts[0].before + shift, sums)


def _stands(part: Part, at: int, sums: Raw) -> bool:
    """Whether the part's rows stand there in the copy."""
    if at < 0 or at + part.rows >= len(sums):
        return False
    return _text(sums[at + part.rows] - sums[at]) == part.sum


def _found(part: Part, at: int, least: int, sums: Raw, refused: Collection[int]) -> int | None:
    """Where the part's rows stand, if they do: best `at`, else as near to it as can be."""
    if at not in refused and _stands(part, at, sums):
        return at
    wanted = np.array([int(part.sum[:16], 16), int(part.sum[16:], 16)], np.uint64)
    windows = sums[part.rows :] - sums[: max(len(sums) - part.rows, 0)]
    hits = np.flatnonzero((windows == wanted).all(axis=1))
    hits = hits[(hits >= least) & ~np.isin(hits, [*refused])]
    return int(hits[np.argmin(np.abs(hits - at))]) if len(hits) else None


def _text(halves: Raw) -> str:
    return "".join(f"{int(half):016x}" for half in halves)


def _said(lost: Sequence[Part], more: int, place: str) -> Iterator[Difference]:
    """What is said of parts that were not found, between two that were; `more` rows are there than should."""
    count = f"{abs(more):,} row{'' if abs(more) == 1 else 's'} {'more' if more > 0 else 'missing'}"
    if not lost and more:
        yield Difference(f"{count} {place}", outside=True)
    elif lost and more:
        ends = [lost[0].name] if len(lost) == 1 else [lost[0].name, lost[-1].name]
        yield Difference(f"{' to '.join(ends)}: {count}")
    else:
        yield from (Difference(f"{part.name}: a row has other content, of {part.rows:,}") for part in lost)
