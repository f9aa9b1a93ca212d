"""What Spark shows of eoslog: warnings as Spark's own lines, errors with the sentence first."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.sink import committer
from eoslog.connector.spark import logs
from eoslog.connector.spark.driver_stderr import stderr_of
from eoslog.connector.spark.plain_errors import KEPT, only_warned, pieces_plainly, plainly
from eoslog.errors import EoslogError, OptionError, WrongCluster
from tests.docs.test_errors import modules

# -- warnings ------------------------------------------------------------------------------------
# Warnings in Spark's Python processes: as Spark's own lines, once, and with the page that tells of them.

DOCS = Path(__file__).parents[3] / "docs"
LINE = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN eoslog: (.*)\n"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """As in a process that Spark has started: nobody has set logging up."""
    monkeypatch.setattr(logs, "is_sparks", lambda: True)
    logs.look_as_sparks()
    logs.look_as_sparks()
    yield logging.getLogger("eoslog.connector.somewhere")
    ours = logging.getLogger("eoslog")
    ours.handlers = [handler for handler in ours.handlers if not isinstance(handler, logs.AsSpark)]


def test_a_line_is_as_sparks_own_and_said_once(
    log: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # of pytest's
    for number in (1, 2, 1):
        log.warning("rows of batch %d may come twice", number)
    log.info("nobody asked for this")
    said = re.findall(LINE, capsys.readouterr().err)
    assert said == ["rows of batch 1 may come twice", "rows of batch 2 may come twice"]
    later = time.monotonic() + logs.REPEAT_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    log.warning("rows of batch %d may come twice", 1)
    assert re.fullmatch(LINE, capsys.readouterr().err)


def test_who_has_set_logging_up_has_it_all(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    kept: list[str] = []
    taker = logging.Handler()
    taker.emit = lambda record: kept.append(record.getMessage())  # type: ignore[method-assign]
    logging.root.addHandler(taker)
    log.warning("a warning")
    log.warning("a warning")
    assert (kept, capsys.readouterr().err) == (["a warning", "a warning"], "")


def test_a_program_of_the_users_is_left_alone() -> None:
    logs.look_as_sparks()
    assert not any(isinstance(handler, logs.AsSpark) for handler in logging.getLogger("eoslog").handlers)


def _warnings() -> Iterator[tuple[Path, ast.Call]]:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warning":
                yield path, node


def _pages(path: Path) -> set[str]:
    """Those of docs/errors/ are named by see(), which test_errors.py compares with them."""
    return set(re.findall(r"See ([a-z-]+\.md(?:#[a-z0-9-]+)?)", path.read_text()))


def _names_a_page(text: str) -> bool:
    return any(sign in text for sign in ("See ", "_SEE", "see("))


def test_every_warning_names_a_page_that_is_there() -> None:
    """The page stands in the call or, where the text is made elsewhere or shared, in a constant."""
    found = list(_warnings())
    assert len(found) > 15
    made_elsewhere = {
        "start_of_run.py": "new_checkpoint.py",
        "source_topics.py": "group_notes.py",
    }
    for path, call in found:
        first = ast.unparse(call.args[0])
        text = first if _names_a_page(first) else path.read_text()
        if isinstance(call.args[0], ast.Name) and path.name in made_elsewhere:
            text = next(one for one in modules() if one.name == made_elsewhere[path.name]).read_text()
        assert _names_a_page(text), f"{path.name}:{call.lineno}: {first}"
    pages = set[str]().union(*(_pages(path) for path in modules()))
    for page in pages:
        name, _, anchor = page.partition("#")
        titles = re.findall(r"(?m)^#+ (.*)$", (DOCS / name).read_text())
        anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, page


def test_two_write_to_a_log_file_and_neither_goes_over_the_other(tmp_path: Path) -> None:
    """As with `spark-submit ... 2> log`: the file is not opened for appending."""
    speaks = "sys.stdin.readline(); print('driver', file=sys.stderr, flush=True)"
    program = f"import sys; {speaks}; {speaks}"
    with (tmp_path / "log").open("w") as file:
        driver = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=file, text=True
        )
    assert driver.stdin is not None
    told = stderr_of(driver.pid)
    assert told is not None
    with open(told, "w", buffering=1) as ours:
        ours.write("guard\n")
        driver.stdin.write("\n")
        driver.stdin.flush()
        while "driver" not in (tmp_path / "log").read_text():
            assert driver.poll() is None
        ours.write("guard\n")
        driver.communicate("\n", timeout=30)
    assert (tmp_path / "log").read_text() == "guard\ndriver\nguard\ndriver\n"


def test_there_is_no_stderr_of_nobody() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert stderr_of(gone.pid) is None


@pytest.mark.parametrize("call", ["reader", "streamReader", "writer", "streamWriter"])
def test_they_look_so_from_the_first_call_on(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "is_sparks", lambda: True)
    more = {"subscribe": "t"} if call.lower().endswith("reader") else {"topic": "t"}
    made = EoslogDataSource({"kafka.bootstrap.servers": "one:1", **more})
    schema = StructType([StructField("value", StringType())])
    with suppress(EoslogError):
        getattr(made, call)(*([schema] if "subscribe" in more else [schema, False]))
    ours = logging.getLogger("eoslog")
    assert [handler for handler in ours.handlers if isinstance(handler, logs.AsSpark)]
    ours.handlers = [handler for handler in ours.handlers if not isinstance(handler, logs.AsSpark)]


# -- errors --------------------------------------------------------------------------------------
# What Spark shows of an error of eoslog's: the sentence, and hardly anything before it.


def deep(error: Exception, depth: int = 5) -> None:
    if depth:
        deep(error, depth - 1)
    try:
        raise KeyError("why")
    except KeyError as why:
        raise error from why


def lines(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


@pytest.fixture(params=[False, True], ids=["plain", "kept"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setenv(KEPT, "1")
    return bool(request.param)


def test_the_way_through_eoslog_is_left_out(kept: bool) -> None:
    with pytest.raises(WrongCluster) as raised:
        plainly(deep)(WrongCluster("a sentence"))
    said = lines(raised.value)
    assert said[-1] == "eoslog.errors.WrongCluster: a sentence"
    assert (
        any("in deep" in line for line in said) == kept and any("KeyError" in line for line in said) == kept
    )


def test_errors_without_a_sentence_of_ours_keep_it() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        plainly(deep)(ZeroDivisionError())
    assert any("in deep" in line for line in lines(raised.value))


def test_pieces_come_as_they_are_and_their_errors_plainly() -> None:
    def pieces() -> Iterator[int]:
        yield from (1, 2)
        deep(WrongCluster("a sentence"))

    seen: list[int] = []
    with pytest.raises(WrongCluster) as raised:
        seen.extend(pieces_plainly(pieces()))
    assert not any("in deep" in line for line in lines(raised.value))
    assert list(pieces_plainly(iter((1, 2)))) == [1, 2]


@pytest.mark.parametrize("call", ["writer", "streamWriter"])
def test_an_abort_that_fails_does_not_hide_why_the_batch_failed(
    call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark puts "Writing job failed." in place of the first error if an abort raises one."""

    def fails(*_: object) -> None:
        raise WrongCluster("a sentence")

    monkeypatch.setattr(committer, "abort_batch", fails)
    monkeypatch.setattr(committer, "abort_write", fails)
    made = EoslogDataSource({"kafka.bootstrap.servers": "one:1", "topic": "t"})
    writer = getattr(made, call)(StructType([StructField("value", StringType())]), False)
    writer.abort([], *([0] if call == "streamWriter" else []))
    assert "could not be ended: WrongCluster: a sentence. Readers" in caplog.text
    with pytest.raises(ZeroDivisionError):
        only_warned(lambda: [1 // 0].clear())()


@pytest.mark.parametrize("call", ["reader", "streamReader"])
def test_a_wrong_option_is_seen_within_a_few_lines(call: str) -> None:
    options = {"kafka.bootstrap.servers": "one:1", "subscribe": "t", "startingOffsets": "earlyest"}
    schema = StructType([StructField("value", StringType())])
    with pytest.raises(OptionError) as raised:
        getattr(EoslogDataSource(options), call)(schema)
    ours = [line for line in lines(raised.value) if "/connector/" in line and __file__ not in line]
    assert len(ours) == 1


def test_a_source_s_wrong_option_is_said_when_it_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    good = {"kafka.bootstrap.servers": "one:1", "subscribe": "t"}
    with pytest.raises(OptionError, match="did you mean earliest"):
        EoslogDataSource(good | {"startingOffsets": "earlyest"}).schema()
    for either in (
        {},
        {"endingOffsets": "latest"},
        {"maxOffsetsPerTrigger": "5"},
        {"startingOffsets": "latest"},
    ):
        assert EoslogDataSource(good | either).schema()
    assert not caplog.text, "which of both it is will be known later"
