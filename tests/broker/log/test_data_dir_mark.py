"""The mark of an orderly end: it speaks of one end, and of no life after it."""

from __future__ import annotations

from eoslog.broker.log.opening.data_dir import DataDir
from tests.broker.log.fakefs import FakeFileSystem, Outcome
from tests.broker.log.logkit import NOW


def opened(fs: FakeFileSystem) -> DataDir:
    return DataDir(fs, "/data", 1, NOW)


def test_a_life_that_has_begun_takes_the_mark_away_durably() -> None:
    """Else the next start after a power loss would believe logs that were in use."""
    fs = FakeFileSystem()
    first = opened(fs)
    assert not first.clean
    first.mark_clean()
    first.close()
    second = opened(fs)
    assert second.clean
    fs.crash(Outcome.NOTHING)
    third = opened(fs)
    assert not third.clean
    third.close()
    assert not opened(fs).clean, "nor did this one end in order"
