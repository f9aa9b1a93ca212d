"""Replay: rows of a decided batch that the broker has aborted are written again (on.lost.transaction).

It is needed only where transactions are not sealed, when nobody finished a batch within
kafka.transaction.timeout.ms after its decision. The next run of the same batch then writes the lost
partitions under a new decision, which takes the place of the old one. Everything else of the batch is
committed by then, and stays as it is. Before anything is decided, what Spark gave to *all* tasks of the
batch is compared with what was recorded of the first time.
"""

from collections.abc import Sequence
from enum import Enum

from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import ParticipantsLost, ReplayDiffers, Unfinished
from eoslog.connector.commit.messages import Batch


class OnLost(Enum):
    """What the next run does about rows that were lost after their decision (option on.lost.transaction)."""

    STOP = "stop"
    REPLAY = "replay"


def to_replay(loss: ParticipantsLost, last: Decision, batch: Batch) -> tuple[int, ...]:
    """The Spark partitions to write again in this run, which is about to run `batch`.

    Nothing that is merely unknown is written again. Raises Unfinished while some of the batch may still
    become visible by itself, and ParticipantsLost where a replay cannot be exact.
    """
    if loss.unfinished:
        raise Unfinished(
            f"{last.batch} is decided. Some of its transactions are lost, and others could not be committed "
            f"yet: nothing is written again before they are. Start the query again to finish them. {loss}"
        )
    obstacle = _obstacle(loss, last, batch)
    if obstacle is not None:
        raise ParticipantsLost(f"{loss}. on.lost.transaction=replay cannot help: {obstacle}")
    return tuple(winner.partition for winner in loss.winners)


def _obstacle(loss: ParticipantsLost, last: Decision, batch: Batch) -> str | None:
    if batch != last.batch:
        return f"this run is at {batch}, and Spark does not run {last.batch} again"
    if not loss.winners:
        return "it is not proven that the transactions were aborted, they may have been committed"
    if not last.rows:
        return "the decision does not say how many rows the partitions had; it is of an older version"
    return None


def check_replay(last: Decision, replay: Decision, lost: Sequence[int]) -> None:
    """Every task of the batch got the same rows as the first time; raises ReplayDiffers.

    Numbers of rows are always compared, checksums where both runs have some.
    """
    wrong = []
    if len(replay.rows) != len(last.rows):
        wrong.append(f"{len(replay.rows)} tasks instead of {len(last.rows)}")
    for partition, (now, then) in enumerate(zip(replay.rows, last.rows, strict=False)):
        if now != then:
            wrong.append(f"partition {partition} has {now} rows instead of {then}")
    if not wrong and replay.checksums and last.checksums:
        both = enumerate(zip(replay.checksums, last.checksums, strict=True))
        wrong = [f"partition {number} has other rows" for number, (now, then) in both if now != then]
    if wrong:
        told = "; ".join(wrong[:10]) + (f"; and {len(wrong) - 10} more" if len(wrong) > 10 else "")
        raise ReplayDiffers(
            f"{last.batch} is decided, the rows of its partitions {list(lost)} are lost, and they cannot be "
            f"written again (on.lost.transaction=replay), because the batch does not replay equally: {told}. "
            "Nothing was written. If settings of the query or of Spark have changed since, start it again "
            "with the old ones. Otherwise publish the missing rows yourself, then start behind this batch "
            "with a new checkpoint and transactional.id"
        )
