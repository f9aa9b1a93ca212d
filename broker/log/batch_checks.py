"""The checks of a batch before it enters a log, apart from its producer's state. Pure.

Nothing enters a log that a reader cannot read: the records of a client's batch are all walked. As in Apache
Kafka's LogValidator, the records are believed, and not what the header says about them: see `as_stored`.

| what is wrong                                                      | error                        |
|--------------------------------------------------------------------|------------------------------|
| no batch, or a cut one; magic 0 or 1; bytes after the batch        | INVALID_RECORD               |
| another magic, impossible length, CRC                              | CORRUPT_MESSAGE              |
| larger than max.message.bytes                                      | MESSAGE_TOO_LARGE            |
| base offset not 0; count not last delta + 1; no record;            |                              |
| control batch; producer id without sequence or epoch; transaction  |                              |
| without producer id                                                | INVALID_RECORD               |
| unknown codec                                                      | UNSUPPORTED_COMPRESSION_TYPE |
| damaged compression; records that do not fill their batch, or      |                              |
| whose numbers do not count up from 0                               | INVALID_RECORD               |
| more than the larger of 32 MiB and 16 times max.message.bytes,     |                              |
| when decompressed                                                  | MESSAGE_TOO_LARGE            |
| time too far ahead of the broker's clock, or behind it             | INVALID_TIMESTAMP *          |
| a time set "by the broker", where the broker sets it               | INVALID_TIMESTAMP            |
| compacted topic: a record without a key                            | INVALID_RECORD *             |

* The whole batch is refused, and the error names the bad records (KIP-467): producers fail those with the
  reason, and may send the others again.

The broker's own batches are not walked: only their size and CRC are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.log.log_settings import LogSettings
from eoslog.protocol import compression
from eoslog.protocol.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    PayloadTooLarge,
    crc_ok,
    raw_header,
    stamped,
)
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.walk import Walked

MOST_UNPACKED, MOST_RATIO = 32 << 20, 16
"""Limits of a decompressed batch: a few bytes from one client must not take the time and memory of all
others. Bytes, and a multiple of max.message.bytes; the larger one counts."""

_LIGHT, _LIGHT_COUNT, _LIGHT_UNPACKED = 32 << 10, 2_000, 1 << 20
"""Bytes and records that are walked within a millisecond, whatever they are."""


class RejectedRecords(KafkaError):
    """Some records of a batch are invalid. `reasons`: by number of the record in the batch."""

    def __init__(self, code: ErrorCode, reasons: dict[int, str]) -> None:
        shown = "; ".join(f"record {number}: {reason}" for number, reason in list(reasons.items())[:3])
        super().__init__(code, f"{len(reasons)} records are invalid, so the whole batch is refused: {shown}")
        self.reasons = reasons


def header_of(batch: memoryview) -> BatchHeader:
    """The header of the single batch in `batch`, which is whole and undamaged. Raises KafkaError."""
    try:
        header = raw_header(batch)
    except CorruptBatch as error:
        raise _invalid(str(error)) from error
    if header.magic != MAGIC:
        code = ErrorCode.INVALID_RECORD if header.magic in (0, 1) else ErrorCode.CORRUPT_MESSAGE
        raise KafkaError(code, f"batch has magic {header.magic}, only {MAGIC} is accepted")
    if header.size < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch has the impossible length {header.length}")
    if header.size > len(batch):
        raise _invalid(f"batch of {header.size} bytes is cut at {len(batch)}")
    if not crc_ok(batch, 0, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, "the batch's CRC is wrong: it was damaged in transit, send it again"
        )
    if header.size < len(batch):
        follow = len(batch) - header.size
        raise _invalid(f"{follow} bytes follow the first batch: send one batch per partition")
    return header


def check_client(header: BatchHeader, settings: LogSettings) -> None:
    """Check what a client's header says about itself. Raises KafkaError as the table says."""
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
    if header.codec not in compression.NAMES:
        known = ", ".join(compression.CODECS)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {header.codec}: use {known}"
        )


