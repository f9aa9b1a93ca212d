"""The console's rules by themselves: shares and bounds on the test's own clock, outcomes, forms, pages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from eoslog.broker.console import broker_access, login, server
from eoslog.broker.console.broker_access import Pace, PageQuery, arranged, chosen, matching, page
from eoslog.broker.console.messages import ABORTED, COMMITTED, NONE, OPEN, Outcomes, shown
from eoslog.broker.console.rates import KEPT, History, Sample
from eoslog.protocol.batch import BatchHeader, read_header
from eoslog.protocol.control import ABORT, COMMIT, control_batch
from eoslog.protocol.plain_records import encode_records
from tests.console.console_site import Site, create, write
from tests.top.busy import (
    GROUPS,
    IDLE,
    IDS_OF_A_SINK,
    OPEN_OF_A_SINK,
    OTHER_IDS,
    READERS,
    SINKS,
    fill,
    reader,
    sink,
)


class Clock:
    """Time that goes on when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# Shares and bounds


def test_after_work_comes_a_pause_that_keeps_the_share() -> None:
    clock = Clock()
    pace = Pace(0.1, clock)
    begun, worked = clock.now, 0.0
    for work in (0.001, 0.02, 0.3, 0.004):
        assert work >= 0
        clock.now += pace.wait()
        clock.now += work
        worked += work
        pace.took(work)
    clock.now += pace.wait()
    assert pace.wait() == 0
    assert worked / (clock.now - begun) == pytest.approx(0.1)


class Line(asyncio.Transport):
    """A connection's other end."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True


def connected(looks: server.ConnectionWatch) -> tuple[asyncio.Protocol, Line]:
    """A connection that stands: the server's own protocol of it, and its line."""
    line, accepted = Line(), looks.accept()
    accepted.connection_made(line)
    return getattr(accepted, "_inner", accepted), line


def test_one_connection_too_many_is_refused() -> None:
    looks = server.ConnectionWatch(asyncio.Protocol, Clock())
    made = [looks.accept() for _ in range(server.MOST_CONNECTIONS)]
    assert connected(looks)[1].aborted and len(looks) == server.MOST_CONNECTIONS
    made[0].connection_made(Line())
    assert connected(looks)[1].aborted, "those that stand count as well"
    made[0].connection_lost(None)
    assert not connected(looks)[1].aborted


def test_a_connection_that_says_nothing_is_cut() -> None:
    clock = Clock()
    looks = server.ConnectionWatch(asyncio.Protocol, clock)
    (_, silent), (served, other) = connected(looks), connected(looks)
    clock.now += server.SILENT_SECONDS - 1
    looks.waits(served)  # it got an answer just now
    looks.cut()
    assert not silent.aborted
    clock.now += 2
    looks.cut()
    assert (silent.aborted, other.aborted, len(looks)) == (True, False, 1)


def test_a_connection_that_does_not_take_its_answer_is_cut() -> None:
    clock = Clock()
    looks = server.ConnectionWatch(asyncio.Protocol, clock)
    protocol, line = connected(looks)
    looks.serves(protocol)
    clock.now += server.SILENT_SECONDS + 1
    looks.cut()
    assert not line.aborted, "its request is still served"
    clock.now += server.REQUEST_SECONDS
    looks.cut()
    assert line.aborted


def test_handshakes_that_come_to_nothing_are_forgotten() -> None:
    clock = Clock()
    looks = server.ConnectionWatch(asyncio.Protocol, clock)
    looks.accept()
    clock.now += server.HANDSHAKE_SECONDS
    looks.cut()
    assert len(looks) == 1
    clock.now += server.HANDSHAKE_SECONDS
    looks.cut()
    assert len(looks) == 0


