"""A document judges copies of the topics: which batch differs, and how. A changed document is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eoslog.audit.digest import Digester
from eoslog.protocol.decode import HEADERS, DecodedRecords
from eoslog.prove.document import Difference, Part, aligned, chained
from eoslog.prove.logs import Piece, content_of, measured
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.prove.provekit import Hurt, Stream, check, mirrored, prove, run, stream

BATCHES, ROWS = 5, 4


@pytest.fixture(scope="module")
def made(kafka: Kafka) -> Iterator[Stream]:
    with stream(kafka) as one:
        one.batches(BATCHES, ROWS)
        yield one


@pytest.fixture(scope="module")
def file(made: Stream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("prove") / "proof.jsonl"
    assert prove(made, found)[0] == 0
    return found


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Kafka]:
    """A cluster that knows nothing of the sink."""
    with EmbeddedBroker() as broker:
        yield Kafka(broker.bootstrap)


# -- copies ----------------------------------------------------------------------------------------

PER = 2 * ROWS
"""Rows of a batch in a partition: of two tasks."""


def lacks(row: int) -> Hurt:
    return lambda parts: parts[1].__delitem__(row)


def twice(row: int, to: int | None = None) -> Hurt:
    return lambda parts: parts[1].insert(row if to is None else to, parts[1][row])


def swaps(one: int, other: int) -> Hurt:
    def hurt(parts: list[list[Any]]) -> None:
        parts[1][one], parts[1][other] = parts[1][other], parts[1][one]

    return hurt


def changes(row: int, part: int, to: Any) -> Hurt:
    return lambda parts: parts[1][row].__setitem__(part, to)


def moves(parts: list[list[Any]]) -> None:
    parts[2].append(parts[1].pop(3 * PER))


HURTS: dict[str, tuple[Hurt, list[str]]] = {
    "nothing": (lambda _: None, []),
    "a row lacks": (lacks(2 * PER + 3), ["-1, batch 2 (decision 3): 1 row missing"]),
    "the first row lacks": (lacks(0), ["-1, batch 0 (decision 1): 1 row missing"]),
    "the last row lacks": (lacks(-1), ["-1, batch 4 (decision 5): 1 row missing"]),
    "two rows lack": (
        lambda parts: parts[1].__setitem__(slice(PER, 4 * PER + 1), parts[1][PER + 1 : 4 * PER]),
        ["-1, batch 1 (decision 2): 1 row missing", "-1, batch 4 (decision 5): 1 row missing"],
    ),
    "a batch lacks": (
        lambda parts: parts[1].__delitem__(slice(PER, 2 * PER)),
        [f"-1, batch 1 (decision 2): {PER} rows missing"],
    ),
    "a row is there twice": (twice(2 * PER + 3), ["-1, batch 2 (decision 3): 1 row more"]),
    "between batches": (twice(2 * PER, 3 * PER), ["-1, 1 row more before batch 3 (decision 4)"]),
    "at the end": (twice(2 * PER, BATCHES * PER), ["-1, 1 row more behind the last batch"]),
    "rows of two batches are exchanged": (
        swaps(PER, 2 * PER),
        [f"-1, batch {n} (decision {n + 1}): a row has other content, of {PER}" for n in (1, 2)],
    ),
    "rows of one batch are exchanged": (
        swaps(PER, PER + 1),
        ["-1, batch 1 (decision 2): its rows are in another order"],
    ),
    "a value is changed": (
        changes(3 * PER, 1, b"other"),
        [f"-1, batch 3 (decision 4): a row has other content, of {PER}"],
    ),
    "a key is null": (
        changes(3 * PER + 2, 0, None),
        [f"-1, batch 3 (decision 4): a row has other content, of {PER}"],
    ),
    "a time is changed": (
        changes(3 * PER, 2, 1_700_000_000_000),
        [f"-1, batch 3 (decision 4): a row has other content, of {PER}"],
    ),
    "a header is added": (
        changes(3 * PER, 3, [("name", b"")]),
        [f"-1, batch 3 (decision 4): a row has other content, of {PER}"],
    ),
    "a row is in another partition": (
        moves,
        ["-1, batch 3 (decision 4): 1 row missing", "-2, 1 row more behind the last batch"],
    ),
    "a partition is empty": (
        lambda parts: parts[1].clear(),
        [f"-1, batch 0 (decision 1) to batch 4 (decision 5): {BATCHES * PER} rows missing"],
    ),
}


@pytest.mark.parametrize("how", HURTS)
def test_a_mirror(made: Stream, file: Path, elsewhere: Kafka, how: str) -> None:
    hurt, expected = HURTS[how]
    names = mirrored(made, elsewhere, hurt)
    status, said = check(elsewhere, file, names)
    copy = names[made.topics[0]]
    assert (status, said["wrong"]) == (int(bool(expected)), [copy + text for text in expected])
    outside = all(" before " in text or " behind " in text for text in expected)
    assert check(elsewhere, file, names, "--allow-foreign")[0] == int(not outside)


def test_a_partition_of_the_copy_alone(made: Stream, file: Path, elsewhere: Kafka) -> None:
    names = mirrored(made, elsewhere)
    copy = names[made.topics[1]]
    more = elsewhere.topic(made.partitions + 1)
    for partition, _, key, value, _, at, headers in elsewhere.rows(copy, made.partitions):
        elsewhere.put(more, [value], partition, key=key, timestamp=at, headers=headers)
    elsewhere.put(more, [b"mine"], made.partitions)
    status, said = check(elsewhere, file, names | {made.topics[1]: more})
    assert (status, said["wrong"]) == (1, [f"{more}-{made.partitions}, 1 row more behind the last batch"])
    less = elsewhere.topic(made.partitions - 1)
    status, said = check(elsewhere, file, names | {made.topics[1]: less})
    assert status == 1 and f"{less} has no partition {made.partitions - 1}" in said["wrong"]


def test_a_copy_byte_by_byte(tmp_path: Path) -> None:
    """A data directory that was copied while the broker rested: same offsets, same transactions."""
    data, copied, file = tmp_path / "data", tmp_path / "copied", tmp_path / "proof.jsonl"
    with EmbeddedBroker(data) as broker, stream(Kafka(broker.bootstrap), topics=1) as made:
        made.batches(3)
        made.stray(2, 0, commits=False)
        assert prove(made, file)[0] == 0
    shutil.copytree(data, copied)
    with EmbeddedBroker(copied) as broker:
        assert check(Kafka(broker.bootstrap), file)[0] == 0
        Kafka(broker.bootstrap).put(made.topics[0], [b"later"])
        status, said = check(Kafka(broker.bootstrap), file)
        assert (status, said["wrong"]) == (1, [f"{made.topics[0]}-0, 1 row more behind the last batch"])


def test_a_document_of_what_was_not_right(made: Stream, elsewhere: Kafka, tmp_path: Path) -> None:
    """A copy that is like it is not right either."""
    with stream(made.kafka, topics=1) as other:
        other.batches(2)
        other.stray(1, 0)
        file = tmp_path / "proof.jsonl"
        assert prove(other, file)[0] == 1
        status, said = check(elsewhere, file, mirrored(other, elsewhere))
        assert (status, said["verdict"], said["wrong"]) == (1, "wrong", [])


# -- the document ----------------------------------------------------------------------------------

Tamper = Callable[[list[str]], Any]


def edits(line: int, old: str, new: str) -> Tamper:
    def tamper(lines: list[str]) -> None:
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new, 1)

    return tamper


def with_own_hash(lines: list[str]) -> None:
    """Only the edited line is hashed again."""
    entry = json.loads(lines[3])
    del entry["sha256"]
    lines[3] = next(chained([entry | {"rows": 1}]))


def swapped(lines: list[str]) -> None:
    lines[-2], lines[-3] = lines[-3], lines[-2]


TAMPERS: dict[str, tuple[Tamper, str]] = {
    "a number": (edits(8, '"batch":1', '"batch":2'), "line 9 is not as it was written"),
    "the verdict": (edits(-1, '"verdict":"proven"', '"verdict":"wrong"'), "is not as it was written"),
    "a hash": (edits(2, '"sha256":"', '"sha256":"0'), "line 3 is not as it was written"),
    "blanks": (edits(1, '":', '": '), "line 2 is not as it was written"),
    "a name that is there twice": (edits(1, "{", '{"begins":7,'), "line 2 is not as it was written"),
    "a line hashed again": (with_own_hash, "line 4 is not as it was written"),
    "lines exchanged": (swapped, "not behind the same line"),
    "a line left out": (lambda lines: lines.pop(4), "not behind the same line"),
    "a line twice": (lambda lines: lines.insert(4, lines[4]), "not behind the same line"),
    "cut short": (lambda lines: lines.pop(), "its end is missing: 12 lines are here"),
    "cut in a line": (edits(-1, '"verdict"', ""), "line 13 is no line"),
    "the beginning cut": (lambda lines: lines.pop(0), "line 1 is not as it was written"),
    "empty": (lambda lines: lines.clear(), "its beginning is missing"),
    "something else": (lambda lines: lines.insert(0, "[1]"), "line 1 is no line"),
    "more behind the end": (lambda lines: lines.append("{}"), "line 14 is no line"),
}


@pytest.mark.parametrize("how", TAMPERS)
def test_a_document_that_was_changed_is_refused(made: Stream, file: Path, tmp_path: Path, how: str) -> None:
    tamper, message = TAMPERS[how]
    lines = file.read_text().splitlines()
    tamper(lines)
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(f"{line}\n" for line in lines))
    status, said = check(made.kafka, changed)
    assert status == 2 and message in said, said


def test_a_chain_of_other_lines_is_no_document(made: Stream, file: Path, tmp_path: Path) -> None:
    """Whoever makes the chain again makes another document, and its last hash is another one. What is said
    to be whole has to be: it begins as one, and counts its lines."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        del line["sha256"]
    changed = tmp_path / "changed.jsonl"
    for kept in ([*lines[:4], *lines[5:]], lines[1:], [*lines, lines[-1]]):
        changed.write_text("".join(f"{line}\n" for line in chained(kept)))
        status, said = check(made.kafka, changed)
        assert status == 2 and "The document was changed" in said
    changed.write_text("".join(f"{line}\n" for line in chained([{**lines[0], "format": 9}, *lines[1:]])))
    assert "a later version of eoslog has written it" in check(made.kafka, changed)[1]
    changed.write_text("".join(f"{line}\n" for line in chained(lines)))
    assert check(made.kafka, changed)[0] == 0
    changed.write_bytes(b"\xff\n")
    assert run(made.kafka.bootstrap, "--check", str(changed))[0] == 2
    assert run(made.kafka.bootstrap, "--check", str(tmp_path / "none"))[0] == 2