def walk_lightly(batch: memoryview, header: BatchHeader, settings: LogSettings) -> Walked | None:
    """Walk the records, if that takes little time; None if it should not be done on the event loop.

    Raises KafkaError as `walk_records` does.
    """
    from eoslog.protocol import walk

    if len(batch) > _LIGHT or header.count > _LIGHT_COUNT:
        return walk.walk_quickly(batch, header)
    try:
        return walk.walk(batch, header, min(_LIGHT_UNPACKED, _most(settings)))
    except PayloadTooLarge:
        return None
    except CorruptBatch as error:
        raise _invalid(str(error)) from error


def walk_records(batch: memoryview, header: BatchHeader, settings: LogSettings) -> Walked:
    """Walk the records of a client's batch. May take some 100 ms. Raises KafkaError as the table says."""
    from eoslog.protocol import walk

    most = _most(settings)
    try:
        return walk.walk(batch, header, most)
    except PayloadTooLarge as error:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes has more than {most} bytes when decompressed",
        ) from error
    except CorruptBatch as error:
        raise _invalid(str(error)) from error


def _most(settings: LogSettings) -> int:
    return max(MOST_UNPACKED, MOST_RATIO * settings.max_message_bytes)


def check_walked(
    batch: memoryview, header: BatchHeader, walked: Walked, settings: LogSettings, now_ms: int
) -> None:
    """Check what the records say against the topic's settings. Raises KafkaError as the table says."""
    if settings.compacted and walked.keyless:
        from eoslog.protocol.walk import keyless_rows

        reason = "it has no key, which a compacted topic needs"
        without = keyless_rows(batch, header, _most(settings))
        raise RejectedRecords(ErrorCode.INVALID_RECORD, dict.fromkeys(without, reason))
    if settings.log_append_time:
        if header.log_append_time:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                "the producer set the timestamp type LogAppendTime: leave it to the topic",
            )
    elif _is_untimely(walked, settings, now_ms):
        raise _untimely(batch, header, settings, now_ms)


def _is_untimely(walked: Walked, settings: LogSettings, now_ms: int) -> bool:
    if walked.latest > now_ms + settings.timestamp_after_max_ms:
        return True
    timed = walked.earliest != -1
    return timed and now_ms - walked.earliest > settings.timestamp_before_max_ms


def _untimely(batch: memoryview, header: BatchHeader, settings: LogSettings, now_ms: int) -> RejectedRecords:
    from eoslog.protocol.walk import NO_TIME, times

    before, after = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    found = times(batch, header, _most(settings))
    reasons = {}
    for number, timestamp in enumerate(found.tolist()):
        if timestamp != NO_TIME and now_ms - timestamp > before:
            where = f"{before} ms behind the broker's clock ({now_ms}); see message.timestamp.before.max.ms"
            reasons[number] = f"timestamp {timestamp} is more than {where}"
        elif timestamp - now_ms > after:
            where = f"{after} ms ahead of the broker's clock ({now_ms}); see message.timestamp.after.max.ms"
            reasons[number] = f"timestamp {timestamp} is more than {where}"
    return RejectedRecords(ErrorCode.INVALID_TIMESTAMP, reasons)


def as_stored(
    batch: memoryview, header: BatchHeader, walked: Walked, settings: LogSettings, now_ms: int
) -> BatchHeader:
    """The header under which a client's records are stored, with its CRC.

    Codec, transaction, producer and base timestamp are the client's. The largest time is that of the records,
    or the broker's where the topic says so. No other attribute is a client's to set: not a delete horizon
    (KIP-534), by which tombstones would go too early, and no bit without a meaning.
    """
    attributes = header.attributes & (CODEC_MASK | TRANSACTIONAL)
    if settings.log_append_time:
        return stamped(batch, header, attributes | LOG_APPEND_TIME, now_ms)
    return stamped(batch, header, attributes, walked.latest)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
