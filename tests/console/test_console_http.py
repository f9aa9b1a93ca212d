"""The console over plain HTTP: what it shows, what it changes, whom it refuses; and docs/console.md."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shlex
import socket
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from confluent_kafka import KafkaException, Producer

from eoslog.broker.console import broker_access, groups, login, messages, server, topics, transactions
from eoslog.broker.console.broker_access import SHARE
from eoslog.broker.console.routes import CHANGES, LOOKS
from eoslog.broker.console.server import MOST_AT_ONCE
from eoslog.commands.broker import FLAGS, command
from tests.console.console_site import (
    HANGING,
    HANGING_ID,
    PATIENCE,
    SCRIPT,
    TIMEOUT_MS,
    Answer,
    Site,
    create,
    history,
    member,
    seed_hanging,
    transactional,
    write,
)
from tests.kit.program import until

pytestmark = pytest.mark.timeout(600)  # a broker may take long to start on a busy machine

MARKED = "marked-twice"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    seed_hanging(data, HANGING, MARKED)
    with Site(data, **{"console.writable": "true"}) as opened:
        create(opened.client(), "orders", partitions=2)
        producer = history(opened.client(), "orders")
        yield opened
        del producer


def values(told: Any) -> list[str]:
    return [row["value"]["data"] if "value" in row else row["note"].split(",")[0] for row in told["records"]]


# What it shows


def test_the_page_and_its_files(site: Site) -> None:
    page = site.get("/")
    assert page.status == 200 and b"<main" in page.body
    for path, kind in (("/console.js", "text/javascript"), ("/console.css", "text/css")):
        answer = site.get(path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
    assert b"//" not in page.body.replace(b"<!doctype", b""), "nothing comes from elsewhere"


def test_topics_and_partitions(site: Site) -> None:
    told = site.look("topics", filter="ORD")
    assert told["topics"][0] | {"bytes": 0} == {
        "name": "orders", "internal": False, "partitions": 2, "records": 9, "held_back": 3, "bytes": 0,
    }  # fmt: skip
    assert told["topics"][0]["bytes"] > 300
    first, second = site.look("partitions", topic="orders")["partitions"]
    assert (first["start"], first["stable"], first["high_watermark"]) == (0, 6, 9)
    assert (second["start"], second["stable"], second["high_watermark"], second["bytes"]) == (0, 0, 0, 0)


def test_a_list_in_pages(site: Site) -> None:
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        told = site.look("topics", limit=1, after=after)
        names += [topic["name"] for topic in told["topics"]]
        after = told["next"]
    assert names == sorted(names) and len(names) == told["total"] >= 3


def test_everything_with_what_became_of_it(site: Site) -> None:
    told = site.look("messages", topic="orders", partition=0, offset=0, isolation="read_uncommitted")
    states = ["none", "none", "committed", "control", "aborted", "control", "open", "committed", "control"]
    assert [row["state"] for row in told["records"]] == states
    assert values(told)[2:6] == ["kept", "commit marker", "dropped", "abort marker"]
    assert [row["offset"] for row in told["records"]] == list(range(9))
    assert (told["next"], told["more"], told["stable"], told["high_watermark"]) == (9, False, 6, 9)


def test_as_readers_of_committed_data_see_it(site: Site) -> None:
    told = site.look("messages", topic="orders", partition=0, offset=0, isolation="read_committed")
    assert values(told) == ["first", SCRIPT, "kept"]
    assert not told["more"]


def test_states_do_not_hang_on_where_a_page_begins(site: Site) -> None:
    whole = site.look("messages", topic="orders", partition=0, offset=0, isolation="read_uncommitted")
    for offset in range(9):
        told = site.look("messages", topic="orders", offset=offset, limit=1, isolation="read_uncommitted")
        assert told["records"] == whole["records"][offset : offset + 1]
        assert told["next"] == offset + 1


def test_keys_headers_and_forms(site: Site) -> None:
    row = site.look("messages", topic="orders", offset=0, limit=1)["records"][0]
    assert row["key"] == {"as": "text", "data": "k0", "size": 2, "cut": False}
    assert [(one["key"], one["value"]["as"], one["value"]["data"]) for one in row["headers"]] == [
        ("trace", "text", "abc"), ("raw", "hex", "ff 00"),
    ]  # fmt: skip
    hexed = site.look("messages", topic="orders", offset=0, limit=1, **{"as": "hex"})["records"][0]
    assert hexed["value"]["data"] == b"first".hex(" ")
    given = {"topic": "orders", "offset": 6, "limit": 1, "isolation": "read_uncommitted", "as": "json"}
    shown = site.look("messages", **given)["records"][0]["value"]
    assert shown["as"] == "json" and json.loads(shown["data"]) == {"order": 17, "tags": ["a", "<b>"]}


def test_the_latest_and_those_since_a_time(site: Site) -> None:
    told = site.look("messages", topic="orders", offset=-1, limit=2, isolation="read_uncommitted")
    assert (told["from"], values(told)) == (7, ["after", "commit marker"])
    since = site.look("messages", topic="orders", offset=0, limit=1)["records"][0]["timestamp"]
    assert site.look("messages", topic="orders", time=since)["from"] == 0
    assert site.get("/api/messages", topic="orders", time=since + 10**12).status == 404


def test_pages_are_bounded(site: Site) -> None:
    create(site.client(), "large")
    write(Producer(site.client()), "large", *(b"x" * 100_000 for _ in range(12)))
    told = site.look("messages", topic="large", offset=0, limit=500, bytes=65536)
    assert 1 <= len(told["records"]) <= 5 and told["more"]
    assert told["records"][0]["value"]["size"] == 100_000 and told["records"][0]["value"]["cut"]
    assert sum(len(row["value"]["data"]) for row in told["records"]) <= messages.MOST_SHOWN + 65536
    again = site.look("messages", topic="large", offset=told["next"], limit=1)
    assert again["records"][0]["offset"] == told["next"]
    assert len(site.look("messages", topic="large", offset=0)["records"][0]["value"]["data"]) == 1024
    for wrong in (
        {"limit": 501},
        {"limit": 0},
        {"bytes": 65537},
        {"as": "xml"},
        {"isolation": "no"},
        {"offset": "x"},
    ):
        assert site.get("/api/messages", topic="large", **wrong).status == 400, wrong


def test_a_batch_that_unpacks_to_too_much(site: Site) -> None:
    """A few bytes must not become a heap of memory: the batch is passed over, and said so."""
    create(site.client(), "packed", config={"max.message.bytes": "50000000"})
    packing = {"compression.type": "zstd", "message.max.bytes": 60_000_000, "batch.size": 60_000_000}
    producer = Producer(site.client(**packing))
    bomb = bytes(messages._MOST_UNPACKED + 1024)
    write(producer, "packed", bomb)
    write(Producer(site.client()), "packed", "small")
    told = site.look("messages", topic="packed", offset=0)
    assert "are not shown" in told["records"][0]["note"] and told["records"][0]["offset"] == 0
    assert values(told)[1:] == ["small"]


def test_many_small_records_of_one_packed_batch(site: Site) -> None:
    create(site.client(), "many")
    producer = Producer(site.client(**{"compression.type": "lz4", "linger.ms": 1000}))
    write(producer, "many", *(f"record {number}" for number in range(3000)))
    told = site.look("messages", topic="many", offset=2990, limit=5)
    assert values(told) == [f"record {number}" for number in range(2990, 2995)] and told["more"]


def test_groups_members_and_lag(site: Site) -> None:
    create(site.client(), "read-by-group")
    write(Producer(site.client()), "read-by-group", *"abcdef")
    consumer = member(site.client(), "slow", "read-by-group", 2)
    (row,) = site.look("groups", filter="slow")["groups"]
    assert (row["state"], row["type"], row["lag"], row["partitions"]) == ("Stable", "classic", 4, 1)
    told = site.look("group", group="slow")
    assert [(one["client"], one["partitions"]) for one in told["members"]] == [
        ("reader-1", ["read-by-group-0"])
    ]
    (offset,) = told["offsets"]
    assert (offset["committed"], offset["end"], offset["lag"], offset["client"]) == (2, 6, 4, "reader-1")
    consumer.close()
    assert site.look("group", group="slow")["state"] == "Empty"
    assert site.get("/api/group", group="nobody").status == 404


def test_rates_come_by_themselves(site: Site) -> None:
    write(Producer(site.client()), "orders", *("x" * 1000 for _ in range(50)), partition=1)

    def written() -> bool:
        told = site.look("rates")
        assert len(told["ago"]) == len(told["records"]) == len(told["requests"]["produce"])
        return any(told["records"]) and any(told["bytes_in"]) and any(told["requests"]["produce"])

    until(written, "rates of what was just written", PATIENCE)


# What it changes


def ongoing(site: Site, name: str) -> Any:
    (row,) = site.look("transactions", filter=name)["transactions"]
    return row


def asked(row: Any, **other: Any) -> dict[str, Any]:
    """The body of a request to abort what a row of the list shows."""
    return {name: row[name] for name in ("transactional_id", "producer_id", "epoch", "started_ms")} | other


def test_an_open_transaction_is_listed_and_aborted(site: Site) -> None:
    create(site.client(), "stuck")
    producer = transactional(site.client(), "stuck-job")
    producer.begin_transaction()
    write(producer, "stuck", "never")
    row = ongoing(site, "stuck-job")
    assert (row["state"], row["partitions"], row["abortable"]) == ("Ongoing", ["stuck-0"], True)
    assert row["age_ms"] >= 0 and row["timeout_ms"] == TIMEOUT_MS
    done = site.post("transactions/abort", asked(row))
    assert (done.status, done.json["state"]) == (200, "CompleteAbort"), done
    (partition,) = site.look("partitions", topic="stuck")["partitions"]
    assert partition["stable"] == partition["high_watermark"] == 2
    assert not site.look("transactions", filter="stuck-job")["transactions"]
    (ended,) = site.look("transactions", filter="stuck-job", state="all")["transactions"]
    assert (ended["state"], ended["abortable"]) == ("CompleteAbort", False)
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE)


def test_only_what_was_looked_at_is_aborted(site: Site) -> None:
    """The producer may have committed and begun anew since: that one is another's to end."""
    create(site.client(), "alive")
    producer = transactional(site.client(), "alive-job")
    producer.begin_transaction()
    write(producer, "alive", "one")
    row = ongoing(site, "alive-job")
    for other in ({"epoch": row["epoch"] + 1}, {"producer_id": 1}, {"started_ms": row["started_ms"] - 1}):
        assert site.post("transactions/abort", asked(row, **other)).status == 409, other
    producer.commit_transaction(PATIENCE)
    assert site.post("transactions/abort", asked(row)).status == 409
    producer.begin_transaction()
    write(producer, "alive", "two")
    refused = site.post("transactions/abort", asked(row))
    assert refused.status == 409 and "another transaction" in refused.json["error"]
    producer.commit_transaction(PATIENCE)
    told = site.look("messages", topic="alive", offset=0, isolation="read_committed")
    assert values(told) == ["one", "two"]


