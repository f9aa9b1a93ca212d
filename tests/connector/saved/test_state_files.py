"""Which files of a checkpoint are saved, and the records of a save."""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.saved import state_files
from eoslog.connector.saved.state_files import (
    FILE,
    Content,
    DecidedBatch,
    Key,
    Manifest,
    StateGone,
    files_before,
    is_of_checkpoint,
    is_that_of,
    is_versioned,
    pieces,
)

# -- files ---------------------------------------------------------------------------------------
# Which files of a checkpoint are saved: those that Spark needs to run a batch, and no others.

LOGS = ["offsets/6", "offsets/7", "commits/6"]
FIXED = ["metadata", "state/0/_metadata/metadata", "state/0/0/_metadata/schema"]


def packed(*tables: str, logs: Iterable[str] = ()) -> bytes:
    said = {"sstFiles": [{"localFileName": "x", "dfsSstFileName": name, "sizeBytes": 1} for name in tables]}
    more = {"logFiles": [{"localFileName": "x", "dfsLogFileName": name, "sizeBytes": 1} for name in logs]}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        file.writestr("metadata", f"v1\n{json.dumps(said | more)}")
    return whole.getvalue()


def needed(state: Iterable[str], zips: Mapping[str, bytes] = MappingProxyType({})) -> set[str]:
    """The state's files of one partition that are saved with a batch."""
    names = [*FIXED, *LOGS, *(f"state/0/0/{name}" for name in state)]
    contents = {f"state/0/0/{name}.zip": data for name, data in zips.items()}
    found = files_before(7, names, contents.__getitem__)
    assert all(map(is_of_checkpoint, found))
    assert set(FIXED) | set(LOGS) <= set(found) and len(found) == len(set(found))
    return {name.removeprefix("state/0/0/") for name in found if name not in {*FIXED, *LOGS}}


def test_changes_without_a_whole_version() -> None:
    deltas = [f"{n}.delta" for n in range(1, 10)]
    assert needed(deltas) == set(deltas[:7])


def test_changes_since_the_newest_whole_version() -> None:
    names = [*(f"{n}.delta" for n in range(1, 10)), "3.snapshot", "5.snapshot", "8.snapshot"]
    assert needed(names) == {"5.snapshot", "6.delta", "7.delta"}


def test_a_gap_is_refused() -> None:
    with pytest.raises(StateGone, match=r"state/0/0 has no unbroken line of files up to version 7"):
        needed([f"{n}.delta" for n in range(1, 8) if n != 6])


def test_a_whole_version_before_a_gap_does_not_help() -> None:
    with pytest.raises(StateGone):
        needed(["3.snapshot", "4.delta", "6.delta", "7.delta"])


def test_a_missing_log_is_refused() -> None:
    with pytest.raises(StateGone, match="commits/6 of 1 files"):
        files_before(7, ["metadata", "offsets/6", "offsets/7"], lambda name: b"")


def test_the_first_batch_has_no_state() -> None:
    names = ["metadata", "offsets/0", "state/0/_metadata/metadata", "state/0/0/1.delta"]
    assert files_before(0, names, lambda name: b"") == names[:3]


def test_rocksdb_shares_tables() -> None:
    names = ["6.zip", "7.zip", "SSTs/a.sst", "SSTs/b.sst", "SSTs/c.sst", "logs/l.log", "logs/m.log"]
    shared = packed("a.sst", "c.sst", logs=["l.log"])
    assert needed(names, {"7": shared}) == {"7.zip", "SSTs/a.sst", "SSTs/c.sst", "logs/l.log"}


def test_a_table_that_is_missing_is_refused() -> None:
    with pytest.raises(StateGone, match=r"state/0/0/SSTs/b.sst"):
        needed(["7.zip", "SSTs/a.sst"], {"7": packed("a.sst", "b.sst")})


def test_a_change_log_after_a_whole_version() -> None:
    names = ["4.zip", "5.changelog", "6.changelog", "7.changelog", "8.changelog", "SSTs/a.sst"]
    found = needed(names, {"4": packed("a.sst")})
    assert found == {"4.zip", "5.changelog", "6.changelog", "7.changelog", "SSTs/a.sst"}


