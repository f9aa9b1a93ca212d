"""What Spark shows of an error of eoslog's: the sentence, and hardly anything before it."""

import traceback
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.sink import committer
from eoslog.connector.spark.plain_errors import KEPT, only_warned, pieces_plainly, plainly
from eoslog.errors import OptionError, WrongCluster


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
    ours = [line for line in lines(raised.value) if "/connector/" in line and "test_plainly" not in line]
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