def test_a_hanging_transaction_is_found_and_aborted(site: Site) -> None:
    rows = {row["topic"]: row for row in site.look("hanging")["hanging"]}
    row = rows[HANGING]
    assert (row["producer_id"], row["epoch"], row["start_offset"]) == (HANGING_ID, 3, 0)
    assert row["abortable"] and "orders" not in rows, "a coordinator will end what is open there"
    place = {name: row[name] for name in ("topic", "partition", "producer_id", "start_offset")}
    assert site.post("hanging/abort", place | {"start_offset": 1}).status == 409
    assert site.post("hanging/abort", place).status == 200
    told = site.look("messages", topic=HANGING, offset=0, isolation="read_committed")
    assert values(told) == ["waits for it"] and told["stable"] == told["high_watermark"]
    assert site.post("hanging/abort", place).status == 409


def test_no_marker_for_what_a_coordinator_will_end(site: Site) -> None:
    open_one = ongoing(site, "orders-job")
    place = {"topic": "orders", "partition": 0, "producer_id": open_one["producer_id"], "start_offset": 6}
    refused = site.post("hanging/abort", place)
    assert refused.status == 409 and "INVALID_TXN_STATE" in refused.json["error"]
    assert ongoing(site, "orders-job")["state"] == "Ongoing"


