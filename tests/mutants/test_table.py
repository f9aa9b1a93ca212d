"""The list of mutants fits the sources; `make mutants` runs them."""

from collections import Counter

import pytest

from tests.mutants.mutant import ROOT, Mutant, whole
from tests.mutants.table import MUTANTS


def test_every_entry_fits_the_sources() -> None:
    wrong = []
    for mutant in MUTANTS:
        try:
            _ = mutant.title
        except ValueError as error:
            wrong.append(str(error))
    assert wrong == [], "bring tests/mutants to what the sources say now"


def test_a_break_breaks_its_file_after_many_others_were_read() -> None:
    """More files than are kept in memory were parsed since: a place of one parse is none in the next."""
    for mutant in MUTANTS:
        _ = mutant.title
    some = MUTANTS[::20]
    assert [mutant.title for mutant in some if mutant.broken() == whole(mutant.file)] == []


def test_no_break_is_listed_twice() -> None:
    counted = Counter(mutant.title for mutant in MUTANTS) + Counter((mutant.file, mutant.symbol, mutant.old, mutant.new) for mutant in MUTANTS)
    assert [key for key, times in counted.items() if times > 1] == []


def test_the_tests_that_are_named_are_there() -> None:
    for mutant in MUTANTS:
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), mutant.title


def test_a_break_is_found_by_its_shape_however_it_is_written() -> None:
    odd = Mutant("odd", "Unanswered.judge", "code==   ( ErrorCode.NONE )", "True", (), False)
    assert odd.file == "client/records/produce.py"
    assert "code == ErrorCode.NONE" not in odd.broken()


@pytest.mark.parametrize(("symbol", "old"), [("Unanswered", "nowhere"), ("Unanswered.judge", "batch"), ("nobody.Unanswered", "code")])
def test_an_entry_that_does_not_fit_is_an_error(symbol: str, old: str) -> None:
    with pytest.raises(ValueError, match="correct the entry"):
        Mutant("odd", symbol, old, "None", (), False).broken()


def test_what_cannot_be_compiled_is_no_break() -> None:
    with pytest.raises(SyntaxError):
        Mutant("odd", "Unanswered.oldest", "return self._waiting[batch.where][0] == batch.number", "break", (), False).broken()