# -- where batches are in a copy -------------------------------------------------------------------


def said(document: list[str], copy: str) -> list[str]:
    """Differences of rows that are letters, in batches that are words; blanks are others' rows."""
    parts, before = [], 0
    for word in document:
        if word.strip():
            parts.append(Part(word, before, len(word), _sums(word)[-1], ""))
        before += len(word)
    sums = np.array([[0, 0], *([int(one[:16], 16), int(one[16:], 16)] for one in _sums(copy))], np.uint64)
    return [one.text for one in aligned(parts, before, sums).differences]


def _sums(word: str) -> list[str]:
    high = low = 0
    found = []
    for letter in word:
        high, low = (high + 2**63 // ord(letter) ** 3) % 2**64, (low + ord(letter) ** 9) % 2**64
        found.append(f"{high:016x}{low:016x}")
    return found


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ("abcdefghij", []),
        ("abcdfghij", ["de: 1 row missing"]),
        ("abcghij", ["de to f: 3 rows missing"]),
        ("abcdeefghij", ["1 row more before f"]),
        ("abcdefgghij", ["1 row more before ghij"]),
        ("abcdefghhij", ["ghij: 1 row more"]),
        ("defghij", ["abc: 3 rows missing"]),
        ("xyabcdefghij", ["2 rows more before abc"]),
        ("abcdefghijx", ["1 row more behind the last batch"]),
        ("abcdefghi", ["ghij: 1 row missing"]),
        ("abdcefghij", ["abc: a row has other content, of 3", "de: a row has other content, of 2"]),
        ("abcxefghij", ["de: a row has other content, of 2"]),
        ("bcdefxghij", ["abc: 1 row missing", "1 row more before ghij"]),
        ("abcfdeghij", ["1 row more before de", "f: 1 row missing"]),
        ("", ["abc to ghij: 10 rows missing"]),
    ],
)  # fmt: skip
def test_batches_are_found_in_a_copy(copy: str, expected: list[str]) -> None:
    assert said(["abc", "de", "f", "ghij"], copy) == expected


