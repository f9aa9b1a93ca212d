"""The examples of docs/examples.md that need neither Spark nor Kafka, and Avro with a registry."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from eoslog.avro import AvroError, RegistryError, SchemaRegistry, arrow_type, decode, encode, try_decode
from eoslog.cli import main
from eoslog.testing import EmbeddedBroker, Fault
from examples.registry import SmallRegistry
from tests.examples.running import (
    PAGE,
    PATIENCE_S,
    Script,
    command_of,
    commands,
    committed,
    create,
    put,
    sums,
)
from tests.kit.program import ROOT

SENTENCES = [f"the {color} fox jumps over the lazy dog {number}" for number in range(40)
             for color in ("red", "brown", "black")]  # fmt: skip
WORDS = Counter(word for sentence in SENTENCES for word in sentence.split())
DEATHS = ("Produce sent", "TxnOffsetCommit sent", "TxnOffsetCommit done", "EndTxn sent", "EndTxn done")
"""The requests of a transaction of the target at which a script is killed: sent but not carried out, or
carried out and not answered."""


def deadly(broker: EmbeddedBroker, death: str) -> Fault:
    """From this request on its connection is silent, so the script waits there until it is killed."""
    api, how = death.split()
    drop = broker.faults.drop_request if how == "sent" else broker.faults.drop_answer
    return drop(api, nth=2, cut=False)


@pytest.mark.timeout(PATIENCE_S)
def test_word_count(broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "sentences", 2)
    put(broker.bootstrap, "sentences", ((str(number), one) for number, one in enumerate(SENTENCES)))
    command = [*command_of("word_count.py", {}), "--bootstrap", broker.bootstrap, "--round", "10"]
    for death in DEATHS:
        fault = deadly(broker, death)
        Script(tmp_path, command).kill_when(fault)
    printed = Script(tmp_path, command).ended()
    assert re.fullmatch(r"\d+ sentences counted\n", printed) and not printed.startswith("0 ")
    assert sums(committed(broker.bootstrap, "word_counts")) == WORDS
    assert Script(tmp_path, command).ended() == "0 sentences counted\n"


def mirror(source: EmbeddedBroker, target: EmbeddedBroker) -> list[str]:
    changes = {"127.0.0.1:9092": source.bootstrap, "127.0.0.1:9093": target.bootstrap}
    return [*command_of("mirror.py", changes), "--round", "20"]


def audit(source: EmbeddedBroker, target: EmbeddedBroker) -> str:
    """What `eoslog audit` says of topic `orders` on both."""
    where = ["--from-bootstrap-server", source.bootstrap, "--to-bootstrap-server", target.bootstrap]
    done = CliRunner().invoke(main, ["audit", "--from", "orders", "--to", "orders", "--all-headers", *where])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.timeout(PATIENCE_S)
def test_mirror(broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "orders", 2)
    orders = [(f"customer {number % 7}", f"order {number}") for number in range(300)]
    put(broker.bootstrap, "orders", orders, headers=[("unit", b"pieces")], timestamp=1_700_000_000_000)
    for death in DEATHS:
        fault = deadly(other, death)
        Script(tmp_path, mirror(broker, other)).kill_when(fault)
    Script(tmp_path, mirror(broker, other)).ended()
    assert "right: 300 records" in audit(broker, other)
    assert Script(tmp_path, mirror(broker, other)).ended() == "0 records mirrored\n"


@pytest.mark.timeout(PATIENCE_S)
def test_a_mirror_that_does_not_know_where_it_stood_stops(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    create(broker.bootstrap, "known")
    put(other.bootstrap, "known", [(None, "one")])
    script = Script(tmp_path, [word.replace("orders", "known") for word in mirror(broker, other)])
    assert script.outcome()[1] == 1
    assert "known-0" in script.errors() and "has no offset for it" in script.errors()


def test_the_notebook_holds_no_outputs() -> None:
    cells = json.loads((ROOT / "examples" / "exactly_once.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code), "strip them"


def test_every_example_has_its_command_and_its_line() -> None:
    files = {one.name for one in (ROOT / "examples").iterdir() if one.suffix in (".py", ".ipynb")} - {
        "__init__.py"
    }
    scripts = {one for one in files if one.endswith(".py")}
    assert {Path(words[1]).name for words in commands()} == scripts
    for name in files:
        assert f"| `{name}` |" in (ROOT / "examples" / "README.md").read_text(), name
        assert f"examples/{name}" in PAGE.read_text(), name


# -- Avro ----------------------------------------------------------------------------------------
# eoslog.avro against a stand-in registry: the wire format, the cache, schemas that change, and refusals.


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "Order") -> dict[str, Any]:
    """A schema of (name, type) or (name, type, default)."""
    keys = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(keys, one, strict=False)) for one in fields]}


OLD = record(("id", "long"), ("item", "string"))
NEW = record(("id", "long"), ("item", "string"), ("currency", "string", "EUR"))


@pytest.fixture
def stand_in() -> Iterator[SmallRegistry]:
    with SmallRegistry() as started:
        yield started


def test_bytes_are_as_confluent_has_them(stand_in: SmallRegistry) -> None:
    """Zero, the id in four bytes, then zig-zag 7 and a string with its length."""
    registry = SchemaRegistry(stand_in.url)
    stand_in.number("something else")
    rows = pa.array([{"id": 7, "item": "ink"}, None])
    assert encode(rows, registry, "orders-value", OLD).to_pylist() == [b"\0\0\0\0\x02\x0e\x06ink", None]
    assert decode(pa.array([b"\0\0\0\0\x02\x0e\x06ink", None]), registry, OLD).equals(rows)


def test_writers_change_their_schema(stand_in: SmallRegistry) -> None:
    registry = SchemaRegistry(stand_in.url)
    old = encode(pa.array([{"id": 1, "item": "ink"}]), registry, "orders-value", OLD)
    new = encode(pa.array([{"id": 2, "item": "pen", "currency": "SEK"}]), registry, "orders-value", NEW)
    both = pa.concat_arrays([old, new, old])
    assert [row["currency"] for row in decode(both, registry, NEW).to_pylist()] == ["EUR", "SEK", "EUR"]
    assert decode(both, registry, OLD).to_pylist()[1] == {"id": 2, "item": "pen"}
    gone = record(("id", "long"), ("customer", "string"))
    with pytest.raises(AvroError, match=r"row 0: schema 1: SchemaResolutionError"):
        decode(both, registry, gone)


def test_a_schema_is_asked_for_once(stand_in: SmallRegistry) -> None:
    registry = SchemaRegistry(stand_in.url)
    message = encode(pa.array([{"id": 1, "item": "ink"}] * 100), registry, "orders-value", OLD)
    for _ in range(3):
        other = pickle.loads(pickle.dumps(registry))  # as Spark hands it to its workers
        encode(decode(message, other, OLD), other, "orders-value", OLD)
    assert stand_in.asked == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_types(stand_in: SmallRegistry) -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, 891000, UTC)
    schema = record(
        ("flag", "boolean"), ("small", "int"), ("ratio", "float"), ("wide", "double"), ("raw", "bytes"),
        ("maybe", ["null", "string"]), ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("other", "Kind"), ("list", {"type": "array", "items": "long"}),
        ("map", {"type": "map", "values": "int"}), ("inner", record(("x", "int"), name="Inner")),
        ("day", {"type": "int", "logicalType": "date"}),
        ("when", {"type": "long", "logicalType": "timestamp-millis"}),
        ("money", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    )  # fmt: skip
    row = {
        "flag": True, "small": 3, "ratio": 0.5, "wide": 0.1, "raw": b"\xff", "maybe": None, "kind": "A",
        "other": "B", "list": [1, 2], "map": [("a", 1)], "inner": {"x": 9}, "day": date(2026, 3, 4),
        "when": when, "money": Decimal("12.34"),
    }  # fmt: skip
    registry, rows = SchemaRegistry(stand_in.url), pa.array([row], arrow_type(schema))
    assert decode(encode(rows, registry, "s", schema), registry, schema).to_pylist() == [row]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"", "row 1: not a message in Confluent's wire format"),
        (b'{"id": 1}', "row 1: not a message in Confluent's wire format"),
        (b"\0\0\0\0\x01\x0e\x06in", "row 1: schema 1"),
        (b"\0\0\0\0\x01\x0e\x06ink!", "row 1: schema 1: 1 bytes too many"),
        (b"\0\0\0\0\x05\x0e\x06ink", "Schema 5 not found"),
    ],
)
def test_what_cannot_be_read_is_said(stand_in: SmallRegistry, message: bytes, says: str) -> None:
    registry = SchemaRegistry(stand_in.url)
    good = encode(pa.array([{"id": 1, "item": "ink"}]), registry, "orders-value", OLD)
    with pytest.raises(AvroError, match=says):
        decode(pa.concat_arrays([good, pa.array([message])]), registry, OLD)


@pytest.mark.parametrize(
    ("row", "schema", "says"),
    [
        ({"id": 1, "item": None}, OLD, "row 0, schema 1"),
        ({"id": 2**40, "item": "ink"}, record(("id", "int"), ("item", "string")), "row 0, schema 1"),
        ({"id": 1, "item": "ink", "more": 1}, OLD, "row 0, schema 1"),
        ({"id": 1, "itme": "ink"}, record(("id", "long"), ("item", ["null", "string"])), "row 0, schema 1"),
    ],
)
def test_what_cannot_be_written_is_said(
    stand_in: SmallRegistry, row: dict[str, Any], schema: dict[str, Any], says: str
) -> None:
    with pytest.raises(AvroError, match=says):
        encode(pa.array([row]), SchemaRegistry(stand_in.url), "orders-value", schema)


@pytest.mark.parametrize("kind", [["int", "string"], {"type": "string", "logicalType": "uuid"}])
def test_types_that_arrow_has_not_are_said(kind: Any) -> None:
    with pytest.raises(AvroError, match="no Arrow type"):
        arrow_type(record(("id", kind)))


def test_a_registry_that_is_away_is_said() -> None:
    with SmallRegistry() as gone:
        url = gone.url
    with pytest.raises(AvroError, match="is it running"):
        SchemaRegistry(url).schema(1)


def test_bad_messages_are_null_or_have_a_reason_each(stand_in: SmallRegistry) -> None:
    registry = SchemaRegistry(stand_in.url)
    good = encode(pa.array([{"id": 7, "item": "ink"}]), registry, "orders-value", OLD)[0].as_py()
    unknown = good[:4] + b"\x63" + good[5:]
    messages = pa.array([good, b"{}", None, unknown, good + b"!", unknown])
    values, errors = try_decode(messages, registry, OLD)
    assert values.to_pylist() == [{"id": 7, "item": "ink"}, None, None, None, None, None]
    assert [None if one is None else one[:30] for one in errors.to_pylist()] == [
        None,
        "not a message in Confluent's w",
        None,
        f"registry {stand_in.url}/schemas/ids/99"[:30],
        "schema 1: 1 bytes too many",
        f"registry {stand_in.url}/schemas/ids/99"[:30],
    ]
    assert stand_in.asked.count("GET /schemas/ids/99") == 1
    assert decode(messages, registry, OLD, on_error="null").equals(values)
    with pytest.raises(AvroError, match="row 1: not a message"):
        decode(messages, registry, OLD)
    with pytest.raises(ValueError, match="on_error cannot be 'skip'"):
        decode(messages, registry, OLD, on_error="skip")  # type: ignore[arg-type]


def test_a_registry_that_does_not_answer_makes_no_message_bad() -> None:
    registry = SchemaRegistry("http://127.0.0.1:9", timeout_s=1)
    with pytest.raises(RegistryError, match="is it running"):
        decode(pa.array([b"\0\0\0\0\x01\x0e"]), registry, OLD, on_error="null")