# Whom it refuses

FOREIGN = {
    "without the header": {},
    "from another site": {"X-Eoslog-Console": "1", "Origin": "http://evil.example"},
    "from the same host's other port": {"X-Eoslog-Console": "1", "Origin": "http://127.0.0.1:1"},
    "from a page of nobody": {"X-Eoslog-Console": "1", "Origin": "null"},
    "told by the browser": {"X-Eoslog-Console": "1", "Sec-Fetch-Site": "cross-site"},
    "told by the browser, another port": {"X-Eoslog-Console": "1", "Sec-Fetch-Site": "same-site"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
def test_changes_come_from_its_own_page_only(site: Site, headers: dict[str, str]) -> None:
    row = ongoing(site, "orders-job")
    for what in ("transactions/abort", "hanging/abort"):
        assert site.post(what, asked(row), headers).status == 403
    assert ongoing(site, "orders-job")["state"] == "Ongoing"


def test_nothing_is_changed_by_get(site: Site) -> None:
    row = ongoing(site, "orders-job")
    assert site.get("/api/transactions/abort", **asked(row)).status == 404
    assert ongoing(site, "orders-job")["state"] == "Ongoing"


def sent(site: Site, method: str, path: str, headers: dict[str, str]) -> Answer:
    """A request with a Host header of one's own."""
    place = urlsplit(site.address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = Answer(answer.status, answer.headers, answer.read())
    connection.close()
    return found


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "@"])
def test_it_answers_to_no_name_that_others_can_own(site: Site, host: str) -> None:
    for path in ("/", "/api/topics"):
        answer = sent(site, "GET", path, {"Host": host})
        assert answer.status in (400, 421) and b"orders" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST:8080"])
def test_it_answers_to_its_own(site: Site, host: str) -> None:
    assert sent(site, "GET", "/api/topics", {"Host": host}).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/console.js", "/api/topics", "/api/nothing", "/api/messages", "/../x"]
)
def test_every_answer_ties_the_browser_down(site: Site, path: str) -> None:
    answer = site.get(path)
    for name, value in login.HEADERS.items():
        assert answer.headers[name] == value, (path, name)
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_wrong_requests_are_told_why(site: Site) -> None:
    assert site.get("/api/messages").json == {"error": "topic is missing"}
    assert site.get("/api/messages", topic="nowhere").status == 404
    assert site.get("/api/messages", topic="orders", partition=2).status == 404
    assert site.get("/api/partitions", topic="no/such").status == 404
    assert site.post("transactions/abort", {}).status == 400
    assert site.post("transactions/abort", [1]).status == 400
    assert site.post("transactions/abort", {"transactional_id": "x" * 20_000}).status == 413
    assert sent(site, "PUT", "/api/topics", {"Host": "localhost"}).status == 405


