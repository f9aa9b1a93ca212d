"""The errors that stop a batch. Each names the batch or the transactions, and says what to do.

They are pickled with their message alone, because Spark passes them between processes.
"""

from eoslog.connector.commit.winner import Winner
from eoslog.errors import EoslogError


class CommitFault(EoslogError):
    """Base: a batch could not be begun, decided or finished."""


class SinkFenced(CommitFault):
    """Another driver owns the sink: this one must stop."""


class BatchRefused(CommitFault):
    """The batch was not decided, and never will be by this attempt; a replay is safe."""


class OutcomeUnknown(CommitFault):
    """The decision was sent and no answer came. The next start finds out whether it was made."""


class Unfinished(CommitFault):
    """The batch is decided, but not all of its rows are visible yet. The next start makes them visible."""


class ParticipantsLost(CommitFault):
    """The batch is decided, and the broker has aborted rows of it. That cannot be repaired silently.

    `winners`: the lost ones, if it is certain that each of them was aborted; else empty. `unfinished`:
    whether other winners are still open. `held`: lost ones that are open, to be aborted once the loss is
    accepted.
    """

    def __init__(
        self,
        message: str,
        winners: tuple[Winner, ...] = (),
        *,
        unfinished: bool = False,
        held: tuple[Winner, ...] = (),
    ) -> None:
        super().__init__(message)
        self.winners, self.unfinished, self.held = winners, unfinished, held


class ReplayDiffers(CommitFault):
    """A decided batch came again with other rows. None of these were written."""


_SAME_WRITE = (
    "Is it the same write, which does not make the same rows twice, or has a power cut taken what the batch "
    "was to read? The rows of the first time are visible: leave this write out, once. Rows that came only "
    "now are then not written, and those that came only then are written again by later batches"
)


class TokenReused(CommitFault):
    """Other rows came under a write.token whose rows are already written. The other rows were not written."""

    advice = (
        "Are these other rows, of a second write under one token, or of a checkpoint that was created again, "
        "so that batch ids count from 0 again? Give them another write.token, with another text before its "
        "number. Was the checkpoint restored from an older copy? Bring the right checkpoint back: under "
        f"another token rows would be written again that are visible. {_SAME_WRITE}"
    )


class OtherRowsInBatch(CommitFault):
    """A write without write.token in foreachBatch was given other rows than it has written in this batch."""

    advice = (
        "Is it a second write to the same place? Leave the first one as it is, and give this one a token "
        'with a name of its own: .option("write.token", f"NAME-{batch_id}"). Was the checkpoint restored '
        "from an older copy? Bring the right checkpoint back: rows that are visible may come again in later "
        f"batches. {_SAME_WRITE}"
    )


class TokenForgotten(CommitFault):
    """A write.token is older than its sink's memory: it is unknown whether its rows were written."""

    advice = (
        "If its rows are not in the topic, write them under another write.token, with another text before "
        "its number; if they are, leave this write out"
    )


class MarkersMissing(CommitFault):
    """The batch is committed, but readers cannot read all of it: the cluster has lost markers."""


class CheckpointMismatch(CommitFault):
    """The checkpoint and the sink's decisions contradict each other."""

    advice = (
        "Rows would be lost or doubled. Was the checkpoint restored from an older copy, or has a power cut "
        "taken its last files? eoslog checkpoint rebuild writes them again, as the decision has them. Do two "
        "queries use copies of one? Bring the right checkpoint back; or start with a new one, at the source "
        "offsets of the last decided batch: eoslog checkpoint rebuild --transactional-id writes it (or "
        "startingOffsets=committed, if the query had transactional.id or kafka.group.id)"
    )


class CheckpointCopied(CheckpointMismatch):
    """The sink's last decision is of a start that this checkpoint does not know: a copy of it is in use."""


class CheckpointOlder(CheckpointMismatch):
    """The sink has decided later batches than the checkpoint knows: the checkpoint was set back."""


class DecisionGone(CommitFault):
    """The group's offsets show that a batch is decided, but the sink does not have its decision."""

    advice = (
        "Was transactional.id changed, or did another query use it? Give the old transactional.id back; or, "
        "if the decision is gone, start with a new checkpoint and startingOffsets=committed"
    )


class RowsGone(CommitFault):
    """The cluster does not have rows any more that the sink has written with a batch that is done."""


class StartsElsewhere(CommitFault):
    """A query with a new checkpoint does not begin where the query before it, or another one, ended."""

    advice = (
        "If its checkpoint was lost, remove this one and write that one again (eoslog checkpoint rebuild "
        "--transactional-id). Or, also if this query takes another one's place, start it with another new "
        "checkpoint and startingOffsets=committed, with kafka.group.id and transactional.id in source and "
        "sink."
    )


class RunsDifferently(CommitFault):
    """After a restore a decided batch was run again for its state, and is not what it was."""

    advice = (
        "Begin the query anew, with a new checkpoint and without state (the start names the word), and "
        "save the state of every batch from now on: state.every.batches=1."
    )


class TakenOver(CommitFault):
    """Another query has replaced this one, or this one was renamed: rows that it would write are written."""


class SinkChanged(CommitFault):
    """The query has a new sink, and the old one has decided a batch that Spark has not noted as done."""


class DecisionElsewhere(CommitFault):
    """The sink keeps its decisions on another topic than decision.topic names: they would be overlooked."""

    advice = (
        "Give that topic as decision.topic until the last batch is complete. To move on to another one then, "
        "use another transactional.id with a new checkpoint, and as startingOffsets the last line of the "
        "newest file in the old one's offsets/ that is in its commits/ as well"
    )


class DecisionDamaged(CommitFault):
    """The stored decision is incomplete, a later version's or not eoslog's: it is unknown what it decided."""

    advice = (
        "Nothing was written. If another program uses the group, give a new query a transactional.id of its "
        "own. If somebody has reset its offsets, and you know that the sink's last batch is complete, delete "
        "the group and start again"
    )
