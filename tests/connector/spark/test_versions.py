"""What a version of PySpark has is known in one place, and what it lacks is said."""

import re
from pathlib import Path

import pytest

import eoslog
from eoslog.connector.options.source_and_sink import source_options
from eoslog.connector.source import reader
from eoslog.connector.spark import versions

PACKAGE = Path(eoslog.__file__).parent
ASKS = re.compile(
    r"pyspark\.__version__|pyspark\.sql\.streaming\.datasource|datasource_internal|DataSourceStreamArrowWriter"
    r"|to_arrow_schema|hasattr\(\w*DataSource"
)


def test_nothing_else_asks_what_pyspark_has() -> None:
    files = {path.resolve() for room in (PACKAGE, *PACKAGE.iterdir()) for path in room.rglob("*.py")}
    assert len(files) > 300
    assert [path.name for path in sorted(files) if ASKS.search(path.read_text())] == ["versions.py"]


def test_each_feature_begins_with_a_version_and_says_what_is_before() -> None:
    for one in versions.FEATURES.values():
        assert one.since in versions.VERSIONS
        assert bool(one.before) == (one.since != versions.OLDEST), one


def test_filters_that_this_pyspark_does_not_push_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "PUSHES_FILTERS", False)
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
    made = reader.BatchReader(source_options(given, stream=False))
    assert not hasattr(made, "pushFilters") or "pushFilters" not in vars(made)
    assert not caplog.messages
    reader.BatchReader(source_options({**given, "filter.push.down": "true"}, stream=False))
    assert "filter.push.down=true has no effect" in caplog.text
