"""`eoslog rehearse` on brokers that keep their promises: what it says, touches, leaves, and how it exits."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from eoslog.cli import main
from eoslog.client.admin.groups import StillPending
from eoslog.client.admin.transaction_states import TransactionDescription
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.security_settings import KerberosSettings, SaslSettings, Security
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse import probes
from eoslog.rehearse.command import _principal
from eoslog.rehearse.kills import Load
from eoslog.rehearse.limits import (
    BROKER_CONFIGS,
    UNCLEAN,
    Configs,
    Query,
    broker_rows,
    topic_rows,
    unclean_by_default,
    unclean_row,
)
from eoslog.rehearse.probes import PROOF, ROW, TimeOut
from eoslog.rehearse.work import DoesNotHold, Verdict, Work
from eoslog.testing import EmbeddedBroker
from eoslog.testing.rules import RequestFaults
from tests.broker.security.securitykit import Site
from tests.connector.brokers import Kafka
from tests.docs.reader import ROOT, all_match, blocks_of
from tests.rehearse.rehearsing import (
    SWEEPS,
    document,
    names_of,
    not_holding,
    printed_on,
    rehearse,
    verdicts,
)

WAIT_S = 60
PAGE = ROOT / "docs" / "rehearse.md"
COMMANDS = {
    "Describe", "Acquire", "FetchStored", "ListOngoing", "OpenTransaction", "WriteRows", "Seal",
    "StageOffsets", "EndTxn(commit) of the sink's own transaction", "AskOngoing",
    "EndTxn(commit) of a task's transaction", "AwaitMarkers",
}  # fmt: skip
"""What a driver sends in a micro-batch, by its rules."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_thread=True, config=SWEEPS) as started:
        yield started


