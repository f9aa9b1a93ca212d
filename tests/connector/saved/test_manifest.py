"""The records of a save."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.saved import manifest
from eoslog.connector.saved.manifest import FILE, Content, DecidedBatch, Key, Manifest, is_that_of, pieces

FILES = {
    "metadata": Content(45, "a"),
    "state/0/0/7.delta": Content(0, ""),
    "offsets/7": Content(600_000, "9"),
}


def test_a_manifest_comes_back() -> None:
    one = Manifest("query", 7, FILES)
    text = one.text()
    assert Manifest.parse(text) == one and one.is_stateful
    size, digest = Content.of(text.encode())
    assert is_that_of(Saved("t", 0, 7, size, digest, True), text)
    assert not is_that_of(Saved("t", 0, 7, size, digest[::-1], True), text)
    assert len(one.keys("sink")) == 1 + 1 + 3
    assert not Manifest("query", 7, {"metadata": Content(1, "1")}).is_stateful


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version":2}', '{"version":1,"query":"q","batch":1}'])
def test_a_damaged_manifest_is_refused(text: str) -> None:
    for one in (Manifest, DecidedBatch):
        with pytest.raises(ValueError, match=r".*"):
            one.parse(text)


@given(st.text(), st.text(), st.integers(0, 2**31))
def test_a_key_comes_back(sink: str, name: str, number: int) -> None:
    key = Key(sink, FILE, name, number)
    assert Key.read(key.packed()) == key


@pytest.mark.parametrize("packed", [None, b"", b"\xff", b"[]", b"3", b'[2,"s","file","n",0]', b'[1,"s"]'])
def test_the_keys_of_others_are_none_of_ours(packed: bytes | None) -> None:
    assert Key.read(packed) is None


@given(st.binary(max_size=50))
def test_pieces_make_up_the_file(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "PIECE", 8)
        found = list(pieces("s", FILE, "n", data))
    assert b"".join(piece for _, piece in found) == data and found
    assert [key.number for key, _ in found] == list(range(len(found)))


def test_a_decided_batch_comes_back() -> None:
    one = DecidedBatch("v1\n{}\n{}", (3, 0), ())
    assert DecidedBatch.parse(one.text()) == one
