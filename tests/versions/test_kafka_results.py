"""The table of versions: nothing that failed, or did not run, looks like a success."""

from pathlib import Path
from typing import Any

import pytest

from tests.versions import kafka_results
from tests.versions.kafka_results import (
    RELEASED,
    WHOLE,
    Result,
    Results,
    cell,
    levels_of,
    of_junit,
    put_into_page,
)
from tests.versions.run_kafka_versions import PLACES, ROOT, files_of

GOOD = Result("3.9.1", "", "client", "2026-11-24", passed=12, skipped=1)
BAD = Result("4.0.1", "2", "crash table", "2026-11-25", passed=3, failed=("test_driver_killed[begun]",))


def test_what_failed_and_what_did_not_run_is_said() -> None:
    table = Results.of([BAD, GOOD]).table()
    old, new = [line for line in table.splitlines() if line[:3] in ("| 3", "| 4")]
    assert "| 12 passed, 1 skipped | not run | not run | not run | not run |" in old and "2026-11-24" in old
    assert "**1 failed**" in new and new.count("not run") == 4
    assert "- 4.0.1 with transaction.version 2, crash table: `test_driver_killed[begun]`" in table


def test_a_release_that_nothing_ran_on_is_said() -> None:
    said = "Not run on any: 3.3, 3.4, 3.5, 3.6, 3.7, 3.8, 4.1, 4.2, 4.3."
    assert said in Results.of([BAD, GOOD]).table().splitlines()
    everywhere = Results.of(Result(f"{one}.0", "", "sink", "2026-11-24", 1) for one in RELEASED)
    assert "Not run" not in everywhere.table()


def test_where_lost_rows_cannot_be_replayed_is_said() -> None:
    """On the page of clusters, and on the one that offers on.lost.transaction=replay."""
    replay = "test_participant_timed_out_after_the_decision_and_is_replayed"
    nodes = {(one.version, one.level) for one in Results.read().found.values() if replay in one.failed}
    for page in ("cluster.md", "recovering.md"):
        text = " ".join((kafka_results.DOCS / page).read_text().split())
        for version, level in nodes:
            assert f"Apache Kafka {version} with `transaction.version` {level}" in text, page


def test_a_run_without_tests_is_no_success() -> None:
    assert cell([Result("3.9.1", "", "sink", "2026-11-24", skipped=9)]) == "**nothing ran**"


def of_file(file: str, **more: Any) -> Result:
    return Result("3.9.1", "", "sink", "2026-11-24", file=file, of=3, **more)


def test_a_suite_that_ran_in_part_is_no_whole_one() -> None:
    first, second = of_file("a.py", passed=2), of_file("b.py", passed=3, skipped=1)
    assert cell([first, second]) == "2 of 3 files: 5 passed, 1 skipped"
    red = of_file("c.py", failed=("test_x",))
    assert cell([first, second, red]) == "5 passed, 1 skipped, **1 failed**"


def test_what_is_missing_and_what_has_failed_is_run_again() -> None:
    files, place = ["a.py", "b.py", "c.py"], ("3.9.1", "", "sink")
    kept = Results()
    assert kept.missing(*place, files) == files and kept.failed(*place, files) == []
    kept.add(of_file("a.py", passed=1))
    kept.add(of_file("b.py", failed=("test_x",)))
    assert kept.missing(*place, files) == ["c.py"] and kept.failed(*place, files) == ["b.py"]
    assert kept.missing("3.9.1", "", "source", files) == files, "another suite"


def test_files_replace_what_ran_as_a_whole() -> None:
    files, place = ["a.py", "b.py", "c.py"], ("3.9.1", "", "sink")
    kept = Results()
    kept.add(Result(*place, "2026-11-23", passed=9, failed=("test_x",)))
    assert kept.missing(*place, files) == [] and kept.failed(*place, files) == files
    kept.add(of_file("a.py", passed=1))
    assert kept.missing(*place, files) == ["b.py", "c.py"] and len(kept.found) == 1


def test_every_suite_has_files_and_the_copy_is_one_run() -> None:
    assert files_of("copy") == [WHOLE]
    for suite in PLACES:
        assert files_of(suite) and all((ROOT / file).is_file() for file in files_of(suite))


def test_a_later_result_replaces_the_earlier_one(tmp_path: Path) -> None:
    later = BAD.__class__(*BAD.place, "2026-11-26", passed=4)
    place = tmp_path / "kept.json"
    Results.of([BAD, later]).write(place)
    assert Results.read(place).found == {BAD.key: later}


def test_versions_are_in_the_order_of_numbers() -> None:
    assert levels_of("4.0.1") == ("1", "2") and levels_of("3.9.1") == ("", "ZooKeeper")
    names = ("3.10.0", "3.9.1", "4.0.1")
    lines = Results.of(Result(name, "", "sink", "2026-11-24", 1) for name in names).table().splitlines()
    lines = [line for line in lines if line[:3] in ("| 3", "| 4")]
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
    page = tmp_path / "evidence.md"
    page.write_text(kafka_results.PAGE.read_text())
    put_into_page(Results.read(), page)
    assert page.read_text() == kafka_results.PAGE.read_text()
    page.write_text("no table")
    with pytest.raises(ValueError, match="no lines"):
        put_into_page(Results.read(), page)