def test_several_tasks_have_written_the_version() -> None:
    """The commit log says which one counts; both are saved."""
    names = ["6_a.zip", "7_b.zip", "7_c.zip", "7_c.zip.crc"]
    found = needed(names, {"7_b": packed(), "7_c": packed()})
    assert found == {"7_b.zip", "7_c.zip", "7_c.zip.crc"}


def test_several_tasks_have_written_a_version_of_a_change_log() -> None:
    """Which of them the later one builds on is not told by the names: the line begins after it."""
    names = ["4_x.changelog", "4_y.changelog", "5_z.zip", "6_u.changelog", "7_v.changelog"]
    assert needed(names, {"5_z": packed()}) == {"5_z.zip", "6_u.changelog", "7_v.changelog"}
    with pytest.raises(StateGone):
        needed(["5_z.zip", "6_u.changelog", "6_w.changelog", "7_v.changelog"], {"5_z": packed()})


def test_stores_of_a_partition_have_folders_of_their_own() -> None:
    names = [*FIXED, *LOGS, *(f"state/0/1/left/{n}.delta" for n in range(1, 8)), "state/0/1/right/7.snapshot"]
    assert set(files_before(7, names, lambda name: b"")) == set(names)


def test_what_is_left_out() -> None:
    drafts = ["state/0/0/.7.delta.4711.tmp", "state/0/0/.7.delta.crc", "offsets/.7.crc", ".metadata.crc"]
    others = ["offsets/3", "commits/3", "commits/7", "eoslog/saved", "eoslog/edits/1/backup"]
    kept = ["eoslog/left", "eoslog/sink", "eoslog/sources", "sources/0/17", "sources/0/9.compact"]
    names = [*FIXED, *LOGS, *drafts, *others, *kept, *(f"state/0/0/{n}.delta" for n in range(1, 8))]
    found = set(files_before(7, names, lambda name: b""))
    assert found == set(names) - {*drafts, *others}


@given(st.integers(1, 40), st.sets(st.integers(1, 40)), st.integers(1, 40))
def test_any_history_can_be_read_back(batch: int, snapshots: set[int], oldest: int) -> None:
    """Deltas from some version on, and snapshots here and there: what is chosen is enough, and no more."""
    deltas = range(oldest, 41)
    names = [*(f"state/0/0/{n}.delta" for n in deltas), *(f"state/0/0/{n}.snapshot" for n in snapshots)]
    logs = [f"offsets/{batch}", f"offsets/{batch - 1}", f"commits/{batch - 1}"]
    begins = [n for n in {0, *snapshots} if n <= batch and {*range(n + 1, batch + 1)} <= {*deltas}]
    if not begins:
        with pytest.raises(StateGone):
            files_before(batch, [*names, *logs], lambda name: b"")
        return
    chosen = set(files_before(batch, [*names, *logs], lambda name: b"")) - set(logs)
    begin = max(begins)
    expected = {f"state/0/0/{n}.delta" for n in range(begin + 1, batch + 1)}
    assert chosen == expected | ({f"state/0/0/{begin}.snapshot"} if begin else set())


@pytest.mark.parametrize(
    "name", ["../x", "state/../../x", "/etc/passwd", "state//x", "state/./x", "", "x", "eoslog/1"]
)
def test_a_name_does_not_lead_out_of_the_folder(name: str) -> None:
    assert not is_of_checkpoint(name)


def test_which_files_never_change() -> None:
    fixed = ["0/0/7.delta", "0/0/7_a.zip.crc", "0/0/SSTs/a.sst", "1/2/left/9.snapshot"]
    assert all(is_versioned(f"state/{name}") for name in fixed)
    assert not any(map(is_versioned, ["metadata", "state/0/_metadata/metadata", "eoslog/sink", "offsets/7"]))


# -- records -------------------------------------------------------------------------------------
# The records of a save.

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
        patch.setattr(state_files, "PIECE", 8)
        found = list(pieces("s", FILE, "n", data))
    assert b"".join(piece for _, piece in found) == data and found
    assert [key.number for key, _ in found] == list(range(len(found)))


def test_a_decided_batch_comes_back() -> None:
    one = DecidedBatch("v1\n{}\n{}", (3, 0), ())
    assert DecidedBatch.parse(one.text()) == one
