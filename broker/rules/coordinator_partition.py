"""Which partition of an internal topic holds a key: Java's string hash, as in Kafka.

`__transaction_state` is partitioned by transactional id and `__consumer_offsets` by group id. The rule is
part of the on-disk format: with a different one, ids of an older data directory would be looked for in the
wrong partition, also by Kafka's tools.
"""

from __future__ import annotations

import struct


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: s[0]*31^(n-1) + ... over UTF-16 code units, as a signed 32-bit int."""
    raw = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(raw) // 2}H", raw):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(key: str, partitions: int) -> int:
    """The partition, 0 <= p < `partitions`, that holds `key`.

    Kafka takes the absolute value of the hash (0 for -2^31, which has none), not its low 31 bits.
    """
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
