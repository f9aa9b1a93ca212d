"""Digests: equal for equal strings wherever they stand, different for different ones, in all their parts."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.audit import digest
from eoslog.audit.digest import BLOCK, LANES, Digester
from eoslog.audit.identity import Identity, header_values
from eoslog.protocol.decode import HEADERS, DecodedRecords


def plain(digester: Digester, data: bytes | None) -> list[int]:
    """The definition, with Python's numbers."""
    return _fold(digester, _words(data or b""), -1 if data is None else len(data), 0)


def _words(data: bytes) -> list[int]:
    data += bytes(-len(data) % 4)
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def _fold(digester: Digester, words: list[int], length: int, level: int) -> list[int]:
    blocks = [words[i : i + BLOCK] for i in range(0, len(words), BLOCK)] or [[]]
    random_numbers = digester._random[level].tolist()
    sums = []
    for block in blocks:
        for numbers in random_numbers:
            total = sum(w * r for w, r in zip(block, numbers, strict=False))
            sums.append((total + (length + 1) * numbers[BLOCK] + numbers[BLOCK + 1]) % 2**64 >> 32)
    return sums if len(blocks) == 1 else _fold(digester, sums, length, level + 1)


def of(digester: Digester, strings: list[bytes | None]) -> list[list[int]]:
    found: list[list[int]] = digester.strings(pa.array(strings, pa.binary())).tolist()
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=12))
def test_digests_are_what_their_definition_says(strings: list[bytes | None]) -> None:
    digester = Digester()
    assert of(digester, strings) == [plain(digester, string) for string in strings]


@pytest.mark.parametrize("length", [4 * BLOCK - 1, 4 * BLOCK, 4 * BLOCK + 1, 9 * BLOCK, 1_100_000])
def test_long_strings_are_folded(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside short ones and alone, in one step or many."""
    digester, data = Digester(), random.Random(length).randbytes(length)
    expected = plain(digester, data)
    assert of(digester, [b"a", data, None, data[:-1]])[1] == expected
    monkeypatch.setattr(digest, "_AT_ONCE", 3 * BLOCK)
    assert of(digester, [data, b""])[0] == expected


def test_every_byte_of_a_long_string_counts() -> None:
    digester, data = Digester(), bytearray(5 * 4 * BLOCK + 3)
    seen = {tuple(of(digester, [bytes(data)])[0])}
    places = [*range(0, len(data), 997), len(data) - 1]
    for place in places:
        data[place] ^= 1
        seen.add(tuple(of(digester, [bytes(data)])[0]))
        data[place] ^= 1
    assert len(seen) == len(places) + 1


def test_columns_that_are_cut_have_the_same_digests() -> None:
    digester = Digester()
    whole = pa.array([b"x", None, b"hello", b"", b"four"], pa.binary())
    assert digester.strings(whole[1:4]).tolist() == of(digester, [None, b"hello", b""])


def test_what_is_alike_for_the_eye_is_not_the_same() -> None:
    digester = Digester()
    strings = [None, b"", b"\0", b"\0\0", b"\0\0\0\0", b"\0\0\0\0\0", b"a", b"a\0"]
    assert len({tuple(words) for words in of(digester, strings)}) == len(strings)


def test_each_lane_is_of_its_own_and_each_run_too() -> None:
    (first,), (again,) = of(Digester(), [b"a record"]), of(Digester(), [b"a record"])
    assert len(set(first)) == LANES and first != again


Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def records(rows: list[Row]) -> DecodedRecords:
    keys, values, headers = zip(*rows, strict=True)
    lists = pa.array([[{"key": k, "value": v} for k, v in row] for row in headers], HEADERS)
    numbers = pa.array(np.arange(len(rows)))
    return DecodedRecords(
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), numbers, numbers, numbers, lists
    )


ROWS: list[Row] = [
    (b"k", b"v", []),
    (b"k", b"w", []),
    (b"kv", b"", []),
    (b"", b"kv", []),
    (None, b"kv", []),
    (b"kv", None, []),
    (b"k", b"v", [("a", b"1")]),
    (b"k", b"v", [("a", b"1"), ("b", b"2")]),
    (b"k", b"v", [("b", b"2"), ("a", b"1")]),
    (b"k", b"v", [("a", None)]),
    (b"k", b"v", [("a", b"")]),
    (b"k", b"v", [("a", b"1"), ("a", b"1")]),
]  # fmt: skip


def identities(identity: Identity) -> tuple[list[tuple[int, ...]], list[bool]]:
    words, there = identity.digests(Digester(), records(ROWS))
    return [tuple(row) for row in words.tolist()], there.tolist()


def same(values: list[tuple[int, ...]]) -> set[tuple[int, int]]:
    """Pairs of rows with the same digest."""
    return {
        pair for pair in itertools.combinations(range(len(values)), 2) if values[pair[0]] == values[pair[1]]
    }


def test_by_content_key_and_value_count_each_for_itself() -> None:
    words, there = identities(Identity(content=True))
    assert same(words) == set(itertools.combinations([0, 6, 7, 8, 9, 10, 11], 2)) and all(there)


def test_by_content_with_headers_all_of_them_count_in_their_order() -> None:
    words, there = identities(Identity(content=True, all_headers=True))
    assert same(words) == set() and all(there)


def test_by_key_a_record_without_one_has_no_identity() -> None:
    words, there = identities(Identity(key=True))
    assert [i for i, one in enumerate(there) if not one] == [4]
    assert {(0, 1), (2, 5)} <= same(words)


def test_by_header_the_last_of_its_name_counts() -> None:
    words, there = identities(Identity(headers=("a",)))
    assert [i for i, one in enumerate(there) if one] == [6, 7, 8, 9, 10, 11]
    assert same([word for word, one in zip(words, there, strict=True) if one]) == set(
        itertools.combinations([0, 1, 2, 5], 2)
    )
    twice = records([(b"k", b"v", [("a", b"1"), ("b", b"x"), ("a", b"2")]), (b"k", b"v", [("b", b"y")])])
    values, found = header_values(twice.headers, "a")
    assert values.to_pylist() == [b"2", None] and found.tolist() == [True, False]


def test_identities_of_several_parts_need_them_all() -> None:
    words, there = identities(Identity(key=True, headers=("a", "b")))
    assert [i for i, one in enumerate(there) if one] == [7, 8]
    assert words[7] == words[8]
    assert str(Identity(key=True, headers=("a", "b"))) == "key and header a and header b"
