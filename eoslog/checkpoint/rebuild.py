"""Writes again what a checkpoint has lost, from the decision on the query's last batch: the batch's plan, or
all that Spark has to find.

The next start runs that batch again, and its rows are dropped. What nobody else knows is refused: files that
a source has noted in the checkpoint alone, and state.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import NamedTuple

from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.edits import Edit, LogFile, Texts, behind, check_state, commit_after, edit
from eoslog.checkpoint.standing import Standing
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import NOTES, Checkpoint
from eoslog.connector.checkpoint.new_checkpoint import starting_at
from eoslog.connector.checkpoint.noted_places import NOTED_PLACES, NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NOTED_SINK, NOTED_STARTS, NotedSink, NotedStarts
from eoslog.connector.checkpoint.spark_logs import VOID, Planned, entries_of, is_eoslog
from eoslog.connector.commit.begin import check_start
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.runner import last_decision
from eoslog.connector.sink.noted_rows import undecided_behind
from eoslog.connector.sink.start_of_run import cluster_id

Files = dict[str, str]
"""The texts of files, by name."""
_COMPACTED = 10
"""Spark compacts a file source's log every so many entries (spark.sql.streaming.fileSource.log)."""


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
        later = dict.fromkeys(behind(checkpoint, batch))  # planned from what the sources' logs have lost
        return replace(edit(standing, "rebuild", planned, {**lost, **later}), was=was)
    if standing.newest is not None and standing.newest.batch_id > batch:
        raise NotEditable(
            f"the checkpoint is at batch {standing.newest.batch_id}, and the last one of the {by} is batch "
            f"{batch}: nothing that it has is missing"
        )
    after = {("offsets", batch): _entry(checkpoint, planned), **_logs_of_files(checkpoint, planned)}
    if batch > 0 and not _is_done(checkpoint, batch - 1):
        after |= _before(standing, planned, is_dropped=marked is None)
    elif batch > 0:
        check_state(checkpoint, batch - 1)
    return replace(edit(standing, "rebuild", planned, after), was=was)


class Lost(NamedTuple):
    """A query whose checkpoint is lost as a whole: its sink, and its options topic ("": its rows name their
    topics) and decision.topic."""

    sink: Sink
    topic: str
    decisions: str


def without_batches(cluster: Cluster, checkpoint: Checkpoint, lost: Lost) -> Files:
    """What a checkpoint that is lost as a whole has had beside its batches, as the sink's last decision tells
    it: the query's id, and eoslog's notes of its starts, of where its rows are, and of the sink. In this
    order: a start that meets a part of them stops. Raises NotEditable unless the folder is empty, and the
    decision is this query's, which goes on where it is."""
    sink, _, decisions = lost
    last = last_decision(cluster, sink, decisions)
    decision = None if last is None else last.of_query
    if last is None or decision is None:
        raise NotEditable(
            f"sink {sink.id}: no query has decided a batch here (decision.topic {decisions}), or the cluster "
            "has forgotten it. Correct the names; or start the query with a new checkpoint"
        )
    if said := written_elsewhere(lost, decision):
        raise NotEditable(said)
    _check_goes_on(cluster, sink, last, decision)
    query, number = decision.batch.query_id, decision.batch.batch_id
    _check_empty(checkpoint, query)
    starts = () if decision.start is None else decision.start.history
    noted = ((number, decision.places),)
    # The plan is written without the batch's beginning: if its rows get lost, it does not write them again.
    earlier = (*decision.places, *decision.older) if number else decision.older
    places = NotedPlaces(noted, earlier, digest=decision.batch.digest, decided=True)
    return {
        "metadata": json.dumps({"id": query}, separators=(",", ":")),
        f"{NOTES}/{NOTED_STARTS}": NotedStarts(starts).text(),
        f"{NOTES}/{NOTED_PLACES}": places.text(),
        f"{NOTES}/{NOTED_SINK}": NotedSink(sink.id, cluster_id(cluster), number, None, decisions).text(),
    }