def test_connections_that_hang_hurt_nobody(site: Site) -> None:
    """As many as there may be, and more, say nothing or half of something: Kafka's clients do not notice."""
    place = urlsplit(site.address)
    held = []
    try:
        for number in range(server.MOST_CONNECTIONS + 8):
            held.append(socket.create_connection((place.hostname, place.port or 0), PATIENCE))
            with contextlib.suppress(ConnectionError):  # one too many may be closed already
                held[-1].sendall(b"GET / HTTP/1.1\r\nHost: loc"[: number % 20])
        write(Producer(site.client()), "orders", "still served", partition=1)
        assert all(map(is_closed, held[server.MOST_CONNECTIONS :])), "those beyond are closed"
    finally:
        for one in held:
            one.close()
    until(lambda: answers(site), "it answers again", PATIENCE)


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def answers(site: Site) -> bool:
    try:
        return site.get("/api/about").status == 200
    except OSError:
        return False


def test_the_end_in_order(tmp_path: Path) -> None:
    """With a browser connected and a request half sent, the broker ends as without."""
    with Site(tmp_path) as site:
        place = urlsplit(site.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
        connection.putrequest("GET", "/api/topics")
        connection.send(b"X-Half: ")
        assert site.get("/api/about").json["writable"] is False
        refused = site.post(
            "transactions/abort", {"transactional_id": "any", "producer_id": 0, "epoch": 0, "started_ms": 0}
        )
        assert refused.status == 403 and "read-only" in refused.json["error"]
        assert site.broker.stop() == 0
        assert "ended in order" in site.broker.output()
        connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic \xff\r\x01\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00" + bytes(range(256)),
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
    ],
    ids=["header", "TLS", "length", "version"],
)
def test_what_is_no_request_fills_no_log(site: Site, sent: bytes) -> None:
    before, where = len(site.broker.output()), urlsplit(site.address)
    for _ in range(5):
        with socket.create_connection((where.hostname, where.port), PATIENCE) as raw:
            raw.sendall(sent)
            assert raw.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), "it is answered"
    assert len(site.broker.output()) - before < 200, site.broker.output()[before:]


