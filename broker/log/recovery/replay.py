"""Applies the batches of a log to the states of its producers: for a start, and for checking a log."""

from __future__ import annotations

from eoslog.broker.rules.producer_state import AbortedTransaction, ProducerStates
from eoslog.protocol.batch import BatchHeader, Buffer
from eoslog.protocol.control import ABORT, COMMIT, read_control


def replay(
    states: ProducerStates, header: BatchHeader, data: Buffer, now_ms: int
) -> AbortedTransaction | None:
    """Apply the next batch of a log. Returns the new entry of the transaction index, if there is one.

    `data` is the whole batch; it is read only for a control batch. Raises CorruptBatch.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.apply(header, header.base_offset, now_ms)
        return None
    if not header.count:  # compacted away
        return None
    control = read_control(data, 0, header)
    if control.type not in (COMMIT, ABORT):
        return None
    return states.apply_marker(
        header.producer_id,
        header.producer_epoch,
        control.coordinator_epoch,
        control.type == COMMIT,
        header.base_offset,
        now_ms,
    )
