"""The list of mutants fits the sources; `make mutants` runs them."""

from collections import Counter

import pytest

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.table import MUTANTS


def test_every_entry_fits_its_file() -> None:
    wrong = []
    for mutant in MUTANTS:
        try:
            mutant.broken(ROOT)
        except ValueError as error:
            wrong.append(str(error))
    assert wrong == [], "bring tests/mutants to what the sources say now"


def test_no_break_is_listed_twice() -> None:
    counted = Counter(mutant.title for mutant in MUTANTS) + Counter(
        (mutant.file, mutant.old, mutant.new) for mutant in MUTANTS
    )
    assert [key for key, times in counted.items() if times > 1] == []


def test_the_tests_that_are_named_are_there() -> None:
    for mutant in MUTANTS:
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), mutant.title


@pytest.mark.parametrize("old", ["nowhere in it", "import"])
def test_an_entry_that_does_not_fit_is_an_error(old: str) -> None:
    broken = Mutant("connector/client/records/send_window.py", "odd", old, "", (), False)
    with pytest.raises(ValueError, match="correct the entry"):
        broken.broken(ROOT)