@pytest.fixture
def faulty(broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield broker
    broker.faults.disarm()


def test_every_row_is_printed_as_it_was() -> None:
    with EmbeddedBroker() as fresh:
        printed = rehearse(fresh.bootstrap)
    assert printed.exit_code == 0
    assert all_match(printed.output.splitlines(), printed_on("bundled", "eoslog rehearse")), printed.output


@pytest.mark.long
def test_a_driver_is_killed_at_every_command(broker: EmbeddedBroker) -> None:
    found = document(broker.bootstrap)
    assert found["status"] == 0 and found["verdict"] == "holds" and not not_holding(found)
    killed = [where.removeprefix("before ") for where in found["killed"]]
    assert set(killed) >= COMMANDS and killed[-1] == "after its last command"
    assert (
        killed.count("WriteRows") == 1 + 4 and killed.count("Seal") == 2
    )  # a first driver begins, and writes
    assert killed.count("EndTxn(commit) of a task's transaction") == 2


def ongoing(bootstrap: str) -> Any:
    """Open transactions of rehearsals."""
    where = ("--bootstrap-server", bootstrap, "--json")
    arguments = ["transactions", "list", "--state", "Ongoing", "--prefix", "eoslog-rehearsal-", *where]
    return json.loads(CliRunner().invoke(main, arguments).stdout)


@pytest.mark.long
def test_nothing_is_left(broker: EmbeddedBroker) -> None:
    before = names_of(broker.bootstrap)
    found = document(broker.bootstrap)
    assert names_of(broker.bootstrap) == before and not found["left"]
    assert found["removed"]["topic"] == 13 and found["transactional_ids_left"] > 0
    assert ongoing(broker.bootstrap) == []


def test_decisions_on_a_topic_of_the_user_s(broker: EmbeddedBroker) -> None:
    """As where a cluster hides its internal topics."""
    Kafka(broker.bootstrap).topic(1, "decisions")
    found = document(broker.bootstrap, "--decision-topic", "decisions")
    assert found["status"] == 0 and found["verdict"] == "holds" and not not_holding(found)


@pytest.mark.long
def test_each_run_has_names_of_its_own(broker: EmbeddedBroker) -> None:
    first, second = (document(broker.bootstrap)["scratch_names"] for _ in range(2))
    assert first != second and re.fullmatch(r"eoslog-rehearsal-[0-9a-f]{12}\.\*", first)


READS = {
    ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS, ApiKey.LIST_OFFSETS, ApiKey.FETCH, ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
}  # fmt: skip
CHANGES: dict[ApiKey, Any] = {
    ApiKey.CREATE_TOPICS: lambda asked: [topic["name"] for topic in asked["topics"]],
    ApiKey.DELETE_TOPICS: lambda asked: asked["topic_names"],
    ApiKey.DELETE_GROUPS: lambda asked: asked["groups_names"],
    ApiKey.INIT_PRODUCER_ID: lambda asked: [asked["transactional_id"]],
    ApiKey.PRODUCE: lambda asked: [asked["transactional_id"]],
    ApiKey.END_TXN: lambda asked: [
        asked["transactional_id"],
        *(one["transactional_id"] for one in asked["together"]),
    ],
    ApiKey.OFFSET_COMMIT: lambda asked: [asked["group_id"]],
    ApiKey.TXN_OFFSET_COMMIT: lambda asked: [asked["transactional_id"], asked["group_id"]],
}
"""The names that a request changes. A batch of records can only be for a topic of its transactional id's."""


@pytest.mark.long
def test_no_other_name_is_touched(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is looked at, in the broker; beside names that look alike."""
    kafka = Kafka(broker.bootstrap)
    lookalike = "eoslog-rehearsal-0123456789ab.kills"
    mine = [kafka.topic(2, lookalike), kafka.topic(2, "orders")]
    other = kafka.transactional(lookalike)
    other.begin_transaction()
    other.produce(lookalike, b"open", partition=0)
    other.flush(WAIT_S)
    asked: list[tuple[int, Any]] = []
    around = RequestFaults.around

    def watched(self: Any, client: Any, header: Any, handler: Any) -> Any:
        def handle(context: Any, request: Any) -> Any:
            asked.append((header.api_key, request))
            return real(context, request)

        real = around(self, client, header, handler)
        return handle

    monkeypatch.setattr(RequestFaults, "around", watched)
    found = document(broker.bootstrap, "--topic", "orders")
    monkeypatch.undo()
    stem = found["scratch_names"].removesuffix("*")
    assert {api for api, _ in asked} <= READS | set(CHANGES)
    changed = {name for api, request in asked if api in CHANGES for name in CHANGES[ApiKey(api)](request)}
    assert len(changed) > 50 and all(name.startswith(stem) for name in changed), changed
    assert set(mine) <= names_of(broker.bootstrap)
    other.commit_transaction(WAIT_S)  # nobody has fenced it, or ended its transaction
    assert [row[3] for row in kafka.rows(lookalike, 2)] == [b"open"]
    assert kafka.rows("orders", 2) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_cleans_up(broker: EmbeddedBroker, number: signal.Signals) -> None:
    before = names_of(broker.bootstrap)
    command = [sys.executable, "-u", "-m", "eoslog", "rehearse", "--bootstrap-server", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if "two-phase commit" in line:  # the next row takes longest
                os.kill(program.pid, number)
                break
        rest = program.stdout.read()
        assert program.wait(WAIT_S) == 2, rest
    assert "interrupted" in rest and re.search(r"holds +clean-up: removed .*13 topics", rest), rest
    assert names_of(broker.bootstrap) == before and ongoing(broker.bootstrap) == []


@pytest.mark.long
def test_a_failure_cleans_up(faulty: EmbeddedBroker) -> None:
    before = names_of(faulty.bootstrap)
    faulty.faults.answer_error("Produce", ErrorCode.UNKNOWN_SERVER_ERROR, times=0)
    found = document(faulty.bootstrap, "--timeout", "2")
    faulty.faults.disarm()
    assert found["status"] == 1 and "UNKNOWN_SERVER_ERROR" in not_holding(found)["committed rows"]
    assert names_of(faulty.bootstrap) == before


@pytest.mark.long
def test_a_fault_of_the_rehearsal_cleans_up(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(work: Work, word: str, _: Any) -> None:
        work.write(work.open(word), (work.names.name(word), 0), ["of a transaction that stays open"])
        raise RuntimeError("a fault of our own")

    before = names_of(broker.bootstrap)
    monkeypatch.setattr("eoslog.rehearse.kills.rehearse", faulty)
    result = rehearse(broker.bootstrap)
    assert result.exit_code == 2 and "RuntimeError: a fault of our own" in result.stderr
    assert re.search(r"clean-up: removed [1-4] open transactions?, 13 topics", result.stdout)
    assert names_of(broker.bootstrap) == before and ongoing(broker.bootstrap) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("api", "kind", "count"), [("DeleteTopics", "topic", 13), ("DeleteGroups", "group", 3)]
)
def test_what_cannot_be_removed_is_told(faulty: EmbeddedBroker, api: str, kind: str, count: int) -> None:
    before = names_of(faulty.bootstrap)
    faulty.faults.answer_error(api, ErrorCode.POLICY_VIOLATION, times=0)
    found = document(faulty.bootstrap)
    assert found["status"] == 2 and verdicts(found)["clean-up"] == "unknown"
    told = {re.match(rf"{kind} (\S+): .*POLICY_VIOLATION", text) for text in found["left"]}
    left = names_of(faulty.bootstrap) - before
    assert {match[1] for match in told if match} == left and len(left) == count, found["left"]


@pytest.mark.long
def test_a_broker_that_dies_is_told() -> None:
    with EmbeddedBroker(in_thread=True) as broker:
        broker.faults.drop_request("TxnOffsetCommit", times=0, cut=False)
        broker.faults.drop_request("DeleteTopics", times=0, cut=False)
        found = document(broker.bootstrap, "--timeout", "2")
    assert found["status"] == 2 and verdicts(found)["offsets in transactions"] == "unknown", found
    assert len([text for text in found["left"] if text.startswith("topic ")]) == 13


@pytest.mark.long
@pytest.mark.parametrize(
    ("shell", "says"),
    [("exit 3", "ended with status 3"), ("test $((1 + 1)) = 2", "none has crashed")],
)
def test_a_command_that_crashes_nothing_proves_nothing(broker: EmbeddedBroker, shell: str, says: str) -> None:
    found = document(broker.bootstrap, "--crash", shell)
    assert says in not_holding(found)["a crash of brokers"] and found["status"] == 2
    assert not found["left"] and found["removed"]["topic"] == 15


@pytest.mark.long
def test_a_broker_that_is_gone_leaves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(in_thread=True) as broker:
        monkeypatch.setattr("eoslog.rehearse.kills.rehearse", lambda *_: broker.kill())
        found = document(broker.bootstrap, "--timeout", "2")
        broker.start()
    assert found["status"] == 2
    kinds = [text.partition(" ")[0] for text in found["left"]]
    assert kinds.count("topic") == 13 and {"open", "groups"} < set(kinds), found["left"]


@pytest.mark.long
def test_no_broker_is_status_2() -> None:
    found = document("127.0.0.1:9", "--timeout", "1")
    assert found["status"] == 2 and verdicts(found)["API versions"] == "unknown"


@pytest.mark.long
@pytest.mark.parametrize(
    "wrong",
    [("--principal", "alice"), ("--command-config", "/no/file"), ("--downtime", "-1"), ("--topik", "t")],
)
def test_a_wrong_command_line_is_status_2(wrong: tuple[str, str]) -> None:
    result = rehearse("127.0.0.1:9", *wrong)
    assert result.exit_code == 2 and "rror" in result.output and "scratch" not in result.output


@pytest.mark.long
def test_help_is_a_manual() -> None:
    text = CliRunner().invoke(main, ["rehearse", "--help"]).output
    for part in ("EXAMPLES", "EXIT STATUS", "FILES", "SEE ALSO", "--batch-seconds", "--downtime", "--topic"):
        assert part in text


# -- limits ---------------------------------------------------------------------------------------

SHORT = {
    "transaction.max.timeout.ms": "10000",
    "transactional.id.expiration.ms": "60000",
    "producer.id.expiration.ms": "60000",
    "offsets.retention.minutes": "5",
    "log.retention.ms": "300000",
    **SWEEPS,
}


@pytest.mark.long
def test_limits_that_are_too_short_are_named() -> None:
    with EmbeddedBroker(in_thread=True, config=SHORT) as broker:
        unclean = {"unclean_leader_election_enable": "true"}
        Kafka(broker.bootstrap).topic(1, "kept", retention_ms="86400000", **unclean)
        long = document(broker.bootstrap, "--batch-seconds", "10", "--topic", "kept", "--topic", "absent")
        short = document(broker.bootstrap, "--batch-seconds", "1", "--downtime", "10")
    assert set(not_holding(long)) >= {
        "transaction.max.timeout.ms", "transactional.id.expiration.ms", "offsets.retention.minutes",
        "retention of new topics", "rights on topic absent", "unclean.leader.election.enable of topic kept",
    }  # fmt: skip
    assert verdicts(long)["retention of topic kept"] == "holds"
    assert verdicts(long)["producer.id.expiration.ms"] == "note"  # transaction.version 2
    do = {row["row"]: row["do"] for row in long["rows"]}
    assert "offsets.retention.minutes=11 or more" in do["offsets.retention.minutes"][0]
    slow = {"transactions that have time"}  # not known where a rehearsal takes longer than the 10 s
    assert set(not_holding(short)) - slow == {"transaction.max.timeout.ms"}  # 1 s, and 10 s of safety


# -- rights ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(**SWEEPS) as started:
        yield started


def config_of(site: Site, user: str, folder: Path) -> tuple[str, ...]:
    """Options of the command line for a user of the site."""
    named = site.client(user)
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    file = folder / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={jaas} username="{user}" password="{named["sasl.password"]}";\n'
    )
    return named["bootstrap.servers"], "--command-config", str(file)


def give(site: Site, lines: list[str]) -> None:
    """Do what the lines of kafka-acls.sh say."""
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "kafka-acls.sh" and "--add" in words
        user = words[words.index("--allow-principal") + 1].removeprefix("User:")
        kind, name = next(
            (kind, words[words.index(f"--{kind}") + 1] if kind != "cluster" else "kafka-cluster")
            for kind in ("topic", "group", "transactional-id", "cluster")
            if f"--{kind}" in words
        )
        for operation in (words[at + 1] for at, word in enumerate(words) if word == "--operation"):
            kafkas = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            rule = f"{kafkas} {kind.replace('-', '_').upper()} {name}"
            site.change(user, rule, prefixed="--resource-pattern-type" in words)


def acls(found: dict[str, Any]) -> list[str]:
    return [line for row in found["rows"] for line in row["do"] if line.startswith("kafka-acls.sh")]


@pytest.mark.long
def test_the_printed_acls_are_enough(site: Site, tmp_path: Path) -> None:
    where = config_of(site, "alice", tmp_path)
    site.forget()
    without = document(*where)
    assert without["status"] == 1 and verdicts(without)["rights"] == "fails"
    give(site, acls(without))
    given = document(*where)
    assert not not_holding(given) and given["status"] == 0, given
    assert verdicts(given)["right to repair"] == verdicts(given)["two-phase commit"] == "note"
    assert [line for line in acls(given) if "--operation TwoPhaseCommit --transactional-id eoslog-" in line]


@pytest.mark.long
def test_the_page_shows_a_missing_right(site: Site, tmp_path: Path) -> None:
    where = config_of(site, "alice", tmp_path)
    site.forget()
    give(site, [line for line in acls(document(*where)) if "--transactional-id" not in line])
    printed = rehearse(*where).output.replace(where[0], "127.0.0.1:9092").splitlines()
    (block,) = [one for one in blocks_of(PAGE) if one.language == "text"]
    assert set(block.code.splitlines()) <= set(printed), printed


MISSING = [
    ("WRITE", "TOPIC", "eoslog-rehearsal-", "rights of a query", "--operation Write --topic"),
    ("READ", "TOPIC", "eoslog-rehearsal-", "rights of a query", "--operation Read --topic"),
    ("READ", "GROUP", "eoslog-rehearsal-", "rights of a query", "--operation Read --group"),
    ("READ", "TOPIC", "__consumer_offsets", "rights of a query", "--topic __consumer_offsets"),
    ("WRITE", "TRANSACTIONAL_ID", "eoslog-rehearsal-", "rights of a query", "--transactional-id"),
    ("DELETE", "TOPIC", "eoslog-rehearsal-", "rights of the rehearsal", "--operation Delete --topic"),
    ("DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster", "limits of the brokers", "DescribeConfigs --cluster"),
]


@pytest.mark.long
@pytest.mark.parametrize(("operation", "kind", "name", "row", "line"), MISSING)
def test_a_missing_right_is_named(
    site: Site, tmp_path: Path, operation: str, kind: str, name: str, row: str, line: str
) -> None:
    where = config_of(site, "bob", tmp_path)
    site.forget()
    give(site, [text.replace("alice", "bob") for text in acls(document(*where))])
    site.change("bob", f"{operation} {kind} {name}", deny=True, prefixed=name.startswith("eoslog"))
    found = document(*where)
    assert row in not_holding(found), found
    assert any(line in text for text in acls(found)), acls(found)
    assert found["status"] == (1 if row == "rights of a query" else 2)


# -- rows ------------------------------------------------------------------------------------------
# What a rehearsal says of limits, load, time-outs and rights: the rows, without a cluster.


# -- limits --------------------------------------------------------------------------------------
# What a cluster keeps for too short a time, compared with the query: the rows, without a cluster.

KAFKAS: dict[str, str] = {
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
    "producer.id.expiration.ms": "86400000",
    "offsets.retention.minutes": "10080",
    "offset.metadata.max.bytes": "4096",
    UNCLEAN: "false",
}
"""The defaults of Apache Kafka 4.3.1."""
QUERY = Query(60_000, 600_000)
TIMES = [name for name in BROKER_CONFIGS if name.endswith((".ms", ".minutes"))]


def verdicts_of_rows(query: Query, *brokers: Configs) -> dict[str, Verdict]:
    return {row.name: row.verdict for row in broker_rows(dict(enumerate(brokers, 1)), query)}


def test_kafkas_defaults_hold() -> None:
    assert set(verdicts_of_rows(QUERY, KAFKAS).values()) == {Verdict.HOLDS}


@pytest.mark.parametrize("name", TIMES)
def test_what_one_broker_forgets_too_early_is_named(name: str) -> None:
    short = KAFKAS | {name: "10" if name.endswith("minutes") else "600000"}
    found = {row.name: row for row in broker_rows({1: KAFKAS, 2: short, 3: KAFKAS}, QUERY)}
    assert {name for name, row in found.items() if row.verdict is Verdict.FAILS} == {name}
    assert "on broker 2" in found[name].what and f"set {name}=" in found[name].do[0]


def test_late_rows_are_refused_by_leaders_that_ask_the_coordinator() -> None:
    """Then the epochs that leaders forget are not needed."""
    short = KAFKAS | {"producer.id.expiration.ms": "600000"}
    (name,) = [name for name, one in verdicts_of_rows(QUERY, short).items() if one is Verdict.FAILS]
    assert verdicts_of_rows(QUERY._replace(verified=True), short)[name] is Verdict.NOTE


def test_old_brokers_forget_producers_with_their_transactional_ids() -> None:
    """Kafka 3.3.2 has no config of its own. That another broker without it does so is not seen."""
    old = {name: value for name, value in KAFKAS.items() if name != "producer.id.expiration.ms"}
    assert verdicts_of_rows(QUERY, old)["producer.id.expiration.ms"] is Verdict.NOTE
    short = old | {"transactional.id.expiration.ms": "600000"}
    assert verdicts_of_rows(QUERY, short)["producer.id.expiration.ms"] is Verdict.FAILS


def test_what_no_broker_tells_is_unknown() -> None:
    assert set(verdicts_of_rows(QUERY, {}).values()) == {Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("value", "verdict"), [("false", Verdict.HOLDS), ("true", Verdict.FAILS), ("", Verdict.UNKNOWN)]
)
def test_unclean_elections(value: str, verdict: Verdict) -> None:
    assert unclean_row("topic orders", "orders", value).verdict is verdict
    rows = topic_rows("orders", "topic orders", {UNCLEAN: value}, 3, QUERY)
    assert {row.verdict for row in rows if row.name.startswith(UNCLEAN)} == {verdict}
    hidden = unclean_by_default("__consumer_offsets", {value, "false"} if value else {value})
    assert hidden.verdict is (Verdict.NOTE if value == "false" else verdict)


def test_what_to_do_about_unclean_elections() -> None:
    assert unclean_row("topic orders", "orders", "true").do == (
        "eoslog topics configs orders --set unclean.leader.election.enable=false",
    )
    assert unclean_row("new topics", "", "true").do == (
        "set unclean.leader.election.enable=false on brokers",
    )


# -- load ----------------------------------------------------------------------------------------
# What a rehearsal says of the load that a crash has cut off.


def offset(*_: Any) -> None:
    raise StillPending("UNSTABLE_OFFSET_COMMIT, for 2.0 s")


def test_an_offset_that_stays_pending_is_named() -> None:
    """It ended the rehearsal, as if that itself were broken."""
    load: Any = SimpleNamespace(work=SimpleNamespace(offset=offset, place=("decisions", 0)))
    writer: Any = SimpleNamespace(done=0, group="g", row=str)
    with pytest.raises(DoesNotHold, match="an offset stays pending although brokers have crashed under load"):
        Load._check(load, writer, Counter())


# -- time-outs -----------------------------------------------------------------------------------
# What a rehearsal says of time-outs that did not come, or that cannot be told from another history.

WHO = Participant("dead", ProducerIdentity(7, 0))


class Told:
    """A Work whose cluster tells this after a time-out. `written`: how often the row is in the log."""

    patience_s = 0.0
    timeout_ms = 60_000
    place = ("decisions", 0)

    def __init__(self, state: str = "CompleteAbort", epoch: int = 1, written: int = 1) -> None:
        self.state, self.epoch, self.written = state, epoch, written
        self.names = self

    def name(self, word: str) -> str:
        return word

    def describe(self, name: str) -> TransactionDescription | None:
        return TransactionDescription(self.state, ProducerIdentity(7, self.epoch), 3_000, 0, [])

    def check_readable(self, topic: str, when: str) -> None: ...

    def check_rows(self, topic: str, expected: list[str], when: str) -> None: ...

    def rows(self, topic: str, *, committed: bool = True) -> dict[str, int]:
        return {ROW: self.written}

    def offset(self, group: str, place: Any) -> None: ...

    def end(self, who: Participant, *, commit: bool) -> None:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def rows(told: Told, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Row -> verdict."""
    monkeypatch.setattr(probes, "SWEEP_S", 0.0)
    work: Any = told
    looked = TimeOut(work, who=WHO, longer=WHO)
    return {row.name: row.verdict.value for row in looked.rows()}


def test_a_time_out_that_was_seen_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(Told(), monkeypatch)
    assert found["time-outs"] == found[PROOF] == "holds"


def test_a_time_out_that_another_history_could_be_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.0.0 with transaction.version 2 raises the epoch by two."""
    found = rows(Told(epoch=2), monkeypatch)
    assert found["time-outs"] == "holds" and found[PROOF] == "note"


@pytest.mark.parametrize("told", [Told("Ongoing"), Told(written=0)])
def test_a_time_out_that_did_not_happen_does_not_hold(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is said of transactions that would have had to outlast it."""
    assert rows(told, monkeypatch) == {"time-outs": "fails"}


class OneLeft(Told):
    """The transaction that should have had time is over, too, and the sealed one is open: a slow machine."""

    sealed = "Ongoing"

    def describe(self, name: str) -> TransactionDescription | None:
        state = self.sealed if name == "sealed" else self.state
        return TransactionDescription(state, ProducerIdentity(7, self.epoch), 3_000, 0, [])

    def check_rows(self, topic: str, expected: list[str], when: str) -> None:
        there = [ROW] if topic == probes.LASTS else []
        if expected != there:
            raise DoesNotHold(f"{expected} instead of {there}")

    def end(self, who: Participant, *, commit: bool) -> None:
        if who.name != "sealed":
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize(("state", "verdict"), [("Ongoing", "holds"), ("CompleteAbort", "fails")])
def test_too_much_time_has_passed(state: str, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not known then; but the sealed transaction holds, and its row alone is there. One that is not
    open any more does not hold, whatever its end is answered with."""
    monkeypatch.setattr(OneLeft, "sealed", state)
    monkeypatch.setattr(probes, "SWEEP_S", 0.0)
    work: Any = OneLeft()
    sealed = Participant("sealed", ProducerIdentity(8, 0)), ProducerIdentity(8, 1)
    looked = TimeOut(work, who=WHO, longer=WHO, sealed=sealed, begun_s=-1e9)
    found = {row.name: row.verdict.value for row in looked.rows()}
    assert (found["transactions that have time"], found["sealed transactions"]) == ("unknown", verdict)


# -- rights --------------------------------------------------------------------------------------
# Whom a rehearsal's printed rights are for, by the client's settings alone.


@pytest.mark.parametrize(("sasl", "user"), [
    (None, "User:ANONYMOUS"),
    (SaslSettings("PLAIN", "alice@example.org", "word"), "User:alice@example.org"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "alice@REALM", "/k")), "User:alice"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "spark/host@REALM", "/k")), "User:spark"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "alice", "/k")), "User:alice"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", ticket_cache="/none")), "User:ANONYMOUS"),
])  # fmt: skip
def test_whom_brokers_take_a_client_for(sasl: SaslSettings | None, user: str) -> None:
    assert _principal(ClientConfig((("b", 1),), security=Security(sasl=sasl))) == user