def test_a_batch_like_a_later_one_is_not_taken_for_it() -> None:
    """The next one stands where it should."""
    assert said(["abc", "de", "f", "abc", "g"], "abxdefabcg") == ["abc: a row has other content, of 3"]


def test_others_rows_between_batches_are_counted() -> None:
    assert said(["abc", "  ", "de"], "abc  de") == []
    assert said(["abc", "  ", "de"], "abc de") == ["1 row missing before de"]
    assert Difference("").outside is False


# -- contents --------------------------------------------------------------------------------------


Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def records(*rows: Record) -> DecodedRecords:
    key, value, at, headers = zip(*rows, strict=True)
    lists = [[{"key": name, "value": text} for name, text in one] for one in headers]
    kinds, offsets = pa.array([0] * len(rows), pa.int32()), pa.array(range(len(rows)), pa.int64())
    columns = pa.array(key, pa.binary()), pa.array(value, pa.binary()), offsets, pa.array(at, pa.int64())
    return DecodedRecords(*columns, kinds, pa.array(lists, HEADERS))


ROW: Record = (b"k", b"value", 1, [("a", b"1"), ("b", None)])
UNLIKE: list[Record] = [
    (b"", b"value", 1, ROW[3]),
    (None, b"value", 1, ROW[3]),
    (b"kv", b"alue", 1, ROW[3]),
    (b"k", b"", 1, ROW[3]),
    (b"k", None, 1, ROW[3]),
    (b"k", b"value", 2, ROW[3]),
    (b"k", b"value", 1, [("a", b"1")]),
    (b"k", b"value", 1, [("a", b"1"), ("b", b"")]),
    (b"k", b"value", 1, [("b", None), ("a", b"1")]),
    (b"k", b"value", 1, []),
]