def test_the_servers_protocol_gets_everything() -> None:
    """What stands between it and the line only counts."""
    heard: list[object] = []

    class Inner(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

        def eof_received(self) -> bool | None:
            return True

        def pause_writing(self) -> None:
            heard.append("pause")

        def resume_writing(self) -> None:
            heard.append("resume")

        def connection_lost(self, error: Exception | None) -> None:
            heard.append(error)

    looks = server.ConnectionWatch(Inner, Clock())
    accepted, failure = looks.accept(), OSError()
    accepted.connection_made(Line())
    accepted.data_received(b"GET")
    accepted.pause_writing()
    accepted.resume_writing()
    assert accepted.eof_received() is True
    accepted.connection_lost(failure)
    assert heard == [b"GET", "pause", "resume", failure] and len(looks) == 0


# What became of a transaction


def reference(log: list[tuple[str, int]]) -> list[str]:
    """Each data batch's outcome, found by looking ahead for its producer's next marker."""
    found = []
    for at, (what, producer) in enumerate(log):
        if what == "plain":
            found.append(NONE)
        elif what == "data":
            ends = [kind for kind, owner in log[at:] if owner == producer and kind in ("commit", "abort")]
            found.append(OPEN if not ends else COMMITTED if ends[0] == "commit" else ABORTED)
    return found


STEPS = st.lists(
    st.tuples(st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 2)),
    min_size=10, max_size=30,
)  # fmt: skip


@given(STEPS, st.integers(0, 29))
def test_outcomes_from_any_place_of_any_log(steps: list[tuple[str, int]], begin: int) -> None:
    """One batch of one record an offset; markers of nothing are left out, as no log has them."""
    log: list[tuple[str, int]] = []
    first: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for what, producer in steps:
        if what in ("commit", "abort"):
            if producer not in first:
                continue
            if what == "abort":
                aborted.append((producer, first[producer], len(log)))
            del first[producer]
        elif what == "data":
            first.setdefault(producer, len(log))
        log.append((what, producer))
    begin %= len(log) + 1
    known = [(producer, start) for producer, start, marker in aborted if marker >= begin and start < len(log)]
    outcomes, found = Outcomes(first, known), []
    for offset in range(begin, len(log)):
        header = header_at(offset, *log[offset])
        if header.is_control:
            outcomes.of(header)
            outcomes.ended(header, ABORT if log[offset][0] == "abort" else COMMIT)
        else:
            found.append(outcomes.of(header))
    skipped = sum(what in ("data", "plain") for what, _ in log[:begin])
    assert found == reference(log)[skipped:]