def written_elsewhere(lost: Lost, decision: Decision) -> str:
    """What to say if the query of the decision writes elsewhere; "": it writes here. A copy of a checkpoint
    that was tried out has the same name, and what the copy has read would be missing."""
    start, said = decision.start, lost.topic or "topics that its rows name"
    known = {topic for topic, _ in decision.topics}
    if start is not None and start.topic is not None:
        known = {start.topic}
    if not known or lost.topic in known:
        return ""
    by = "" if start is None else f" on the checkpoint {start.place}"
    return (
        f"sink {lost.sink.id}: a query{by} has decided {decision.batch}, and it writes to "
        f"{', '.join(sorted(known - {''})) or 'topics that its rows name'}, while this one writes to {said}. "
        "Nothing was written. Correct the topic (--topic); if the option was changed since, give the former "
        "topic here, and start the query with the new one. If a copy of the checkpoint was tried out there, "
        "start this query with a new one: its start says how it goes on"
    )


def _check_goes_on(cluster: Cluster, sink: Sink, last: Decision, decision: Decision) -> None:
    """Raise NotEditable if the query of a decision has gone on elsewhere, keeps state that was saved, or has
    decided more than the cluster knows."""
    if last.left is not None and last.left.sink == sink.id:
        raise NotEditable(
            f"sink {sink.id}: its query has gone on on another cluster since batch {last.left.batch_id}, at "
            f"{last.left.time}, and here its rows since then would be written again. Nothing was written. "
            "Give the command again with that cluster's --bootstrap-server; if that one says the same of a "
            "later time, or has no decision of the query, start here with a new checkpoint, "
            f"startingOffsets=committed and start.accepted=left:{last.left.word}"
        )
    if last.left is not None:
        to = f"transactional.id={last.left.sink}" if last.left.sink else "processing.guarantee=at_least_once"
        ends = Planned.parse(decision.batch.batch_id, decision.ends).by_name if decision.ends else {}
        stood = starting_at({name: end for name, end in ends.items() if is_eoslog(end)})
        copied = f", and {stood}, where {decision.batch} ended" if stood else ""
        raise NotEditable(
            f"sink {sink.id}: its query has gone on with {to} since batch {last.left.batch_id}. Give the "
            "transactional.id of now, if it has one; else start with a new checkpoint. If a copy of its "
            f"checkpoint has gone on there, start this one with a new checkpoint{copied}"
        )
    if decision.saved is not None:
        raise NotEditable(
            f"sink {sink.id}: the query keeps state, and has saved it in the topic {decision.saved.topic}. "
            "Restore the checkpoint: eoslog checkpoint restore"
        )
    if undecided := undecided_behind(cluster, sink.id, last):
        raise NotEditable(
            f"sink {sink.id}: later rows than those of its last decision, {decision.batch}, are visible "
            f"({'; '.join(undecided[:5])}): the cluster has lost decisions, and these rows would be written "
            "again. Nothing was changed. Begin with a new checkpoint and startingOffsets=committed: its "
            "start says how it goes on"
        )


def _check_empty(checkpoint: Checkpoint, query: str) -> None:
    """Raise NotEditable if there is more than an earlier rebuild of this query has left that was killed."""
    files = [name for name in checkpoint.files() if name.partition("/")[0] not in ("metadata", NOTES)]
    if files or (checkpoint.text("metadata") is not None and checkpoint.query_id() != query):
        local = "://" not in checkpoint.location
        command = f" ({shlex.join(['rm', '-r', checkpoint.location])})" if local else ""
        raise NotEditable(
            f"checkpoint {checkpoint.location} has files, and one is written anew in an empty folder alone. "
            "If a start that stopped with StartsElsewhere has left them, that start has written nothing: "
            f"remove the folder{command}, and give the command again. Else leave --transactional-id out"
        )


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
    return {("offsets", batch): entry, ("commits", batch): commit_after(checkpoint, batch)}


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
