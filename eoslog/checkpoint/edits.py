"""An edit of a checkpoint: which files of Spark's logs it changes, and how.

After an edit the newest batch of both logs is one that the query has written, with the end offsets that the
edit sets. The next start plans the batch after it, from there. Only a batch that is planned and not written
is removed. A query with state goes back by removing batches: the state at the end of a batch is Spark's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.standing import NextStart, SourcePlace, Standing, position_of
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.shadow_check import ANEW
from eoslog.connector.checkpoint.spark_logs import (
    Planned,
    is_eoslog,
    source_position,
    with_ends,
)
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.offsets import Offsets, to_json
from eoslog.protocol.topic_partitions import TopicPartition

LogFile = tuple[str, int]
"""A log (offsets, commits, or a file source's own, as sources/0) and a batch in it."""
Texts = Mapping[LogFile, str | None]
"""The texts of files; None: the file is not there."""
_WRITTEN = {"offsets": 3, "commits": 4}
"""In which order files are written: those of the sources' own logs before what refers to them."""
_EMPTY_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True)
class Edit:
    """An edit that is not carried out yet. `kind`: the command. `end`: the newest batch after it. `was`: the
    batch that the sink has decided last, if the checkpoint does not tell where the query stands."""

    kind: str
    end: Planned
    before: Texts
    after: Texts
    was: Batch | None = None


def set_ends(
    standing: Standing,
    kind: str,
    ends: Mapping[SourcePlace, int],
    ids: Mapping[str, str],
    epochs: Mapping[TopicPartition, int],
    *,
    cluster: str | None = None,
    left: Mapping[SourcePlace, int] = MappingProxyType({}),
) -> Edit:
    """An edit that sets the ends of the last written batch. `ids`: of topics that the batch does not have.
    `epochs`: today's leader epochs. `cluster`: the ends are of this one, and so are ids and epochs, and what
    was found there of partitions that are `left`."""
    last = position_of(standing)
    old = standing.checkpoint.text(f"offsets/{last.batch_id}") or ""
    today = (ids, epochs)
    lines = [_end_of(last, number, ends, today, cluster, left) for number in range(len(last.sources))]
    _check_no_shadow(standing, last, lines)
    text = with_ends(old, lines)
    after: dict[LogFile, str | None] = {("offsets", last.batch_id): text}
    if standing.next_start is NextStart.FINISH:
        after["commits", last.batch_id] = commit_after(standing.checkpoint, last.batch_id)
    after |= dict.fromkeys(behind(standing.checkpoint, last.batch_id))
    return edit(standing, kind, Planned.parse(last.batch_id, text), after)


def cut_behind(standing: Standing, kind: str, batch: int) -> Edit:
    """An edit that removes all batches behind one. Raises NotEditable if the query could not go on there."""
    position_of(standing)
    if standing.note is None:
        raise NotEditable(
            "the query keeps state, so it goes back by batches, and their numbers come again; its sink is "
            "not one of eoslog's, and may take such a batch for one that it has. Begin with a new checkpoint"
        )
    end = standing.checkpoint.planned_if_kept(batch)
    if end is None or standing.completed is None or batch > standing.completed:
        kept = [number for number in standing.planned if number <= (standing.completed or -1)]
        said = f"{kept[0]} to {kept[-1]}" if kept else "none"
        raise NotEditable(f"--to-batch {batch}: the checkpoint has done batches {said}")
    check_state(standing.checkpoint, batch)
    if any(text != "-" and not source_position(text).offsets for text in end.sources):
        raise NotEditable(
            "the query keeps state and has a source that reads no topics, whose own log has later batches: "
            "it cannot go back. Begin with a new checkpoint"
        )
    return edit(standing, kind, end, dict.fromkeys(behind(standing.checkpoint, batch)))


def order(changes: Texts) -> list[LogFile]:
    """In which order files are changed, so that Spark takes a checkpoint that is changed in part for none
    that is right: later batches go first, and their ends before the notes that they are done."""

    def rank(file: LogFile) -> tuple[int, int]:
        log, batch = file
        if changes[file] is None:
            return (0 if log == "offsets" else 1), -batch
        return _WRITTEN.get(log, 2), batch

    return sorted(changes, key=rank)


def order_back(changes: Texts) -> list[LogFile]:
    """The order in which an edit is taken back: what is done is noted again before later batches are
    there."""
    return sorted(changes, key=lambda file: (file[0] == "offsets", file[1]))


