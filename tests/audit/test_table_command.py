"""`eoslog audit TOPIC --to TABLE`: by places, by contents, and of tables in an object store."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.audit.table import files, postgres
from eoslog.audit.table.postgres import PostgresTable
from eoslog.cli import main
from tests.audit import auditkit
from tests.audit.auditkit import HURTS_STORED_TABLES, SCHEMA, cluster_at, create, fill, halves, rows_of, split
from tests.audit.test_audit_command import Message, open_transaction, topic, write, written
from tests.fanout.postgres_server import NEEDS_SERVER, PostgresServer
from tests.kit.object_stores import BUCKET, ObjectStore, object_store

# -- by partition and offset -----------------------------------------------------------------------
# `eoslog audit TOPIC --to parquet:PATH` on a cluster: what it finds, what it says, and how it leaves.


TOPIC, PARTITIONS = "to-tables", 3


def audit(broker: Any, *arguments: str) -> Result:
    given = ["audit", *arguments, "--bootstrap-server", broker.bootstrap, "--timeout", "60"]
    return CliRunner().invoke(main, given)


def counts(broker: Any, *arguments: str) -> dict[str, int]:
    """How many of each kind that there are any of."""
    result = audit(broker, *arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    report = json.loads(result.stdout)
    assert report["right"] == (result.exit_code == 0)
    others = ("source", "target", "matched")
    return {kind: n for kind, n in report["counts"].items() if n and kind not in others}


def refusal(broker: Any, *arguments: str) -> str:
    result = audit(broker, *arguments)
    assert result.exit_code == 2, result.output
    return str(result.stderr)


@pytest.fixture(scope="module")
def rows(cluster_broker: Any) -> pa.Table:
    """A thousand records in transactions, behind some that were aborted."""
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, TOPIC, PARTITIONS)
        fill(cluster, TOPIC, split(1000, PARTITIONS))
    return rows_of(cluster_broker.bootstrap, TOPIC, PARTITIONS)


def store(rows: pa.Table, folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    for number, half in enumerate(halves(rows)):
        pq.write_table(half, folder / f"part-{number}.parquet")
    return f"parquet:{folder}"


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def database(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """A server with the database that libpq's environment variables name."""
    server = postgres_server
    for name, value in {
        "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "writer", "PGDATABASE": "shop",
        "PGPASSFILE": str(server.passwords),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return server


KINDS = ["parquet", "delta", "iceberg", pytest.param("postgres", marks=NEEDS_SERVER)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", HURTS_STORED_TABLES)
def test_a_table_is_right_or_what_is_wrong_is_found(
    cluster_broker: Any, rows: pa.Table, tmp_path: Path, catalog: Any, kind: str, how: str,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if kind == "postgres":
        request.getfixturevalue("database")
    hurt, expected = HURTS_STORED_TABLES[how]
    to = auditkit.store(kind, hurt(rows), tmp_path / "table", catalog)
    assert counts(cluster_broker, TOPIC, "--to", to) == expected


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_version_is_told_and_may_be_an_older_one(
    cluster_broker: Any, rows: pa.Table, tmp_path: Path, catalog: Any, kind: str
) -> None:
    to = auditkit.store(kind, pa.concat_tables([rows, rows]), tmp_path / "table", catalog)
    second = audit(cluster_broker, TOPIC, "--to", to, "--json")
    assert json.loads(second.stdout)["counts"]["doubled"] == 1000
    assert json.loads(second.stdout)["table"].startswith(f"{to}@")
    first = catalog.load_table("ns.table").snapshots()[0].snapshot_id if kind == "iceberg" else 0
    assert f"({to}@{first})" in audit(cluster_broker, TOPIC, "--to", f"{to}@{first}").output
    assert counts(cluster_broker, TOPIC, "--to", f"{to}@{first}") == {}
    assert "@7" in refusal(cluster_broker, TOPIC, "--to", f"{to}@7")


def test_the_findings_are_told_with_their_places(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    to = store(rows, tmp_path)
    result = audit(cluster_broker, TOPIC, "--to", to)
    assert result.exit_code == 0
    assert "topic: 1,000 records (to-tables-0 " in result.output
    assert f"table: 1,000 rows in 2 files ({to})\n" in result.output
    assert "compared by partition, offset, key, value\n" in result.output
    assert result.output.endswith("right: 1,000 records are in the table exactly once\n")
    pq.write_table(rows[7:9], tmp_path / "z.parquet")
    result = audit(cluster_broker, "--from", TOPIC, "--to", to, "--show", "1")
    where = f"to-tables-{rows['partition'][7]} offset {rows['offset'][7]}"
    assert result.exit_code == 1
    assert "doubled: 2 once more in the table\n" in result.output
    assert f"row 0 of z.parquet repeats row 7 of part-0.parquet, both are {where}\n" in result.output
    assert "  ... and 1 more\nWRONG: 2 doubled\n" in result.output


def test_columns_may_have_other_names_and_types(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    text = pa.table({
        "at": rows["offset"].cast(pa.int32()), "part": rows["partition"].cast(pa.uint64()),
        "from": rows["topic"].combine_chunks().dictionary_encode(), "k": rows["key"].cast(pa.string()),
        "body": rows["value"].cast(pa.large_string()), "value": pa.array([1.5] * len(rows)),
    })  # fmt: skip
    to = store(text, tmp_path)
    names = [f"--column={p}" for p in ("offset=at", "partition=part", "topic=from", "key=k", "value=body")]
    assert counts(cluster_broker, TOPIC, "--to", to, *names) == {}
    assert "no columns partition and offset" in refusal(cluster_broker, TOPIC, "--to", to, "--column=value=")
    wrong = [*names[:-1]]
    assert "column value has the type double" in refusal(cluster_broker, TOPIC, "--to", to, *wrong)
    assert counts(cluster_broker, TOPIC, "--to", to, *wrong, "--column", "value=") == {}
    assert "has no column nope" in refusal(cluster_broker, TOPIC, "--to", to, "--column", "key=nope")
    assert "the parts of a record are" in refusal(cluster_broker, TOPIC, "--to", to, "--column", "time=at")


def test_without_a_topic_column_only_one_topic_can_be_audited(
    cluster_broker: Any, rows: pa.Table, tmp_path: Path
) -> None:
    to = store(rows.drop_columns(["topic", "value"]), tmp_path)
    result = audit(cluster_broker, TOPIC, "--to", to)
    assert result.exit_code == 0 and "compared by partition, offset, key\n" in result.output
    other = topic(cluster_broker)
    assert "has no column topic" in refusal(cluster_broker, TOPIC, other, "--to", to)
    assert counts(cluster_broker, TOPIC, other, "--to", store(rows, tmp_path / "whole")) == {}
    only = store(rows.select(["partition", "offset"]), tmp_path / "only")
    assert "whether rows were altered is not checked" in audit(cluster_broker, TOPIC, "--to", only).output


def test_rows_of_records_that_are_gone_cannot_be_checked(cluster_broker: Any, tmp_path: Path) -> None:
    name = written(cluster_broker, [(b"%d" % n, b"v") for n in range(20)])
    rows = rows_of(cluster_broker.bootstrap, name, 1)
    admin = AdminClient({"bootstrap.servers": cluster_broker.bootstrap})
    admin.delete_records([TopicPartition(name, 0, 5)])[TopicPartition(name, 0)].result(60)
    to = store(rows, tmp_path)
    result = audit(cluster_broker, name, "--to", to)
    assert result.exit_code == 0
    said = "right: 15 records are in the table exactly once; 5 rows could not be checked\n"
    assert result.output.endswith(said)
    assert f"row 0 of part-0.parquet is {name}-0 offset 0\n" in result.output
    bounded = [name, "--to", to, "--from-start", "0:10", "--from-end", "0:15"]
    assert counts(cluster_broker, *bounded) == {"outside_of_bounds": 15}
    assert "15 rows are outside of --from-start and --from-end" in audit(cluster_broker, *bounded).output
    store(pa.concat_tables([rows, rows[2:3]]), tmp_path)
    assert counts(cluster_broker, name, "--to", to) == {"unchecked": 5, "doubled": 1}


def test_a_compacted_topic_tells_aborted_records_from_removed_ones(
    cluster_broker: Any, tmp_path: Path
) -> None:
    """Rows at offsets of aborted records are phantoms; nobody knows what was at a marker's offset."""
    name = topic(cluster_broker) + "-compacted"
    admin = AdminClient({"bootstrap.servers": cluster_broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})])[name].result(60)
    write(cluster_broker, name, [(b"k", b"v")])
    with open_transaction(cluster_broker, name) as producer:
        producer.produce(name, b"aborted", b"k2", 0)
        producer.flush(60)
    rows = rows_of(cluster_broker.bootstrap, name, 1)
    more = [{"key": b"k", "value": b"v", "topic": name, "partition": 0, "offset": n} for n in (1, 2)]
    to = store(pa.concat_tables([rows, pa.Table.from_pylist(more, SCHEMA)]), tmp_path)
    assert counts(cluster_broker, name, "--to", to) == {"phantom": 1, "unchecked": 1}


def test_rows_of_an_open_transaction_are_phantoms(cluster_broker: Any, tmp_path: Path) -> None:
    name = written(cluster_broker, [(b"k", b"v")])
    rows = rows_of(cluster_broker.bootstrap, name, 1)
    with open_transaction(cluster_broker, name) as producer:
        producer.produce(name, b"open", b"k2", 0)
        producer.flush(60)
        more = [{"key": b"k2", "value": b"open", "topic": name, "partition": 0, "offset": 1}]
        to = store(pa.concat_tables([rows, pa.Table.from_pylist(more, SCHEMA)]), tmp_path)
        result = audit(cluster_broker, name, "--to", to)
        assert result.exit_code == 1 and result.output.endswith("WRONG: 1 phantom\n")
        assert "hidden by an open transaction" in result.output


def test_what_may_still_come_is_pending(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    to = store(rows[:-1], tmp_path)
    assert counts(cluster_broker, TOPIC, "--to", to) == {"lost": 1}
    assert counts(cluster_broker, TOPIC, "--to", to, "--grace", "36000") == {"pending": 1}


def test_foreign_rows_may_be_allowed(cluster_broker: Any, rows: pa.Table, tmp_path: Path) -> None:
    to = store(pa.concat_tables([rows, HURTS_STORED_TABLES["foreign"][0](rows)[123:124]]), tmp_path)
    assert audit(cluster_broker, TOPIC, "--to", to).exit_code == 1
    assert audit(cluster_broker, TOPIC, "--to", to, "--allow-foreign").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--to", "parquet:/nowhere"], "parquet:/nowhere: there is no such folder or file"),
        (["--to", "parquet:"], "give a topic, or a table as parquet:PATH, delta:PATH[@VERSION], iceberg:"),
        (["--to", "delta:/nowhere"], "delta:/nowhere: there is no such Delta table"),
        (["--to", "iceberg:t"], "iceberg:t: give catalog, namespace and table"),
        (["--to", "orc:/x"], "--to orc:/x: give a topic, or a table as"),
        (["--to", "parquet:nope://x"], "nope"),
        (["--to", "parquet:/x", "--to", "other"], "give no other --to"),
        (["--to", "parquet:/x", "--order", "key"], "--order: only for topics"),
        (["--to", "parquet:/x", "--to-end", "latest", "--header", "id"], "--to-end, --header: only for"),
        (["--to", "parquet:/x", "--column", "offset"], "--column offset: give NAME=VALUE"),
        (["--to", "other", "--column", "offset=o"], "--column is for tables"),
        (["--to", "other", "--newest"], "--newest is for tables"),
        (["--to", "parquet:/x", "--deletes", "op=d"], "--deletes is for --newest"),
        (["--to", "parquet:/x", "--newest", "--grace", "5", "--key"], "--key, --grace: not with --newest"),
        (["--to", "parquet:/x", "--newest", "--deletes", "d"], "--deletes d: give NAME=VALUE"),
    ],
)
def test_a_wrong_argument_is_told(cluster_broker: Any, arguments: list[str], says: str) -> None:
    assert says in refusal(cluster_broker, TOPIC, *arguments)


def test_a_topic_must_be_given(cluster_broker: Any) -> None:
    assert "give the topic to audit" in refusal(cluster_broker, "--to", "parquet:/x")


def test_an_empty_folder_is_no_table(cluster_broker: Any, tmp_path: Path) -> None:
    assert "has no files" in refusal(cluster_broker, TOPIC, "--to", f"parquet:{tmp_path}")


@NEEDS_SERVER
def test_postgresql_shows_each_value_as_it_is(
    cluster_broker: Any, database: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What CSV has quotes for, nothing, no bytes, bytes that are no text, and more than a piece of a file."""
    monkeypatch.setattr(postgres, "BATCH_BYTES", 64)
    values = [None, b"", b"\\x00", b'a "quoted", one\r\n\\.\n', "\u00e9\u4e2d".encode(), b"," * 3000, b"end"]
    texts = [f"{n}:".encode() + (value or b"") for n, value in enumerate(values)]
    name = written(cluster_broker, [(b"k", value) for value in [*values, *texts, b"\xff\x00" * 100]])
    with database.connected() as connection:
        connection.execute('CREATE TABLE "odd ""name" (value bytea, "offset" bigint)')
        connection.execute("CREATE TABLE texts (value text)")
        with connection.cursor() as cursor:
            cursor.executemany('INSERT INTO "odd ""name" VALUES (%s, %s)', [
                (value, offset) for offset, value in enumerate([*values, *texts, b"\xff\x00" * 100])
            ])  # fmt: skip
            cursor.executemany("INSERT INTO texts VALUES (%s)", [(text.decode(),) for text in texts])
    assert counts(cluster_broker, name, "--to", 'postgres:odd "name') == {}
    bounds = ["--from-start", f"0:{len(values)}", "--from-end", f"0:{2 * len(values)}"]
    assert counts(cluster_broker, name, "--to", "postgres:texts", "--content", *bounds) == {}
    database.do("UPDATE texts SET value = '1: ' WHERE value = '1:'")
    assert counts(cluster_broker, name, "--to", "postgres:public.texts", "--content", *bounds) == {
        "lost": 1, "foreign": 1,
    }  # fmt: skip


@NEEDS_SERVER
def test_a_postgresql_table_is_read_as_it_is_when_the_audit_begins(
    cluster_broker: Any, database: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(cluster_broker, [(b"k", b"v")] * 3)
    database.do('CREATE TABLE moving ("offset" bigint)', "INSERT INTO moving SELECT generate_series(0, 2)")
    begun = PostgresTable.batches

    def others_write(*given: Any) -> Iterator[pa.RecordBatch]:
        database.do("DELETE FROM moving", "INSERT INTO moving VALUES (0), (0)")
        return begun(*given)

    monkeypatch.setattr(PostgresTable, "batches", others_write)
    assert counts(cluster_broker, name, "--to", "postgres:moving") == {}
    assert counts(cluster_broker, name, "--to", "postgres:moving") == {"lost": 2, "doubled": 1}
    assert "has no such table" in refusal(cluster_broker, name, "--to", "postgres:nowhere.moving")
    database.do("CREATE TABLE other (n int)")
    assert "has no columns partition and offset" in refusal(cluster_broker, name, "--to", "postgres:other")
    database.kill()
    assert "PostgreSQL does not show it: " in refusal(cluster_broker, name, "--to", "postgres:moving")
    database.start()


def changed(key: int, op: str, *, has_schema: bool = False) -> Message:
    row = {"id": key, "name": "x\n"}
    said = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
    told = {"schema": {}, "payload": said} if has_schema else said
    return (json.dumps({"id": key}).encode(), json.dumps(told, indent=1).encode())


def test_a_table_of_changes_has_the_newest_of_each_key(cluster_broker: Any, tmp_path: Path) -> None:
    """Debezium's, with schema and without; a tombstone; a delete without one."""
    of_0 = [changed(1, "c"), changed(2, "c"), changed(1, "u", has_schema=True), changed(2, "d"),
            (b'{"id": 2}', None), changed(3, "r"), changed(4, "c")]  # fmt: skip
    of_1 = [changed(5, "c"), changed(5, "d", has_schema=True), changed(6, "c")]
    name = written(cluster_broker, of_0, of_1)
    places = [(0, 2), (0, 5), (0, 6), (1, 2)]

    def told(*rows: tuple[int, int]) -> str:
        table = pa.table({"partition": [one for one, _ in rows], "offset": [one for _, one in rows]})
        pq.write_table(table, tmp_path / "rows.parquet")
        return f"parquet:{tmp_path}"

    newest = ["--newest", "--deletes", "op=d,x"]
    result = audit(cluster_broker, name, "--to", told(*places), *newest)
    assert "compared by partition, offset; of each key the newest\n" in result.output
    assert result.output.endswith("right: 4 records are in the table exactly once\n")
    assert counts(cluster_broker, name, "--to", told(*places), "--newest") == {"lost": 1}
    hurt = [(0, 0), *places[1:], (0, 5), (1, 0), (1, 3)]
    result = audit(cluster_broker, name, "--to", told(*hurt), *newest)
    assert result.exit_code == 1
    assert result.output.endswith("WRONG: 1 lost, 1 doubled, 1 phantom, 2 older\n"), result.output
    assert (
        "older: 2 of records that a newer one of their key has replaced or deleted\n"
        f"  row 0 of rows.parquet is {name}-0 offset 0\n  row 5 of rows.parquet is {name}-1 offset 0\n"
    ) in result.output
    assert f"lost: 1 of the topic, the newest of their keys, not in the table\n  {name}-0 offset 2\n" in (
        result.output
    )


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([(b"a", b"1"), (None, b"2")], "the record at offset 1 of {}-0 has no key"),
        ([(b"a", b"text")], "--deletes op=...: a value of the topic is no such JSON"),
        ([(b"a", b'{"op":"d"} {"op":"d"}'), (b"b", b"{}")], "is not one JSON object"),
        ([(b"a", b""), (b"b", b"{}")], "is not one JSON object"),
        ([(b"a", b'{"op":1}')], "a value of the topic is no such JSON"),
    ],
)
def test_what_is_the_newest_must_be_known(
    cluster_broker: Any, tmp_path: Path, messages: list[Message], says: str
) -> None:
    name = written(cluster_broker, messages)
    pq.write_table(pa.table({"offset": [0]}), tmp_path / "rows.parquet")
    to = ["--to", f"parquet:{tmp_path}", "--newest", "--deletes", "op=d"]
    assert says.format(name) in refusal(cluster_broker, name, *to)


def test_without_a_partition_column_only_one_partition_can_be_audited(
    cluster_broker: Any, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"offset": [0]}), tmp_path / "rows.parquet")
    one, two = (written(cluster_broker, *([[(b"k", b"v")]] * parts)) for parts in (1, 2))
    assert counts(cluster_broker, one, "--to", f"parquet:{tmp_path}") == {}
    assert "no column partition" in refusal(cluster_broker, two, "--to", f"parquet:{tmp_path}")


