"""The table of PySparks: what failed, or did not run, is no success, and the page has what was kept."""

from argparse import Namespace
from pathlib import Path

import pytest

from tests.kit.program import ROOT
from tests.versions.kafka_results import Result, Results
from tests.versions.run_spark_versions import BEGIN, END, KEPT, PAGE, SUITES, chosen, put_into_page, table

GOOD = Result("4.0.5", "", "crash table", "2026-11-27", passed=12, skipped=1)
BAD = Result("4.1.4", "", "shadow", "2026-11-28", passed=3, failed=("test_take_over[now]",))


def test_what_failed_and_what_did_not_run_is_said() -> None:
    made = table(Results.of([BAD, GOOD])).splitlines()
    assert made[2].count("not run") == len(SUITES) - 2 and "| 12 passed, 1 skipped |" in made[2]
    assert "| [from 4.3 on](connector-options.md#by-version-of-pyspark) |" in made[2]
    assert "3 passed, **1 failed**" in made[3] and made[3].endswith("| 2026-11-28 |")
    assert made[-1] == "- 4.1.4, shadow: `test_take_over[now]`"


def test_the_page_has_what_was_kept() -> None:
    assert f"{BEGIN}\n{table(Results.read(KEPT))}\n{END}" in PAGE.read_text(), (
        "make test-spark-versions makes it"
    )


def test_a_page_without_a_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(ValueError, match="no lines"):
        put_into_page(Results.of([GOOD]), tmp_path / "page.md")


def test_every_file_of_a_suite_is_there() -> None:
    for suite in SUITES.values():
        assert all((ROOT / file).exists() for file in suite.files.split()), suite.files


def test_what_has_not_run_comes_first_and_what_a_version_lacks_never() -> None:
    kept = Results.of([BAD, GOOD])
    asked = Namespace(versions=["4.1.4", "4.0.5"], suites="shadow;crash table;named sources", missing=False)
    missing = [("4.1.4", "crash table"), ("4.0.5", "shadow")]
    assert chosen(asked, kept) == [*missing, ("4.0.5", "crash table"), ("4.1.4", "shadow")]
    assert chosen(Namespace(**vars(asked) | {"missing": True}), kept) == missing