def header_at(offset: int, what: str, producer: int) -> BatchHeader:
    if what in ("commit", "abort"):
        made = control_batch(ABORT if what == "abort" else COMMIT, producer, 0, 0, 0)
    elif what == "data":
        made = encode_records(
            [(None, b"x")], 0, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
    else:
        made = encode_records([(None, b"x")], 0)
    return read_header(made)._replace(base_offset=offset)


# Forms of bytes


@pytest.mark.parametrize(("data", "form", "kind", "text"), [
    (b"plain", "auto", "text", "plain"),
    ("Grüße\n".encode(), "auto", "text", "Grüße\n"),
    (b"\x00\x01", "auto", "hex", "00 01"),
    (b"\xff\xfe", "auto", "hex", "ff fe"),
    (b"\xff\xfe", "text", "text", "\ufffd\ufffd"),
    (b"ab", "hex", "hex", "61 62"),
    (b'{"a":[1,"<b>"]}', "json", "json", '{\n  "a": [\n    1,\n    "<b>"\n  ]\n}'),
    (b" [1]", "json", "json", "[\n  1\n]"),
    (b"17", "json", "text", "17"),
    (b"{broken", "json", "text", "{broken"),
    (b"[" * 60_000, "json", "text", "[" * 60_000),
    (b'{"a":' + b"9" * 5000 + b"}", "json", "text", '{"a":' + "9" * 5000 + "}"),
])  # fmt: skip
def test_forms(data: bytes, form: Any, kind: str, text: str) -> None:
    assert shown(data, form, 100_000) == {"as": kind, "data": text, "size": len(data), "cut": False}


def test_a_cut_character_is_no_reason_for_hex() -> None:
    data = "ä€😀".encode() * 10
    for most in range(1, len(data)):
        found = shown(data, "auto", most)
        assert found is not None and found["cut"]
        piece = str(found["data"]).encode()
        assert found["as"] == "text" and data.startswith(piece) and len(piece) > most - 4
    assert shown(None, "auto", 1) is None


@given(st.binary(max_size=200), st.sampled_from(["auto", "text", "json", "hex"]), st.integers(1, 100))
def test_whatever_the_bytes_it_can_be_sent(data: bytes, form: Any, most: int) -> None:
    json.dumps(shown(data, form, most)).encode("ascii")


def test_a_lone_surrogate_in_json_can_be_sent() -> None:
    found = shown(rb'["\ud800"]', "json", 100)
    assert json.loads(json.dumps(found)) == found


# Pages, rates, doors


@given(st.lists(st.text("abC", max_size=3), unique=True), st.integers(1, 5))
def test_pages_hold_each_once(names: list[str], limit: int) -> None:
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        found, after = page(names, str, after=after, limit=limit)
        assert len(found) <= limit
        seen += found
    assert seen == sorted(filter(None, names))


def sample(at: float, ends: int, produced: int = 0, seconds: float = 0.0) -> Sample:
    return Sample(at, ends, 10 * ends, 20 * ends, {"produce": produced, "fetch": 0, "other": 1}, seconds)


def test_rates_between_samples() -> None:
    history = History()
    assert history.rates()["records"] == []
    for taken in (sample(0, 0), sample(1, 100, 10, 0.02), sample(3, 300, 10, 0.02), sample(4, 200)):
        history.add(taken)
    told = history.rates()
    assert told["records"] == [100, 100, 0], "a topic that is deleted is no negative rate"
    assert (told["ago"], told["bytes_in"], told["bytes_out"]) == ([3, 1, 0], [1000, 1000, 0], [2000, 2000, 0])
    assert (told["requests"]["produce"], told["produce_ms"]) == ([10, 0, 0], [2.0, 0, 0])
    for second in range(5, 2 * KEPT):
        history.add(sample(second, 0))
    assert len(history.rates()["records"]) == KEPT


@pytest.mark.parametrize(("header", "strict", "fine"), [
    ("localhost:80", True, True), ("127.0.0.1", True, True), ("[::1]:8080", True, True),
    ("10.1.2.3:80", True, True),
    ("broker.example:80", True, True), ("Broker.Example", True, True), ("evil.example", True, False),
    ("evil.example", False, True), ("", False, False), ("", True, False),
    ("localhost.evil.example", True, False),
    ("evil.example@127.0.0.1", True, True),
])  # fmt: skip
def test_names(header: str, strict: bool, fine: bool) -> None:
    assert login.may_answer_to(header, {"broker.example"}, strict=strict) is fine


def test_what_was_begun_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console stops waiting after a while; what it asked for goes on to its end on the broker's loop."""
    monkeypatch.setattr(broker_access, "PATIENCE", 0.01)
    done: list[str] = []

    async def change(go_on: asyncio.Event) -> None:
        await go_on.wait()
        done.append("whole")

    async def scenario() -> None:
        go_on, loop = asyncio.Event(), asyncio.get_running_loop()
        asker = broker_access.BrokerAccess(SimpleNamespace(authorizer=None), loop)  # type: ignore[arg-type]
        with pytest.raises(broker_access.BrokerBusy):
            await asker.run(change(go_on))
        go_on.set()
        while not done:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert done == ["whole"]


# Lists


def test_a_list_is_filtered_as_it_is_or_quoted() -> None:
    names = ["a%2Fb/1.0/0/w.0", "A/b", "a-b", "100%25"]
    assert matching(names, str, "A/B") == ["a%2Fb/1.0/0/w.0", "A/b"]
    assert matching(names, str, "%") == ["a%2Fb/1.0/0/w.0", "100%25"] and matching(names, str, "") == names


def test_a_list_by_name_is_in_pages_and_another_is_cut() -> None:
    names = [f"{n:02}" for n in range(30)]
    assert chosen(names, str, PageQuery(after="03", limit=2)) == (["04", "05"], "05")
    assert chosen(names, str, PageQuery(down=True, limit=2)) == (["29", "28"], None)
    assert chosen(names, str, PageQuery(sort="lag", limit=2)) == (names, None)


def test_rows_are_sorted_and_what_is_not_known_is_last() -> None:
    rows = [{"name": name, "lag": lag} for name, lag in (("a", 2), ("b", None), ("c", 9), ("d", 2))]

    def order(**wanted: Any) -> str:
        return "".join(row["name"] for row in arranged(rows, PageQuery(sort="lag", **wanted)))

    assert (order(), order(down=True), order(down=True, limit=2)) == ("adcb", "cadb", "ca")
    assert arranged(rows, PageQuery(down=True, limit=1)) == rows, "by name they are chosen already"


# -- many topics, groups and ids -------------------------------------------------------------------
# The console's lists with 500 groups and 2,000 transactional ids: filtered, sorted, folded, bounded.


RECORDS = 600
SOON_S = 3.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("console-many")) as opened:
        create(opened.client(), "orders")
        create(opened.client(), "wide", partitions=3)
        write(Producer(opened.client()), "orders", *("v" for _ in range(RECORDS)))
        fill(opened.broker.bootstrap, "orders", RECORDS)
        yield opened


