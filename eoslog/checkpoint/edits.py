"""An edit of a checkpoint: which files of Spark's logs it changes, and how.

After an edit the newest batch of both logs is one that the query has written, with the end offsets that the
edit sets. The next start plans the batch after it, from there. Only a batch that is planned and not written
is removed. A query with state goes back by removing batches: the state at the end of a batch is Spark's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.standing import NextStart, SourcePlace, Standing, position_of
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.spark_logs import (
    VOID,
    Planned,
    entries_of,
    is_eoslog,
    source_position,
    with_ends,
)
from eoslog.connector.commit.begin import check_start
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.offsets import Left, to_json

LogFile = tuple[str, int]
"""A log (offsets, commits, or a file source's own, as sources/0) and a batch in it."""
Texts = Mapping[LogFile, str | None]
"""The texts of files; None: the file is not there."""
_WRITTEN = {"offsets": 3, "commits": 4}
"""In which order files are written: those of the sources' own logs before what refers to them."""
_COMPACTED = 10
"""Spark compacts a file source's log every so many entries (spark.sql.streaming.fileSource.log)."""
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
    *,
    cluster: str | None = None,
) -> Edit:
    """An edit that sets the ends of the last written batch. `ids`: of topics that the batch does not have.
    `cluster`: the ends are of this one, and so are the ids."""
    last = position_of(standing)
    old = standing.checkpoint.text(f"offsets/{last.batch_id}") or ""
    lines = [_end_of(last, number, ends, ids, cluster) for number in range(len(last.sources))]
    _check_no_shadow(standing, last, lines)
    text = with_ends(old, lines)
    after: dict[LogFile, str | None] = {("offsets", last.batch_id): text}
    if standing.next_start is NextStart.FINISH:
        after["commits", last.batch_id] = _commit_after(standing.checkpoint, last.batch_id)
    after |= dict.fromkeys(_behind(standing.checkpoint, last.batch_id))
    return _edit(standing, kind, Planned.parse(last.batch_id, text), after)


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
    _check_state(standing.checkpoint, batch)
    if any(text != "-" and not source_position(text).offsets for text in end.sources):
        raise NotEditable(
            "the query keeps state and has a source that reads no topics, whose own log has later batches: "
            "it cannot go back. Begin with a new checkpoint"
        )
    return _edit(standing, kind, end, dict.fromkeys(_behind(standing.checkpoint, batch)))


def rebuilt(standing: Standing, marked: Planned | None = None) -> Edit:
    """An edit that writes again what the checkpoint has lost of the query's last written batch: its entry of
    the offset log, and for a query without state what Spark has to find before it. The next start runs that
    batch again; its rows are dropped. Of a batch that is done only file sources' own logs may be lost. Then
    the next start plans the batch after it. `marked`: the batch as the table of a fan-out tells it; None: as
    the sink's decision does. Raises NotEditable, CheckpointCopied."""
    was = _decision_of(standing).batch if marked is None else _batch_of(standing, marked)
    checkpoint, batch, by = standing.checkpoint, was.batch_id, "sink" if marked is None else "table"
    if standing.sink is not None and marked is None:
        check_start(standing.sink, standing.decision, was, standing.starts)
    there = checkpoint.planned_if_kept(batch)
    if there is not None and there.digest == was.digest:
        raise NotEditable(f"nothing was changed: the checkpoint has the plan of batch {batch}")
    planned = marked or _plan_of(_decision_of(standing))
    if there is not None and standing.completed is not None and standing.completed >= batch:
        lost = _logs_of_files(checkpoint, planned)
        if standing.completed > batch or there != planned or not lost:
            raise NotEditable(
                f"the checkpoint has done batch {batch} with other source offsets than the {by} has it, so "
                "it is another query's, or one of two copies. Bring the right checkpoint back"
            )
        later = dict.fromkeys(_behind(checkpoint, batch))  # planned from what the sources' logs have lost
        return replace(_edit(standing, "rebuild", planned, {**lost, **later}), was=was)
    if standing.newest is not None and standing.newest.batch_id > batch:
        raise NotEditable(
            f"the checkpoint is at batch {standing.newest.batch_id}, and the last one of the {by} is batch "
            f"{batch}: nothing that it has is missing"
        )
    after = {("offsets", batch): _entry(checkpoint, planned), **_logs_of_files(checkpoint, planned)}
    if batch > 0 and not _is_done(checkpoint, batch - 1):
        after |= _before(standing, planned, is_dropped=marked is None)
    elif batch > 0:
        _check_state(checkpoint, batch - 1)
    return replace(_edit(standing, "rebuild", planned, after), was=was)


