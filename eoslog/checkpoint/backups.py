"""The backup of an edit, in the checkpoint's folder `eoslog/`: what it changes, and how all of it was before.

It is written before anything is changed, and says how far the edit is. So it is also the journal from which
an interrupted edit is taken back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from eoslog.checkpoint.edit_numbers import Editor, NotEditable, newest_number, numbered, numbers
from eoslog.checkpoint.edits import Edit, LogFile
from eoslog.checkpoint.standing import Standing, position_of
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_places import NOTED_PLACES
from eoslog.connector.checkpoint.noted_sink import NOTED_SINK
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.task_reports import Batch
from eoslog.protocol.topic_partitions import TopicPartition

_VERSION = 1


class EditState(StrEnum):
    """How far an edit is."""

    BEGUN = "begun"
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(frozen=True)
class Backup:
    """One edit. `sequence`: of the decision before it (0: none). `was` and `becomes`: the batch at whose end
    the query stands before and after it. `group`: the offsets and metadata
    that it replaces; None: the partition had none. Texts are as in edits.py. `cluster`: the one to which the
    query moves, where decision and group are; None: it stays. `note`: of its sink, before that. `places`: the
    note of where its rows are; None: there was none. `by`: the process that has written the state."""

    name: str
    kind: str
    at: str
    state: EditState
    sequence: int
    was: Batch
    becomes: Batch
    group: Mapping[TopicPartition, tuple[int, str] | None]
    before: Mapping[LogFile, str | None]
    after: Mapping[LogFile, str | None]
    cluster: str | None = None
    note: str | None = None
    by: Editor | None = None
    places: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the edit, or taking it back, was interrupted."""
        return self.state in (EditState.BEGUN, EditState.UNDOING)

    @property
    def least(self) -> int:
        """The lowest batch of Spark's two logs that it changes; if it changes none of them, its own batch."""
        changed = [batch for log, batch in self.before if log in ("offsets", "commits")]
        return min(changed, default=self.becomes.batch_id)

    @property
    def at_work(self) -> int | None:
        """The pid of another process on this machine that carries it out, or takes it back, just now."""
        return self.by.pid if self.is_open and self.by is not None and self.by.works_here else None

    @property
    def elsewhere(self) -> str | None:
        """The other machine on which it was begun, if it is not known to have ended there."""
        return self.by.host if self.is_open and self.by is not None and self.by.elsewhere else None

    @property
    def has_moved(self) -> bool:
        """Whether it has moved the query to another cluster."""
        return self.cluster is not None and self.state is EditState.DONE

    @property
    def came_from(self) -> str | None:
        """The cluster that it has moved the query away from. None: none, or it is not known."""
        found = None if self.cluster is None or self.note is None else json.loads(self.note)["cluster"]
        return None if found is None else str(found)

    @property
    def way_back(self) -> str:
        """The command that takes it back."""
        there = "" if self.cluster is None else f", with --bootstrap-server of the cluster {self.cluster}"
        return f"eoslog checkpoint undo{there}"

    def put(self, checkpoint: Checkpoint, state: EditState) -> Backup:
        """Write it with another state. Raises CheckpointUnreadable."""
        now = replace(self, state=state, by=Editor.this())
        checkpoint.note(now.name, now.text())
        return now

    def text(self) -> str:
        """The reverse of parse()."""
        return json.dumps(
            {
                "version": _VERSION,
                **asdict(self),
                "group": [[*tp, kept] for tp, kept in self.group.items()],
                "before": [[*file, text] for file, text in self.before.items()],
                "after": [[*file, text] for file, text in self.after.items()],
            },
            indent=1,
        )

    @classmethod
    def parse(cls, text: str) -> Backup:
        """Raises ValueError, KeyError, TypeError."""
        found: dict[str, Any] = json.loads(text)
        if found.pop("version") != _VERSION:
            raise ValueError("a later version of eoslog has written it; use that version")
        if found.get("by") is not None:
            found["by"] = Editor(*found["by"])
        for name in ("was", "becomes"):
            found[name] = Batch(*found[name])
        found["group"] = {(t, p): None if kept is None else tuple(kept) for t, p, kept in found["group"]}
        for name in ("before", "after"):
            found[name] = {(log, batch): text for log, batch, text in found[name]}
        return cls(**found | {"state": EditState(found["state"])})


def backup_of(
    name: str, standing: Standing, edit: Edit, group: list[TopicPartition], cluster: str | None = None
) -> Backup:
    """The backup of an edit that is about to begin, under a name that it has claimed; `group`: the partitions
    whose offsets it commits; `cluster`: the one to which it moves the query."""
    last, known = standing.decision, standing.committed
    kept = {tp: (known[tp].offset, known[tp].metadata) if tp in known else None for tp in group}
    return Backup(
        name=name,
        kind=edit.kind,
        at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        state=EditState.BEGUN,
        sequence=last.sequence if last else 0,
        was=edit.was or batch_of(standing, position_of(standing)),
        becomes=batch_of(standing, edit.end),
        group=kept,
        before=edit.before,
        after=edit.after,
        cluster=cluster,
        note=standing.checkpoint.noted(NOTED_SINK) if cluster is not None else None,
        places=standing.checkpoint.noted(NOTED_PLACES),
    )


def batch_of(standing: Standing, end: Planned) -> Batch:
    """What the sink has decided last if the query stands at the end of a batch."""
    return Batch(standing.query_id, end.batch_id, end.digest)


def newest_backup(checkpoint: Checkpoint) -> Backup | None:
    """The last edit; None: there was none. Raises CheckpointUnreadable."""
    number = newest_number(checkpoint)
    return _read(checkpoint, numbered(number)) if number else None


