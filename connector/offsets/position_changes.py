"""What the end of a micro-batch becomes, by what the log and the batch before it say. Pure."""

from collections.abc import Container, Mapping

from eoslog.connector.offsets.offsets import SourcePosition, TakenFrom
from eoslog.connector.offsets.plan import Divergence
from eoslog.protocol.topic_partitions import TopicPartition


def back_to(parted: Mapping[TopicPartition, Divergence], until: SourcePosition) -> SourcePosition:
    """The end, but no further than the log is still the one that was read."""
    known = {tp: found for tp, found in parted.items() if found.offset >= 0}
    ends = {**until.offsets, **{tp: found.offset for tp, found in known.items()}}
    return until._replace(offsets=ends, epochs={**until.epochs, **{tp: f.now for tp, f in known.items()}})


def moved_only(
    until: SourcePosition, position: SourcePosition, parted: Container[TopicPartition]
) -> SourcePosition:
    """The end with the old epochs for partitions that have not moved, and with the old `taken` and `began` if
    none has moved: Spark takes a changed text for new data. Partitions whose log differs always get new
    epochs."""
    same = {tp for tp, at in until.offsets.items() if position.offsets.get(tp) == at and tp not in parted}
    epochs = {tp: epoch for tp, epoch in until.epochs.items() if tp not in same}
    kept = {tp: e for tp, e in position.epochs.items() if tp in same}
    stands = until.offsets == position.offsets
    taken, began = (position.taken, position.began) if stands else (frozenset[TakenFrom](), None)
    return until._replace(epochs={**epochs, **kept}, taken=taken, began=began)