def _decision_of(standing: Standing) -> Decision:
    decision = None if standing.decision is None else standing.decision.of_query
    if decision is None or decision.batch.query_id != standing.query_id:
        raise NotEditable(
            "the sink's last decision is not one of this query, or there is none. If the query is a fan-out, "
            "name it and one of its tables: --fanout NAME --table TABLE"
        )
    return decision


def _batch_of(standing: Standing, marked: Planned) -> Batch:
    if marked.entries is None and marked.file_logs():
        raise NotEditable(
            f"which rows batch {marked.batch_id} has read is not in the table's mark alone: a source has a "
            "log of its own in the checkpoint (sources/). Bring the right checkpoint back"
        )
    return Batch(standing.query_id, marked.batch_id, marked.digest)


def _plan_of(decision: Decision) -> Planned:
    """The plan that a decision holds. Raises NotEditable unless it is all of it."""
    if not decision.ends:
        raise NotEditable(
            f"the decision of {decision.batch} does not hold its plan: an eoslog has made it that did not "
            "write it there, or there was no room. Bring the right checkpoint back, or start with a new one"
        )
    planned = Planned.parse(decision.batch.batch_id, decision.ends)
    if planned.digest != decision.batch.digest:
        raise NotEditable(
            f"which rows {decision.batch} has read is not in its decision alone: a source has a log of its "
            "own in the checkpoint (sources/), which lacks them. Bring the right checkpoint back"
        )
    return planned


def _is_done(checkpoint: Checkpoint, batch: int) -> bool:
    return all(checkpoint.text(f"{log}/{batch}") is not None for log in ("offsets", "commits"))


def _before(standing: Standing, planned: Planned, *, is_dropped: bool) -> Texts:
    """Spark looks at the batch before as well. It has lost its entries, too, and their rows are written: it
    ends where this one does. `is_dropped`: the sink drops this batch, whatever it reads then."""
    batch = planned.batch_id - 1
    if not is_dropped:
        raise NotEditable(
            f"the checkpoint has lost batch {batch} as well, and a table tells the plan of its last batch "
            "alone. Bring the right checkpoint back, or give the fan-out a new name and a new checkpoint"
        )
    if standing.is_stateful:
        raise NotEditable(
            f"the query keeps state, and the checkpoint has lost batch {batch} as well: the state after it "
            "cannot be made again. Bring the right checkpoint back, or restore it from the topic of "
            "state.topic: eoslog checkpoint restore"
        )
    checkpoint = standing.checkpoint
    _check_read_before(checkpoint, planned)
    entry = _entry(checkpoint, _begun(planned))
    return {("offsets", batch): entry, ("commits", batch): _commit_after(checkpoint, batch)}


def _begun(planned: Planned) -> Planned:
    """The plan with its file sources where they began: which files a batch reads is part of what it is."""
    lines = list(planned.sources)
    for name, end in planned.file_logs().items():
        read = [
            int(path.rpartition("/")[2])
            for path in planned.entries or {}
            if path.startswith(f"sources/{name}/")
        ]
        at = planned.names.index(name) if planned.names else int(name)
        begin = min(read, default=end + 1) - 1
        lines[at] = json.dumps({"logOffset": begin}, separators=(",", ":")) if begin >= 0 else VOID
    return replace(planned, sources=tuple(lines))


def _check_read_before(checkpoint: Checkpoint, planned: Planned) -> None:
    """Raise NotEditable unless file sources' own logs have what the batch before has read: a start that was
    refused may have planned that batch anew, with files that have come since and are not written."""
    numbers = {number for number, _ in NotedPlaces.read(checkpoint).batches}
    begins = _begun(planned).file_logs()
    there = all(
        checkpoint.text(f"sources/{name}/{at}{kind}") is not None
        for name, at in begins.items()
        for kind in [".compact" if (at + 1) % _COMPACTED == 0 else ""]
    )
    if begins and not (there and planned.batch_id - 1 in numbers):
        raise NotEditable(
            f"the checkpoint does not have batch {planned.batch_id - 1} as it was decided, and which files "
            "that one has read nobody else knows. Bring the right checkpoint back, or start with a new one "
            "and the files that are not in the sink's topics"
        )