def edit(standing: Standing, kind: str, end: Planned, after: Texts) -> Edit:
    """An edit that leaves these texts; those before it are read."""
    before = {(log, batch): standing.checkpoint.text(f"{log}/{batch}") for log, batch in after}
    return Edit(kind, end, before, after)


def behind(checkpoint: Checkpoint, batch: int) -> list[LogFile]:
    """What Spark's logs have of later batches."""
    return [(log, n) for log in ("offsets", "commits") for n in checkpoint.batches(log) if n > batch]


def _end_of(
    last: Planned,
    number: int,
    ends: Mapping[SourcePlace, int],
    today: tuple[Mapping[str, str], Mapping[TopicPartition, int]],
    cluster: str | None,
    left: Mapping[SourcePlace, int] = MappingProxyType({}),
) -> str:
    """A source's line with new ends. `today`: topics' ids and leader epochs. Where no offset rises its leader
    epoch is kept: a later epoch serves as well. A higher offset was in the log in today's."""
    text = last.sources[number]
    mine = _of(number, ends)
    ids, now = today[0], {tp: epoch for tp, epoch in today[1].items() if tp in mine and is_eoslog(text)}
    position = source_position(text)
    if cluster is not None and (mine or position.left.offsets):
        there = position.left.moved(_of(number, left), *today, position.cluster)
        moved = to_json(mine, ids, cluster, now, left=there) if is_eoslog(text) else to_json(mine)
        return json.dumps(moved, separators=(",", ":"))
    if mine == position.offsets:
        return text
    known = {**{topic: ids[topic] for topic, _ in mine if position.ids and topic in ids}, **position.ids}
    stood = position.back_in(mine, known)
    risen = {tp for tp, at in mine.items() if at > stood.offsets.get(tp, -1)}
    epochs = {tp: e for tp, e in stood.epochs.items() if tp in mine.keys() - risen}
    epochs |= {tp: e for tp, e in now.items() if tp in risen}
    return json.dumps(to_json(mine, known, position.cluster, epochs, left=stood.left), separators=(",", ":"))


def _of(number: int, places: Mapping[SourcePlace, int]) -> Offsets:
    """The offsets of one source."""
    return {(topic, partition): at for (n, topic, partition), at in places.items() if n == number}


def _check_no_shadow(standing: Standing, last: Planned, lines: Sequence[str]) -> None:
    """Raise NotEditable if a shadow's batch were to end elsewhere than at a decision of the other query."""
    sink = None if standing.note is None else standing.note.sink
    of = [cut.sink for cut in last.shadows() if cut.sink != sink]
    if of and tuple(lines) != last.sources:
        raise NotEditable(
            f"this is the checkpoint of a shadow of the query with transactional.id={of[0]}: its batches end "
            f"at that query's decisions. Nothing was changed. Begin the shadow anew, {ANEW}"
        )


def commit_after(checkpoint: Checkpoint, batch: int) -> str:
    """What Spark notes when a batch without state is done: as for the batch before."""
    return checkpoint.text(f"commits/{batch - 1}") or _EMPTY_COMMIT


def check_state(checkpoint: Checkpoint, batch: int) -> None:
    """Raise NotEditable unless the state at the end of the batch, Spark's version `batch + 1`, is there."""
    missing = [
        folder for folder in _state_folders(checkpoint, "state") if not _has(checkpoint, folder, batch + 1)
    ]
    if missing:
        raise NotEditable(
            f"--to-batch {batch}: the query keeps state, and that at the end of this batch is not there any "
            f"more ({missing[0]}). Name a later batch, or begin with a new checkpoint"
        )


def _has(checkpoint: Checkpoint, folder: str, version: int) -> bool:
    return any(_version(name) == version for name in checkpoint.names(folder))


def _version(name: str) -> int:
    """The version of a file of the state store: `8.delta`, `8.snapshot`, `8.zip`, `8_<id>.changelog`; -1: it
    is another file."""
    digits = name.partition(".")[0].partition("_")[0]
    return int(digits) if digits.isdecimal() and "." in name and not name.endswith(".crc") else -1


def _state_folders(checkpoint: Checkpoint, folder: str) -> list[str]:
    """The folders that hold versions of state: operator, partition and, for joins, store."""
    names = [name for name in checkpoint.names(folder) if not name.startswith((".", "_"))]
    if any(_version(name) >= 0 for name in names):
        return [folder]
    found: list[str] = []
    for name in names:
        if "." not in name:
            found += _state_folders(checkpoint, f"{folder}/{name}")
    return found
