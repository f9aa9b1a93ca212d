"""Replay: writes rows of a decided batch again that the broker has aborted (on.lost.transaction).

It is needed only where transactions are not sealed, if no run finished a batch within
kafka.transaction.timeout.ms after its decision. The next run of the same batch then writes the lost
partitions under a new decision, which replaces the old one. The rest of the batch is committed by then and
does not change. Before the new decision, the rows that Spark gave to *all* tasks of the batch are compared
with those recorded the first time.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from enum import Enum

from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import CheckpointCopied, ParticipantsLost, ReplayDiffers, Unfinished
from eoslog.connector.commit.finish import lost_word
from eoslog.connector.commit.task_reports import Batch, Stamp, Start
from eoslog.connector.commit.transactional_ids import Sink


class OnLost(Enum):
    """What the next run does about decided rows that were lost (option on.lost.transaction)."""

    STOP = "stop"
    REPLAY = "replay"


def to_replay(loss: ParticipantsLost, last: Decision, batch: Batch) -> tuple[int, ...]:
    """The Spark partitions of `batch` that this run has to write again.

    A partition is written again only if it is certain that its rows are lost. Raises Unfinished while
    transactions of the batch may still be committed, and ParticipantsLost if a replay cannot be exact.
    """
    if loss.unfinished:
        raise Unfinished(
            f"{last.said} is decided. Some of its transactions are lost, and others could not be committed "
            f"yet: nothing is written again before they are. Start the query again to finish them. {loss}"
        )
    obstacle = _obstacle(loss, last, batch)
    if obstacle is not None:
        raise ParticipantsLost(f"{loss}. on.lost.transaction=replay cannot help: {obstacle}")
    return tuple(winner.partition for winner in loss.winners)


def _obstacle(loss: ParticipantsLost, last: Decision, batch: Batch) -> str | None:
    if not batch.repeats(last.batch):
        return f"this run is at {batch}, and Spark does not run {last.said} again"
    if not loss.winners:
        return "it is not proven that the transactions were aborted, they may have been committed"
    if not last.rows:
        return "the decision does not say how many rows the partitions had; it is of an older version"
    return None


def check_same_rows(last: Decision, again: Decision, accept: str) -> None:
    """Check a decided batch that comes again, where its sources' ends do not say which rows it reads: were
    they others, they would be left out. `accept`: the option that lets it pass. Raises ReplayDiffers."""
    if not last.batch.repeats(again.batch) or not last.content.differs(again.content):
        return
    raise ReplayDiffers(
        f"{last.said} was decided with {last.content}, is run again, and has {again.content} now: the same "
        "batch with other rows. Those of the first time are visible, and nothing more was written. Was the "
        "checkpoint restored from an older copy, or were its newest files lost? Bring the right checkpoint "
        "back. If the query's plan does not repeat (rand, uuid, a table read beside the stream), or the rows "
        f"of now may be left out, set {accept}"
    )


def copied(sink: Sink, last: Decision, start: Start, place: str, accept: str) -> CheckpointCopied:
    """The error of a checkpoint, at `place`, of which there is a copy: `start` of it has made the sink's last
    decision. `accept`: the option that accepts that."""
    at = datetime.fromtimestamp(start.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    topics = ", ".join(last.went_to) or "no topic"
    return CheckpointCopied(
        f"sink {sink.id}: {last.batch} was decided with the checkpoint {start.place}, by a start of "
        f"{at}, and its rows went to {topics}. This checkpoint is {place}: one is "
        "a copy of the other, and rows would be lost or doubled. Nothing was written. If both "
        "are to go on, make this one a query of its own: eoslog checkpoint fork. If one is to go on, start "
        "the other one; or if that is gone, and what it has written counts here, set "
        f"{accept}"
    )


def check_topics(
    sink: Sink, last: Decision, stamp: Stamp, topics: Collection[str], accept: Callable[[str], str | None]
) -> None:
    """Check a decided batch that comes again from another place than its decision: if its rows name other
    topics now (no option topic), this is a copy of the checkpoint, and they would be left out. Raises
    CheckpointCopied unless that is accepted."""
    start, own = last.start, stamp.start
    if start is None or own is None or start.place == own.place or not last.batch.repeats(stamp.batch):
        return
    others = set(topics) - {topic for topic, _ in last.written}
    option = accept(f"copied:{start.word}") if others else None
    if option is not None:
        raise copied(sink, last, start, own.place, option)


def check_replay(last: Decision, replay: Decision, lost: Sequence[int]) -> None:
    """Raise ReplayDiffers unless every task of the batch got the same rows as the first time.

    Numbers of rows are always compared, checksums if both runs have recorded them.
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
        differences = "; ".join(wrong[:10]) + (f"; and {len(wrong) - 10} more" if len(wrong) > 10 else "")
        raise ReplayDiffers(
            f"{last.said} is decided, the rows of its partitions {list(lost)} are lost, and they cannot be "
            "written again (on.lost.transaction=replay), because the batch does not replay equally: "
            f"{differences}. Nothing was written. If settings of the query or of Spark have changed since, "
            "start it again with the old ones. Otherwise publish the missing rows of the first time "
            "yourself, which these are not, then set "
            f"start.accepted={lost_word(last.batch)}: the query goes on behind this batch"
        )