def _entry(checkpoint: Checkpoint, planned: Planned) -> str:
    """A batch's file of the offset log. Settings of the session are those of the newest batch before."""
    version, _, *lines = planned.ends.split("\n")
    before = [n for n in checkpoint.batches("offsets") if n < planned.batch_id]
    text = checkpoint.text(f"offsets/{before[-1]}") if before else None
    settings = json.loads(text.splitlines()[1] or "{}") if text else {}
    head = json.dumps({**settings, **planned.times}, separators=(",", ":"))
    return "\n".join([version, head, *lines])


def _logs_of_files(checkpoint: Checkpoint, planned: Planned) -> dict[LogFile, str | None]:
    """The entries of file sources' logs that are not there as the batch has read them. Later ones are
    removed: their files are found again. Raises NotEditable where an entry is one that Spark compacts."""
    texts: dict[LogFile, str | None] = {}
    for path, lines in (planned.entries or {}).items():
        log, _, number = path.rpartition("/")
        compact = checkpoint.text(f"{path}.compact")
        known = entries_of(compact or checkpoint.text(path) or "", int(number))
        if sorted(known) == sorted(lines):
            continue
        if compact is not None or (int(number) + 1) % _COMPACTED == 0:
            raise NotEditable(
                f"{path}.compact has the files of all batches before as well, and cannot be made again. "
                "Bring the right checkpoint back"
            )
        texts[log, int(number)] = "\n".join(["v1", *lines])
    for source, end in planned.file_logs().items():
        log = f"sources/{source}"
        later = [int(n) for name in checkpoint.names(log) if (n := name.partition(".")[0]).isdecimal()]
        texts |= {(log, number): None for number in later if number > end}
    return texts


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


def _edit(standing: Standing, kind: str, end: Planned, after: Texts) -> Edit:
    before = {(log, batch): standing.checkpoint.text(f"{log}/{batch}") for log, batch in after}
    return Edit(kind, end, before, after)


def _behind(checkpoint: Checkpoint, batch: int) -> list[LogFile]:
    return [(log, n) for log in ("offsets", "commits") for n in checkpoint.batches(log) if n > batch]


def _end_of(
    last: Planned,
    number: int,
    ends: Mapping[SourcePlace, int],
    ids: Mapping[str, str],
    cluster: str | None,
) -> str:
    """A source's line with new ends. Leader epochs are kept where no offset rises: a later epoch serves as
    well. None is known of a higher offset, and without it the log is compared by its ends alone."""
    text = last.sources[number]
    mine = {(topic, partition): at for (n, topic, partition), at in ends.items() if n == number}
    position = source_position(text)
    if cluster is not None and mine:
        left = Left(position.left.offsets)  # as the source has it there: ids and epochs are the old cluster's
        moved = to_json(mine, ids, cluster, left=left) if is_eoslog(text) else to_json(mine)
        return json.dumps(moved, separators=(",", ":"))
    if mine == position.offsets:
        return text
    epochs = {tp: e for tp, e in position.epochs.items() if tp in mine and mine[tp] <= position.offsets[tp]}
    known = {**{topic: ids[topic] for topic, _ in mine if position.ids and topic in ids}, **position.ids}
    left = position.back_in(mine, known).left
    return json.dumps(to_json(mine, known, position.cluster, epochs, left=left), separators=(",", ":"))


def _check_no_shadow(standing: Standing, last: Planned, lines: Sequence[str]) -> None:
    """Raise NotEditable if a shadow's batch were to end elsewhere than at a decision of the other query."""
    sink = None if standing.note is None else standing.note.sink
    of = [cut.sink for cut in last.shadows() if cut.sink != sink]
    if of and tuple(lines) != last.sources:
        raise NotEditable(
            f"this is the checkpoint of a shadow of the query with transactional.id={of[0]}: its batches end "
            "at that query's decisions. Nothing was changed. Begin the shadow anew, with a new checkpoint"
        )


def _commit_after(checkpoint: Checkpoint, batch: int) -> str:
    """What Spark notes when a batch without state is done: as for the batch before."""
    return checkpoint.text(f"commits/{batch - 1}") or _EMPTY_COMMIT


def _check_state(checkpoint: Checkpoint, batch: int) -> None:
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