def names(rows: list[dict[str, Any]], column: str = "group") -> list[str]:
    return [row[column] for row in rows]


@pytest.mark.timeout(600)
def test_groups_of_decisions_are_folded_into_their_sinks(site: Site) -> None:
    told = site.look("groups", fold="yes", limit=200)
    assert (told["total"], told["matching"], len(told["groups"])) == (GROUPS, READERS, 200)
    assert told["total_sinks"] == SINKS
    assert told["sinks"] == [
        {"sink": name, "groups": 2} for name in sorted(sink(number).id for number in range(SINKS))
    ]
    assert not any(row["group"].startswith("copy") for row in told["groups"])
    second = site.look("groups", fold="yes", limit=200, after=told["next"])
    assert second["groups"][0]["group"] > told["groups"][-1]["group"]


@pytest.mark.timeout(600)
def test_a_sink_is_unfolded(site: Site) -> None:
    told = site.look("groups", sink="copy/eu")
    assert names(told["groups"]) == ["copy%2Feu", "copy%2Feu/finished"]
    assert [(row["sink"], row["lag"]) for row in told["groups"]] == [("copy/eu", None)] * 2
    told = site.look("transactions", sink="copy-1", state="all", limit=200)
    assert (told["matching"], len(told["transactions"])) == (IDS_OF_A_SINK, 200)
    assert {row["sink"] for row in told["transactions"]} == {"copy-1"}
    told = site.look("transactions", sink="copy-1")
    assert names(told["transactions"], "transactional_id") == [
        "copy-1/5.0/0/w.0", "copy-1/5.0/0/w.2", "copy-1/5.0/1/w.1"
    ]  # fmt: skip


@pytest.mark.timeout(600)
def test_without_folding_everything_is_there(site: Site) -> None:
    told = site.look("groups", filter="copy")
    assert (told["matching"], len(told["groups"]), "sinks" in told) == (2 * SINKS, 2 * SINKS, False)
    told = site.look("transactions", state="all", limit=1)
    assert told["total"] == told["matching"] == 2000


