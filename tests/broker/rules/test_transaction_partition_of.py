"""Java's string hash and the partition made from it. The values are those that a JVM gives."""

from __future__ import annotations

import pytest

from eoslog.protocol.internal_topics.coordinator_records import java_string_hash, partition_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("q-0.1-0-3-17", -2034552461),
        ("fl\u00fcge-\u2708", -636052529),
        ("\U0001f600", 1772899),  # one character, two UTF-16 units
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partition_is_the_absolute_value_not_the_low_bits() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    negative = next(f"id-{i}" for i in range(1000) if java_string_hash(f"id-{i}") < 0)
    assert partition_of(negative, 50) == -java_string_hash(negative) % 50
