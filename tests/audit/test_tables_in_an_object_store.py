"""`eoslog audit --to parquet:URI` of a table in an object store, under the URIs that Spark's users write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.audit.filling import cluster_at, create, fill, split
from tests.audit.stored_tables import rows_of
from tests.audit.test_table_command import counts, refusal
from tests.audit.test_table_command import store as written
from tests.kit.object_stores import BUCKET, ObjectStore, object_store

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as started:
        yield started


@pytest.mark.parametrize("scheme", ["s3a", "s3", "s3n"])
def test_it_is_right_and_what_is_wrong_is_found(
    cluster_broker: Any, bucket: ObjectStore, tmp_path: Path, scheme: str
) -> None:
    topic = f"to-{scheme}"
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, topic, 1)
        fill(cluster, topic, split(100, 1))
    rows = rows_of(cluster_broker.bootstrap, topic, 1)
    for name, table in (("right", rows), ("wrong", pa.concat_tables([rows.slice(1), rows.slice(5, 2)]))):
        written(table, tmp_path / name)
        for path in (tmp_path / name).iterdir():
            bucket.put(f"{scheme}-{name}/{path.name}", path.read_bytes())
    assert counts(cluster_broker, topic, "--to", f"parquet:{scheme}://{BUCKET}/{scheme}-right") == {}
    found = counts(cluster_broker, topic, "--to", f"parquet:{scheme}://{BUCKET}/{scheme}-wrong")
    assert found == {"lost": 1, "doubled": 2}
    assert "there is no such" in refusal(
        cluster_broker, topic, "--to", f"parquet:{scheme}://{BUCKET}/nowhere"
    )
