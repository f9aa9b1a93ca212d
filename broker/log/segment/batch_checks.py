"""The checks of a batch before it enters a log, apart from its producer's state. Pure.

| what is wrong                                                      | error               |
|--------------------------------------------------------------------|---------------------|
| header cut or invalid, or its size is not the number of bytes      | CORRUPT_MESSAGE     |
| magic other than 2; more than one batch                            | INVALID_RECORD      |
| larger than max.message.bytes (not checked for the broker's own)   | MESSAGE_TOO_LARGE   |
| CRC                                                                | CORRUPT_MESSAGE     |
| from a client: base offset not 0; count not last delta + 1; empty; |                     |
| control batch; producer id without sequence or epoch; transaction  | INVALID_RECORD      |
| without producer id                                                |                     |
| timestamp too far ahead of the broker's clock, or behind it        | INVALID_TIMESTAMP * |
| compacted topic: a record without a key                            | INVALID_RECORD *    |
| where records are decoded: more than the larger of 32 MiB and 16   | MESSAGE_TOO_LARGE   |
| times max.message.bytes, when decompressed                         |                     |

* The whole batch is refused, and the error names the bad records (KIP-467): producers fail those with the
  reason, and may send the others again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.log.segment.log_settings import NEVER, LogSettings
from eoslog.protocol.batch import MAGIC, BatchHeader, CorruptBatch, crc_ok, magic_of, read_header
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.records import DecodedRecords

MOST_UNPACKED, MOST_RATIO = 32 << 20, 16
"""Limits of a decompressed batch whose records must be checked: a few bytes from one client must not take the
time and memory of all others. Bytes, and a multiple of max.message.bytes; the larger one counts."""


class RejectedRecords(KafkaError):
    """Some records of a batch are invalid. `reasons`: by number of the record in the batch."""

    def __init__(self, code: ErrorCode, reasons: dict[int, str]) -> None:
        shown = "; ".join(f"record {number}: {reason}" for number, reason in list(reasons.items())[:3])
        super().__init__(code, f"{len(reasons)} records are invalid, so the whole batch is refused: {shown}")
        self.reasons = reasons


def check_batch(
    batch: memoryview,
    settings: LogSettings,
    now_ms: int,
    *,
    coordinator: bool,
    header: BatchHeader | None = None,
) -> BatchHeader:
    """Check the single batch in `batch` and return its header. `header`: that header, if already decoded.

    Raises KafkaError as the table says.
    """
    header = header or _header_of(batch)
    if header.size != len(batch):
        if header.size < len(batch):
            follow = len(batch) - header.size
            raise _invalid(f"{follow} bytes follow the first batch: send one batch per partition")
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch of {header.size} bytes is cut at {len(batch)}")
    if not coordinator:
        _check_client(header, settings)
    if not crc_ok(batch, 0, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, "the batch's CRC is wrong: it was damaged in transit, send it again"
        )
    if not coordinator and _concerns_records(header, settings, now_ms):
        _check_records(batch, header, settings, now_ms)
    return header


def _header_of(batch: memoryview) -> BatchHeader:
    magic = magic_of(batch)
    if magic not in (None, MAGIC):
        raise _invalid(f"batch has magic {magic}, only {MAGIC} is accepted")
    try:
        return read_header(batch)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _concerns_records(header: BatchHeader, settings: LogSettings, now_ms: int) -> bool:
    """Whether each record must be checked. Few topics need that, and few batches."""
    late = header.max_timestamp > now_ms + settings.timestamp_after_max_ms and not settings.log_append_time
    return settings.compacted or settings.timestamp_before_max_ms < NEVER or late


def _check_client(header: BatchHeader, settings: LogSettings) -> None:
    if header.size > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch has {header.size} bytes, max.message.bytes is {settings.max_message_bytes}",
        )
    if header.base_offset != 0:
        raise _invalid(f"base offset must be 0, not {header.base_offset}")
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise _invalid(f"batch has {header.count} records, but last offset delta {header.last_offset_delta}")
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
                f"sequence {header.base_sequence}: neither may be negative"
            )
    elif header.is_transactional:
        raise _invalid("a transactional batch needs a producer id")


def _check_records(batch: memoryview, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    from eoslog.protocol.records import PayloadTooLarge, decode_batches  # slow to import; few topics need it

    most = max(MOST_UNPACKED, MOST_RATIO * settings.max_message_bytes)
    try:
        records = decode_batches(batch, [(0, header)], check_crc=False, max_payload=most)
    except PayloadTooLarge as error:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes has more than {most} bytes when decompressed",
        ) from error
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if settings.compacted and records.key.null_count:
        without = [number for number, null in enumerate(records.key.is_null().to_pylist()) if null]
        reason = "it has no key, which a compacted topic needs"
        raise RejectedRecords(ErrorCode.INVALID_RECORD, dict.fromkeys(without, reason))
    if not settings.log_append_time:
        _check_times(records, settings, now_ms)
        if header.max_timestamp > now_ms + settings.timestamp_after_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"the batch's largest timestamp is {header.max_timestamp}, but no record has it",
            )


def _check_times(records: DecodedRecords, settings: LogSettings, now_ms: int) -> None:
    before, after = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    reasons = {}
    for number, timestamp in enumerate(records.timestamp.to_pylist()):
        if now_ms - timestamp > before:
            where = f"{before} ms behind the broker's clock ({now_ms}); see message.timestamp.before.max.ms"
            reasons[number] = f"timestamp {timestamp} is more than {where}"
        elif timestamp - now_ms > after:
            where = f"{after} ms ahead of the broker's clock ({now_ms}); see message.timestamp.after.max.ms"
            reasons[number] = f"timestamp {timestamp} is more than {where}"
    if reasons:
        raise RejectedRecords(ErrorCode.INVALID_TIMESTAMP, reasons)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
