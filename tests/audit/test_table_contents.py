"""`eoslog audit TOPIC --to TABLE --content` or `--key`: rows that say nothing of partitions and offsets."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog.audit.table import files
from tests.audit import stored_tables
from tests.audit.filling import cluster_at, create, fill, split
from tests.audit.stored_tables import HURTS, rows_of
from tests.audit.test_audit_command import written
from tests.audit.test_table_command import audit, counts, refusal, store

TOPIC, PARTITIONS = "to-contents", 3
PLACES = ["--column", "topic=", "--column", "partition=", "--column", "offset="]


@pytest.fixture(scope="module")
def rows(cluster_broker: Any) -> pa.Table:
    """A thousand records, each with a key of its own, behind some that were aborted."""
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, TOPIC, PARTITIONS)
        fill(cluster, TOPIC, split(1000, PARTITIONS))
    return rows_of(cluster_broker.bootstrap, TOPIC, PARTITIONS)


BY_CONTENT = {
    "nothing": {}, "shuffled": {}, "removed": {"lost": 1}, "doubled": {"doubled": 1},
    "altered": {"lost": 1, "foreign": 1}, "key altered": {"lost": 1, "foreign": 1}, "moved": {},
    "aborted": {"doubled": 1}, "foreign": {},
}  # fmt: skip
BY_KEY = BY_CONTENT | {"altered": {}}


@pytest.mark.parametrize("how", HURTS)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_is_right_or_what_is_wrong_is_found(
    cluster_broker: Any, rows: pa.Table, tmp_path: Path, catalog: Any, kind: str, how: str
) -> None:
    to = stored_tables.store(kind, HURTS[how][0](rows), tmp_path / "table", catalog)
    assert counts(cluster_broker, TOPIC, "--to", to, "--content", *PLACES) == BY_CONTENT[how]
    assert counts(cluster_broker, TOPIC, "--to", to, "--key") == BY_KEY[how]


@pytest.mark.parametrize("seed", range(6))
def test_it_counts_as_a_plain_judge_does(cluster_broker: Any, tmp_path: Path, seed: int) -> None:
    """Records that repeat, and nulls; what is equal must be there as often."""
    draw = random.Random(seed)
    keys, values = [None, b"", b"a", b"b"], [None, b"", b"1", b"2", b"3"]
    records = [(draw.choice(keys), draw.choice(values)) for _ in range(200)]
    name = written(cluster_broker, records)
    kept = [one for one in records for _ in range(draw.choice([0, 1, 1, 1, 2]))]
    kept += [(draw.choice(keys), b"other") for _ in range(draw.randrange(4))]
    draw.shuffle(kept)
    columns = list(zip(*kept, strict=True))
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    table = pa.table([pa.array(one, pa.binary()) for one in columns], schema=schema)
    to = store(table, tmp_path)
    for by_value, arguments in ((False, []), (True, ["--column", "key="])):
        source = Counter(one[1] if by_value else one for one in records)
        target = Counter(one[1] if by_value else one for one in kept)
        foreign = sum(n for one, n in target.items() if one not in source)
        expected = {
            "lost": (source - target).total(), "doubled": (target - source).total() - foreign,
            "foreign": foreign,
        }  # fmt: skip
        found = counts(cluster_broker, name, "--to", to, "--content", *arguments)
        assert found == {kind: n for kind, n in expected.items() if n}


def test_the_findings_are_told_with_their_places(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    to = store(rows.select(["key", "value"]), tmp_path)
    result = audit(cluster_broker, TOPIC, "--to", to, "--content")
    assert result.exit_code == 0, result.output
    assert "compared by content (key, value)\n" in result.output
    assert result.output.endswith("right: 1,000 records are in the table exactly once\n")
    more = pa.table({"key": [rows["key"][7].as_py(), b"no"], "value": [rows["value"][7].as_py(), b"no"]})
    pq.write_table(more, tmp_path / "z.parquet")
    result = audit(cluster_broker, TOPIC, "--to", to, "--content")
    where = f"to-contents-{rows['partition'][7]} offset {rows['offset'][7]}"
    assert "doubled: 1 once more in the table\n" in result.output
    assert f"row 0 of z.parquet repeats row 7 of part-0.parquet, both are {where}\n" in result.output
    assert "foreign: 1 like no record of the topic\n  row 1 of z.parquet\n" in result.output
    assert result.exit_code == 1 and result.output.endswith("WRONG: 1 doubled, 1 foreign\n")
    allowed = audit(cluster_broker, TOPIC, "--to", to, "--content", "--allow-foreign", "--json")
    report = json.loads(allowed.stdout)
    assert (report["identity"], report["columns"]) == ("content", {"key": "key", "value": "value"})


def test_rows_are_numbered_through_all_pieces_of_a_file(
    cluster_broker: Any, rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 100)
    foreign = pa.table({"value": pa.array([b"no"], pa.binary())})
    whole = pa.concat_tables([rows.select(["value"]), foreign])
    pq.write_table(whole, tmp_path / "one.parquet")
    result = audit(cluster_broker, TOPIC, "--to", f"parquet:{tmp_path}", "--content")
    assert "foreign: 1 like no record of the topic\n  row 1000 of one.parquet\n" in result.output


def test_columns_may_have_other_names_and_types(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    text = pa.table({"k": rows["key"].cast(pa.string()), "body": rows["value"].cast(pa.large_string())})
    to = store(text, tmp_path)
    named = ["--column", "key=k", "--column", "value=body"]
    assert counts(cluster_broker, TOPIC, "--to", to, "--content", *named) == {}
    assert counts(cluster_broker, TOPIC, "--to", to, "--content", *named[2:]) == {}
    assert counts(cluster_broker, TOPIC, "--to", to, "--key", *named[:2]) == {}
    assert "has no column value: name it by" in refusal(cluster_broker, TOPIC, "--to", to, "--content")
    assert "has no column key: name it by" in refusal(cluster_broker, TOPIC, "--to", to, "--key")
    assert "or compare by --content or --key" in refusal(cluster_broker, TOPIC, "--to", to)


def test_what_may_still_come_is_pending(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    to = store(rows[:-1].select(["value"]), tmp_path)
    assert counts(cluster_broker, TOPIC, "--to", to, "--content") == {"lost": 1}
    assert counts(cluster_broker, TOPIC, "--to", to, "--content", "--grace", "36000") == {"pending": 1}


def test_records_and_rows_without_a_key(cluster_broker: Any, tmp_path: Path) -> None:
    name = written(cluster_broker, [(b"a", b"1"), (b"b", b"2")])
    table = pa.table({"key": pa.array([b"a", b"b", None], pa.binary())})
    assert counts(cluster_broker, name, "--to", store(table, tmp_path), "--key") == {"foreign": 1}
    name = written(cluster_broker, [(None, b"1")])
    said = refusal(cluster_broker, name, "--to", f"parquet:{tmp_path}", "--key")
    assert f"the record at offset 0 of {name}-0 has no key" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--key", "--content"], "give either --key or --content"),
        (["--content", "--all-headers"], "--all-headers: only for topics"),
        (["--key", "--order", "key"], "--order: only for topics"),
    ],
)
def test_a_wrong_argument_is_told(cluster_broker: Any, arguments: list[str], says: str) -> None:
    assert says in refusal(cluster_broker, TOPIC, "--to", "parquet:/x", *arguments)
