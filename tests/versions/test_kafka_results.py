"""The table of versions: nothing that failed, or did not run, looks like a success."""

from pathlib import Path

import pytest

from tests.versions import kafka_results
from tests.versions.kafka_results import Result, Results, levels_of, of_junit, put_into_page

GOOD = Result("3.9.1", "", "client", "2026-11-24", passed=12, skipped=1)
BAD = Result("4.0.1", "2", "crash table", "2026-11-25", passed=3, failed=("test_driver_killed[begun]",))


def test_what_failed_and_what_did_not_run_is_said() -> None:
    table = Results.of([BAD, GOOD]).table()
    old, new = [line for line in table.splitlines() if line[:3] in ("| 3", "| 4")]
    assert "| 12 passed, 1 skipped | not run | not run | not run | not run |" in old and "2026-11-24" in old
    assert "**1 failed**" in new and new.count("not run") == 4
    assert "- 4.0.1, crash table: `test_driver_killed[begun]`" in table


def test_a_run_without_tests_is_no_success() -> None:
    assert Result("3.9.1", "", "sink", "2026-11-24", skipped=9).cell == "**nothing ran**"


def test_a_later_result_replaces_the_earlier_one(tmp_path: Path) -> None:
    later = BAD.__class__(*BAD.key, "2026-11-26", passed=4)
    place = tmp_path / "kept.json"
    Results.of([BAD, later]).write(place)
    assert Results.read(place).found == {BAD.key: later}


def test_versions_are_in_the_order_of_numbers() -> None:
    assert levels_of("4.0.1") == ("1", "2") and levels_of("3.9.1") == ("",)
    names = ("3.10.0", "3.9.1", "4.0.1")
    lines = Results.of(Result(name, "", "sink", "2026-11-24", 1) for name in names).table().splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["3.9.1", "3.10.0", "4.0.1"]


def test_pytest_s_report_is_read(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(
        '<testsuites><testsuite><testcase name="good"/><testcase name="bad"><failure/></testcase>'
        '<testcase name="torn"><error/></testcase><testcase name="left out"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    assert of_junit(tmp_path / "report.xml") == (1, 1, ("bad", "torn"))


def test_the_page_has_the_kept_results(tmp_path: Path) -> None:
    """Nobody has edited the table by hand; and a page without a place for it is an error."""
    page = tmp_path / "cluster.md"
    page.write_text(kafka_results.PAGE.read_text())
    put_into_page(Results.read(), page)
    assert page.read_text() == kafka_results.PAGE.read_text()
    page.write_text("no table")
    with pytest.raises(ValueError, match="no lines"):
        put_into_page(Results.read(), page)