def test_rows_that_differ_have_other_contents() -> None:
    found = content_of(records(ROW, *UNLIKE)).to_pylist()
    assert len({*found}) == len(found) == len(UNLIKE) + 1
    assert content_of(records((None, b"", 5, []))).to_pylist() == [
        b"\xff\xff\xff\xff" + bytes(4) + (5).to_bytes(8, "big") + bytes(4)
    ]
    assert found[0] == b"".join(
        (
            *(len(part).to_bytes(4, "big") + part for part in (b"k", b"value")),
            (1).to_bytes(8, "big"), (2).to_bytes(4, "big"),
            b"\0\0\0\1a\0\0\0\x011", b"\0\0\0\1b\xff\xff\xff\xff",
        )
    )  # fmt: skip


def test_contents_do_not_depend_on_how_rows_are_cut() -> None:
    """Slices of columns, and parts that pieces cut."""
    every = records(ROW, *UNLIKE)
    names = ("key", "value", "offset", "timestamp", "timestamp_type", "headers")
    contents = content_of(every)
    for step in (1, 2, 3, len(every)):
        pieces = []
        for first in range(0, len(every), step):
            cut = DecodedRecords(*(getattr(every, name).slice(first, step) for name in names))
            some = content_of(cut)
            digests = np.array([[n + 1, n + 7] for n in range(first, first + len(cut))], np.uint64)
            pieces.append(Piece(cut.offset.to_numpy(), some, digests))
        assert [one for piece in pieces for one in piece.contents.to_pylist()] == contents.to_pylist()
        found = measured(iter(pieces), [(1, 4), (4, 5), (6, 20)], 100)
        assert found.rows == 100 + len(every)
        assert [(one.before, one.rows) for one in found.contents] == [(101, 3), (104, 1), (106, 5)]
        told = [one.sha256.hexdigest() for one in found.contents]
        bounds = [(1, 4), (4, 5), (6, 11)]
        assert told == [sha256(b"".join(contents.to_pylist()[a:b])).hexdigest() for a, b in bounds]
        assert [int(one.sums[0]) for one in found.contents] == [sum(range(a + 1, b + 1)) for a, b in bounds]


SUM_OF_ABC = [3460833886, 889055462, 2204881802, 3298753642]


def test_the_sum_s_numbers_are_the_same_in_every_process() -> None:
    """They stand in documents."""
    column = pa.array([b"abc", b"", None], pa.binary())
    assert Digester(b"eoslog prove 1").strings(column)[0].tolist() == SUM_OF_ABC
    assert Digester().strings(column)[0].tolist() != SUM_OF_ABC