# -- by contents -----------------------------------------------------------------------------------
# `eoslog audit TOPIC --to TABLE --content` or `--key`: rows that say nothing of partitions and offsets.


TOPIC_BY_CONTENT, PARTITIONS_BY_CONTENT = "to-contents", 3
PLACES = ["--column", "topic=", "--column", "partition=", "--column", "offset="]


@pytest.fixture(scope="module")
def rows_of_contents(cluster_broker: Any) -> pa.Table:
    """A thousand records, each with a key of its own, behind some that were aborted."""
    with cluster_at(cluster_broker.bootstrap) as cluster:
        create(cluster, TOPIC_BY_CONTENT, PARTITIONS_BY_CONTENT)
        fill(cluster, TOPIC_BY_CONTENT, split(1000, PARTITIONS_BY_CONTENT))
    return rows_of(cluster_broker.bootstrap, TOPIC_BY_CONTENT, PARTITIONS_BY_CONTENT)


BY_CONTENT = {
    "nothing": {}, "shuffled": {}, "removed": {"lost": 1}, "doubled": {"doubled": 1},
    "altered": {"lost": 1, "foreign": 1}, "key altered": {"lost": 1, "foreign": 1}, "moved": {},
    "aborted": {"doubled": 1}, "foreign": {},
}  # fmt: skip
BY_KEY = BY_CONTENT | {"altered": {}}