def all_backups(checkpoint: Checkpoint) -> list[Backup]:
    """All edits, in order. Raises CheckpointUnreadable."""
    return [_read(checkpoint, numbered(number)) for number in numbers(checkpoint)]


def backups_since(checkpoint: Checkpoint, name: str) -> list[Backup]:
    """The backup of this name and all later ones, in order. Raises CheckpointUnreadable."""
    there = numbers(checkpoint)
    if name not in map(numbered, there):
        said = ", ".join(map(numbered, there)) or "none"
        raise CheckpointUnreadable(checkpoint.location, f"there is no backup {name}", f"it has {said}")
    found = all_backups(checkpoint)
    return found[[one.name for one in found].index(name) :]


def check_not_moved(checkpoint: Checkpoint, batch: int) -> None:
    """Raise NotEditable if the query has been moved to another cluster since this batch, by move-cluster or
    the option cluster.moved.to: offsets of one mean nothing in the other. Raises CheckpointUnreadable."""
    for backup in all_backups(checkpoint):
        if backup.has_moved and batch < backup.becomes.batch_id:
            raise NotEditable(
                f"the ends of batch {batch} are of another cluster: the query was moved since ({backup.name})"
            )
    then, now = checkpoint.planned_if_kept(batch), checkpoint.newest_planned()
    if then is not None and now is not None and now.clusters() and then.clusters() - now.clusters():
        raise NotEditable(
            f"the ends of batch {batch} are of another cluster ({', '.join(sorted(then.clusters()))}): the "
            "query was moved since (cluster.moved.to). If its offsets are the same there, give them with --to"
        )


def _read(checkpoint: Checkpoint, name: str) -> Backup:
    try:
        return Backup.parse(checkpoint.noted(name) or "")
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnreadable(checkpoint.location, f"eoslog/{name}: {error}") from error


def interrupted(standing: Standing) -> Backup | None:
    """The last edit, if it was interrupted and the query has not gone on since."""
    last = newest_backup(standing.checkpoint)
    return last if last is not None and last.is_open and not has_gone_on(standing, last) else None


def moving_to(checkpoint: Checkpoint) -> str | None:
    """The cluster to which an interrupted edit was to move the query. Raises CheckpointUnreadable."""
    last = newest_backup(checkpoint)
    return last.cluster if last is not None and last.is_open else None


def has_gone_on(standing: Standing, backup: Backup) -> bool:
    """Whether the query has written a batch since the edit began, under whatever name, or another one has
    taken its place.

    Decisions tell it of one sink alone, and only until the cluster forgets them."""
    if _is_done_since(standing, backup):
        return True
    without = standing.sink is None or backup.cluster is not None  # it may have gone on where it was
    if without and _has_other_files(standing, backup):
        return True
    if standing.sink is None or backup.cluster not in (None, standing.cluster_id):
        return False
    return _is_decided_since(standing, backup)


def _is_decided_since(standing: Standing, backup: Backup) -> bool:
    """Whether neither the edit nor who took it back has made the sink's last decision of a query. What
    another query has decided is not undone: the query would write its rows again."""
    last = standing.decision
    if last is None:  # on a cluster that has forgotten it nothing is to be taken back
        return backup.cluster is None and backup.sequence != 0
    if backup.cluster is None and _left_by(standing) is not None:
        return True
    made = last.of_query
    if made is not None and _is_one_of(made.batch, backup):
        return False
    is_own = made is not None and made.batch.query_id == standing.query_id
    is_as_before = backup.is_open and last.sequence == backup.sequence
    return not is_as_before or (is_own and backup.cluster is None)


def _left_by(standing: Standing) -> str | None:
    """The query that has left the sink for another one, if this checkpoint does not know of that."""
    left = None if standing.decision is None else standing.decision.left
    return None if left is None or left.word in standing.starts.words else left.query_id


def taken_by(standing: Standing, backup: Backup) -> str | None:
    """The query that has taken the place of this one since the edit began. None: none is known."""
    if not _is_decided_since(standing, backup):
        return None
    made = None if standing.decision is None else standing.decision.of_query
    if made is not None and made.batch.query_id != standing.query_id:
        return made.batch.query_id
    return _left_by(standing)


def _is_done_since(standing: Standing, backup: Backup) -> bool:
    """Whether a batch is noted as done that neither the edit nor who took it back in part has noted: one
    behind the edit's, or the one whose plan it has written again."""
    end = backup.becomes.batch_id
    is_rebuilt = backup.was == backup.becomes and ("offsets", end) in backup.before
    for batch in standing.checkpoint.batches("commits"):
        file = ("commits", batch)
        known = {backup.after.get(file), backup.before.get(file) if backup.is_open else None}
        if batch >= end + (not is_rebuilt) and standing.checkpoint.text(f"commits/{batch}") not in known:
            return True
    return False


def _is_one_of(decided: Batch, backup: Backup) -> bool:
    """Whether the sink has decided what the edit found, or what it was to leave."""
    return any(decided.repeats(one) for one in (backup.was, backup.becomes))


def _has_other_files(standing: Standing, backup: Backup) -> bool:
    """Whether a file of the logs is new since the edit: behind its batches, or neither as before nor as
    after."""
    least = backup.least
    for log in ("offsets", "commits"):
        for batch in standing.checkpoint.batches(log):
            file = (log, batch)
            if file in backup.before:
                known = (backup.before[file], backup.after[file])
                if standing.checkpoint.text(f"{log}/{batch}") not in known:
                    return True
            elif batch > least:
                return True
    return False