@pytest.mark.timeout(600)
def test_ids_of_a_sink_are_a_line_with_counts(site: Site) -> None:
    told = site.look("transactions", fold="yes", state="all")
    assert (told["total"], told["matching"]) == (2000, OTHER_IDS)
    assert [(row["sink"], row["ids"], row["open"]) for row in told["sinks"]] == [
        (sink(number).id, IDS_OF_A_SINK, 0 if number == IDLE else OPEN_OF_A_SINK)
        for number in (*range(1, SINKS), 0)
    ]
    ages = {row["sink"]: row["age_ms"] for row in told["sinks"]}
    assert ages["copy/eu"] >= ages["copy-6"] >= 0 and ages[sink(IDLE).id] is None
    told = site.look("transactions", fold="yes", sort="age", down="yes")
    assert told["transactions"] == [] and told["sinks"][0]["sink"] == "copy/eu"
    assert (told["total_sinks"], told["total"]) == (SINKS - 1, (SINKS - 1) * OPEN_OF_A_SINK), "open ones"


@pytest.mark.timeout(600)
def test_lists_are_filtered(site: Site) -> None:
    told = site.look("groups", fold="yes", filter="SHOP-READER-00")
    assert (names(told["groups"]), told["sinks"]) == ([reader(n) for n in (1, 3, 5, 7, 9)], [])
    assert [row["sink"] for row in site.look("groups", fold="yes", filter="copy/eu")["sinks"]] == ["copy/eu"]
    told = site.look("transactions", fold="yes", state="all", filter="w.1")
    assert told["matching"] == 0 and {row["ids"] for row in told["sinks"]} == {111}


@pytest.mark.timeout(600)
def test_groups_are_sorted(site: Site) -> None:
    told = site.look("groups", fold="yes", sort="lag", down="yes", limit=3)
    assert names(told["groups"]) == [reader(READERS - n) for n in (1, 2, 3)]
    assert (told["matching"], told["next"], told["sorted"]) == (READERS, None, "lag")
    assert names(site.look("groups", fold="yes", sort="lag", limit=2)["groups"]) == [reader(0), reader(1)]
    assert names(site.look("groups", fold="yes", down="yes", limit=1)["groups"]) == [reader(READERS - 1)]
    assert site.look("groups", sort="lag", limit=200)["groups"][-1]["lag"] is not None, "unknown ones last"


@pytest.mark.timeout(600)
def test_transactions_are_sorted(site: Site) -> None:
    told = site.look("transactions", sort="age", down="yes")
    ages = [row["age_ms"] for row in told["transactions"]]
    assert ages == sorted(ages, reverse=True) and len(ages) == (SINKS - 1) * OPEN_OF_A_SINK
    told = site.look("transactions", sort="state", down="yes", state="all", limit=30)
    states = names(told["transactions"], "state")
    assert states == sorted(states, reverse=True) and "Ongoing" in states


@pytest.mark.timeout(600)
@pytest.mark.parametrize("column", ["records", "bytes", "name", "partitions", "held_back"])
@pytest.mark.parametrize("down", ["yes", "no"])
def test_topics_are_sorted(site: Site, column: str, down: str) -> None:
    told = site.look("topics", sort=column, down=down)
    values = names(told["topics"], column)
    assert values == sorted(values, reverse=down == "yes") and told["sorted"] == column
    assert told["matching"] == told["total"] == len(values) == 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("given", [{"sort": "colour"}, {"fold": "maybe"}, {"down": "1"}])
def test_what_makes_no_sense_is_told(site: Site, given: dict[str, str]) -> None:
    for what in ("groups", "transactions"):
        assert site.get(f"/api/{what}", **given).status == 400


@pytest.mark.timeout(600)
@pytest.mark.parametrize("given", [{}, {"sort": "lag"}, {"sort": "age"}, {"filter": "1"}], ids=str)
def test_a_list_comes_soon(site: Site, given: dict[str, str]) -> None:
    """The shortest of three times, as the machine may stand still."""
    what = "groups" if given.get("sort") == "lag" else "transactions"
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        site.look(what, fold="yes", limit=200, **given)
        taken.append(time.monotonic() - begun)
    assert min(taken) < SOON_S, taken