@pytest.mark.parametrize("how", HURTS_STORED_TABLES)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_is_right_or_what_is_wrong_is_found_by_content(
    cluster_broker: Any, rows_of_contents: pa.Table, tmp_path: Path, catalog: Any, kind: str, how: str
) -> None:
    to = auditkit.store(kind, HURTS_STORED_TABLES[how][0](rows_of_contents), tmp_path / "table", catalog)
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content", *PLACES) == BY_CONTENT[how]
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--key") == BY_KEY[how]


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


def test_the_findings_are_told_with_their_places_by_content(
    cluster_broker: Any, rows_of_contents: pa.Table, tmp_path: Path
) -> None:
    to = store(rows_of_contents.select(["key", "value"]), tmp_path)
    result = audit(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content")
    assert result.exit_code == 0, result.output
    assert "compared by content (key, value)\n" in result.output
    assert result.output.endswith("right: 1,000 records are in the table exactly once\n")
    more = pa.table(
        {
            "key": [rows_of_contents["key"][7].as_py(), b"no"],
            "value": [rows_of_contents["value"][7].as_py(), b"no"],
        }
    )
    pq.write_table(more, tmp_path / "z.parquet")
    result = audit(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content")
    where = f"to-contents-{rows_of_contents['partition'][7]} offset {rows_of_contents['offset'][7]}"
    assert "doubled: 1 once more in the table\n" in result.output
    assert f"row 0 of z.parquet repeats row 7 of part-0.parquet, both are {where}\n" in result.output
    assert "foreign: 1 like no record of the topic\n  row 1 of z.parquet\n" in result.output
    assert result.exit_code == 1 and result.output.endswith("WRONG: 1 doubled, 1 foreign\n")
    allowed = audit(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content", "--allow-foreign", "--json")
    report = json.loads(allowed.stdout)
    assert (report["identity"], report["columns"]) == ("content", {"key": "key", "value": "value"})


def test_rows_are_numbered_through_all_pieces_of_a_file(
    cluster_broker: Any, rows_of_contents: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 100)
    foreign = pa.table({"value": pa.array([b"no"], pa.binary())})
    whole = pa.concat_tables([rows_of_contents.select(["value"]), foreign])
    pq.write_table(whole, tmp_path / "one.parquet")
    result = audit(cluster_broker, TOPIC_BY_CONTENT, "--to", f"parquet:{tmp_path}", "--content")
    assert "foreign: 1 like no record of the topic\n  row 1000 of one.parquet\n" in result.output


def test_columns_may_have_other_names_and_types_by_content(
    cluster_broker: Any, rows_of_contents: pa.Table, tmp_path: Path
) -> None:
    text = pa.table(
        {
            "k": rows_of_contents["key"].cast(pa.string()),
            "body": rows_of_contents["value"].cast(pa.large_string()),
        }
    )
    to = store(text, tmp_path)
    named = ["--column", "key=k", "--column", "value=body"]
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content", *named) == {}
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content", *named[2:]) == {}
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--key", *named[:2]) == {}
    assert "has no column value: name it by" in refusal(
        cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content"
    )
    assert "has no column key: name it by" in refusal(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--key")
    assert "or compare by --content or --key" in refusal(cluster_broker, TOPIC_BY_CONTENT, "--to", to)


def test_what_may_still_come_is_pending_by_content(
    cluster_broker: Any, rows_of_contents: pa.Table, tmp_path: Path
) -> None:
    to = store(rows_of_contents[:-1].select(["value"]), tmp_path)
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content") == {"lost": 1}
    assert counts(cluster_broker, TOPIC_BY_CONTENT, "--to", to, "--content", "--grace", "36000") == {
        "pending": 1
    }


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
def test_a_wrong_argument_is_told_by_content(cluster_broker: Any, arguments: list[str], says: str) -> None:
    assert says in refusal(cluster_broker, TOPIC_BY_CONTENT, "--to", "parquet:/x", *arguments)


# -- in an object store ----------------------------------------------------------------------------
# `eoslog audit --to parquet:URI` of a table in an object store, under the URIs that Spark's users write.


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as started:
        yield started


@pytest.mark.long
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
        store(table, tmp_path / name)
        for path in (tmp_path / name).iterdir():
            bucket.put(f"{scheme}-{name}/{path.name}", path.read_bytes())
    assert counts(cluster_broker, topic, "--to", f"parquet:{scheme}://{BUCKET}/{scheme}-right") == {}
    found = counts(cluster_broker, topic, "--to", f"parquet:{scheme}://{BUCKET}/{scheme}-wrong")
    assert found == {"lost": 1, "doubled": 2}
    assert "there is no such" in refusal(
        cluster_broker, topic, "--to", f"parquet:{scheme}://{BUCKET}/nowhere"
    )
