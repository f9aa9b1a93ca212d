"""The errors that stop a batch. Each names the batch or the transactions, and says what to do.

They are pickled with their message alone, since Spark carries them between processes.
"""

from eoslog.connector.commit.winner import Winner
from eoslog.connector.errors import EoslogError


class CommitFault(EoslogError):
    """Base: a batch could not be begun, decided or finished."""


class SinkFenced(CommitFault):
    """Another driver owns the sink: this one must not go on."""


class BatchRefused(CommitFault):
    """The batch was not decided, and never will be by this attempt; a replay is safe."""


class OutcomeUnknown(CommitFault):
    """The decision was sent and no answer came; the next start finds out and goes on from there."""


class Unfinished(CommitFault):
    """The batch is decided, but not all of its rows are visible yet; the next start sees to it."""


class ParticipantsLost(CommitFault):
    """The batch is decided, and the broker has aborted rows of it. Nobody can repair that silently.

    `winners`: those that are lost for sure, if that is sure of all that are missing. `unfinished`: whether
    others are open still.
    """

    def __init__(self, message: str, winners: tuple[Winner, ...] = (), *, unfinished: bool = False) -> None:
        super().__init__(message)
        self.winners, self.unfinished = winners, unfinished


class ReplayDiffers(CommitFault):
    """Lost rows were to be written again, and Spark gave other rows than the first time. Nothing was."""


class TokenReused(CommitFault):
    """Other rows came under a write.token whose rows are written already. They were not."""

    advice = (
        "Are these other rows, of a second write under one token, or of a checkpoint that was created again, "
        "so that batch ids count from 0 again? Give them another write.token, with another text before its "
        "number. Was the checkpoint restored from an older copy? Bring the right checkpoint back: under "
        "another token rows would be written again that are visible. Is it the same write, which does not "
        "make the same rows twice? Those of the first time are visible: leave this write out, once"
    )


class TokenForgotten(CommitFault):
    """A write.token is older than what its sink remembers: whether it was written is not known."""

    advice = (
        "If its rows are not in the topic, write them under another write.token, with another text before "
        "its number; if they are, leave this write out"
    )


class MarkersMissing(CommitFault):
    """The batch is committed, and readers cannot get at all of it: the cluster has lost markers."""


class CheckpointMismatch(CommitFault):
    """The checkpoint and the sink's decisions tell different stories."""

    advice = (
        "Was the checkpoint restored from an older copy, or do two queries use copies of one? Rows would be "
        "lost or doubled. Bring the right checkpoint back; or start with a new one, at the source offsets of "
        "the last decided batch (startingOffsets=committed, if kafka.group.id was given)"
    )


class CheckpointOlder(CheckpointMismatch):
    """The sink has decided later batches than the checkpoint knows: it was set back."""


class DecisionGone(CommitFault):
    """The group's offsets tell that a batch is decided, and the sink does not know its decision."""

    advice = (
        "Was transactional.id changed, or did another query use it? Give the old transactional.id back; or, "
        "if the decision is gone, start with a new checkpoint and startingOffsets=committed"
    )


class StartsElsewhere(CommitFault):
    """A query with a new checkpoint does not begin where the one before it ended, or where another one
    did."""

    advice = (
        "If its checkpoint was lost, or this query takes another one's place, start it with another new "
        "checkpoint and startingOffsets=committed, with kafka.group.id and transactional.id in source and "
        "sink."
    )


class TakenOver(CommitFault):
    """Another query has taken this one's place, and written what this one would write again."""


class SinkChanged(CommitFault):
    """The sink that the checkpoint was given to has decided a batch that Spark has not noted as done."""


class DecisionTooLarge(CommitFault):
    """A decision names more transactions than the cluster has room for."""


class DecisionDamaged(CommitFault):
    """The decision found is partial or not ours; what it decided cannot be known."""

    advice = (
        "Nothing was written. Use a transactional.id of its own for this query, or, if you know that "
        "its last batch is complete, delete the group and start again"
    )
