"""Sequence numbers of idempotent producers: the one place where they are added up.

They are int32, count records per producer and partition, and wrap around from 2^31-1 to 0 (KIP-98).
"""

NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1
_MODULUS = MAX_SEQUENCE + 1


def add(sequence: int, count: int) -> int:
    """Return the sequence that is `count` records after `sequence` (before it, if negative)."""
    return (sequence + count) % _MODULUS


def next_sequence(last: int) -> int:
    """Return the sequence that follows `last`."""
    return add(last, 1)


def last_of(base: int, count: int) -> int:
    """Return the last sequence of a batch of `count` records from `base`; NO_SEQUENCE if it has none."""
    return NO_SEQUENCE if base == NO_SEQUENCE else add(base, count - 1)