# -- docs/console.md -----------------------------------------------------------------------------
# docs/console.md, and what transactions.md says of its JSON, tell the truth: commands, addresses, pictures
# and figures.

# a broker may take long to start on a busy machine

PAGE = Path(__file__).parents[2] / "docs" / "console.md"
DETAILS = PAGE.with_name("transactions.md")


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text() + DETAILS.read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_command_is_one(text: str) -> None:
    (line,) = blocks(text, "bash")
    program, name, *arguments = shlex.split(line)
    assert (program, name) == ("eoslog", "broker")
    given = command.make_context("broker", arguments).params
    assert (given["console"], given["console_writable"]) == ("127.0.0.1:8080", "true")
    assert FLAGS["console_writable"] == "console.writable"


def test_what_is_asked_and_answered(text: str) -> None:
    (block,) = blocks(text, "console")
    lines = block.strip().splitlines()
    with Site() as site:
        create(site.client(), "orders")
        write(Producer(site.client()), "orders", "a", "b", "c")
        for asked, wanted in zip(lines[::2], lines[1::2], strict=True):
            address = urlsplit(shlex.split(asked)[-1])
            assert address.netloc == "127.0.0.1:8080"
            body = site.get(address.path, **dict(parse_qsl(address.query))).body.decode()
            assert re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), body), body


def test_every_address_is_there(text: str) -> None:
    assert set(re.findall(r"^\| `(/api/[a-z/]+)`", text, re.MULTILINE)) == {*LOOKS, *CHANGES}


def test_every_picture_is_there(text: str) -> None:
    pictures = re.findall(r"!\[.+\]\((.+)\)", text)
    assert len(pictures) >= 4
    for name in pictures:
        assert (PAGE.parent / name).stat().st_size < 150_000


def test_the_figures_are_those_of_the_code(text: str) -> None:
    plain = " ".join(text.split())
    for said in (
        f"{server.MOST_CONNECTIONS} connections", f"{MOST_AT_ONCE} requests at a time",
        f"{messages.MOST_RECORDS} records and {messages.MOST_SHOWN >> 10} KiB a page",
        f"{server.REQUEST_SECONDS:.0f} seconds for a request",
        f"more than {messages._MOST_UNPACKED >> 20} MiB", f"At most {broker_access.MOST} rows are drawn",
        f"looks at {broker_access.MOST_LOOKED_AT:,} names",
    ):  # fmt: skip
        assert said in plain, said
    assert "a tenth of that loop's time" in plain and SHARE == 0.1
    assert server.SILENT_SECONDS == server.REQUEST_SECONDS
    script = files("eoslog.broker.console") / "static" / "console.js"
    assert f"MOST_ROWS = {broker_access.MOST};" in script.read_text()


def test_the_ways_to_sort_are_those_of_the_code(text: str) -> None:
    for module, what in ((topics, "topics"), (groups, "groups"), (transactions, "transactions")):
        (line,) = (line for line in text.splitlines() if line.startswith(f"| `/api/{what}` |"))
        assert f"`sort` ({', '.join(module.SORTS)})" in line
