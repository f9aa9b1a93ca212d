"""`eoslog transactions`: shows transactions and producers; finds and aborts hanging ones (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from eoslog.client.admin import producers as admin
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.producers import ActiveProducer, Holder, clock
from eoslog.client.admin.topics import LATEST, describe_topics, list_offsets
from eoslog.client.admin.transaction_states import ENDED, ONGOING
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import CommandSession, cluster_command, partitions_of
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run import runner
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import NEVER_MS
from eoslog.protocol.topic_partitions import TopicPartition

_HELD = ["topic", "partition", "stable", "end", "transactional_id", "producer_id", "epoch", "state"]
_HELD += ["open_since", "timeout", "sink"]


@dataclass(frozen=True)
class HeldPartition:
    """A partition that is held back. `holder`: what holds it back, None if that has ended since. `decision`:
    the last one of the holder's sink.
    """

    where: TopicPartition
    stable: int
    end: int
    holder: Holder | None
    decision: Decision | None

    @property
    def decided(self) -> bool:
        """Whether the transaction's batch is decided, so that it must be committed."""
        if self.holder is None or self.decision is None:
            return False
        mine = (self.holder.name, (self.holder.producer.producer_id, self.holder.producer.epoch))
        return mine in self.decision.participants

    def what_to_do(self) -> str:
        """What to do, as a sentence without its full stop."""
        if self.holder is None:
            return "the transaction that held it back has just ended: run this again"
        if self.decided and self.decision is not None and not self.holder.hangs:
            return (
                "its batch is decided, and an abort would lose its rows: start the query of sink "
                f"{self.holder.sink} again (query {self.decision.batch.query_id}), which commits it"
            )
        return self.holder.way_out()

    def document(self) -> dict[str, Any]:
        """All that is known, for the JSON document."""
        holder = self.holder
        found = None if holder is None or holder.hangs else holder.found
        sealed = holder is not None and holder.sealed
        return {
            "topic": self.where[0],
            "partition": self.where[1],
            "stable": self.stable,
            "end": self.end,
            "transactional_id": holder and holder.name,
            "producer_id": holder and holder.producer.producer_id,
            "epoch": holder and holder.producer.epoch,
            "state": found and found.state,
            "open_since": clock(found.start_ms) if found and found.start_ms >= 0 else None,
            "timeout_ms": None if found is None or sealed else found.timeout_ms,
            "sealed": sealed,
            "sink": holder and holder.sink,
            "query": self.decision and self.decision.batch.query_id,
            "decided": self.decided,
            "what_to_do": self.what_to_do(),
        }

    def in_words(self) -> dict[str, Any]:
        """More columns, for the table."""
        sealed = self.holder is not None and self.holder.sealed
        return {"timeout": "sealed" if sealed else self.document()["timeout_ms"]}


def find_held(cluster: Cluster, places: Sequence[TopicPartition]) -> list[HeldPartition]:
    """The partitions whose last stable offset is behind their end. Raises KafkaError, EoslogError."""
    wanted = dict.fromkeys(places, LATEST)
    ends = list_offsets(cluster, wanted, committed=False)  # first: later records do not count
    stable = list_offsets(cluster, wanted, committed=True)
    behind = [where for where in places if stable[where] < ends[where]]
    if not behind:
        return []
    known = _still_there(cluster, admin.holders(cluster, admin.oldest(admin.producers(cluster, behind))))
    by_place = {holder.producer.where: holder for holder in known}
    decisions = {sink: last_decision(cluster, sink) for sink in {h.sink for h in known if h.sink}}
    return [
        HeldPartition(
            where, stable[where], ends[where], holder, decisions.get(holder.sink or "") if holder else None
        )
        for where, holder in ((where, by_place.get(where)) for where in behind)
    ]


def _still_there(cluster: Cluster, known: Sequence[Holder]) -> list[Holder]:
    """Without those that ended between the requests to the partition and to the coordinator: these seem to
    hang.
    """
    doubted = [holder.producer.where for holder in known if holder.hangs]
    found = admin.producers(cluster, doubted) if doubted else []
    begun = {(producer.where, producer.producer_id, producer.start) for producer in found}
    return [
        holder
        for holder in known
        if not holder.hangs
        or (holder.producer.where, holder.producer.producer_id, holder.producer.start) in begun
    ]


def last_decision(cluster: Cluster, name: str) -> Decision | None:
    """The last batch that a sink has decided. None: there is none, or this user may not read it."""
    try:
        return runner.last_decision(cluster, Sink(name))
    except (EoslogError, KafkaError):
        return None


_MINUTE_MS = 60_000
_PRODUCER = ["topic", "partition", "producer_id", "epoch", "coordinator_epoch", "last_sequence"]
_PRODUCER += ["last_timestamp", "start_offset"]
_HANGING = ["topic", "partition", "producer_id", "epoch", "coordinator_epoch", "start_offset", "minutes"]


@click.group()
def command() -> None:
    """Show transactions; find and abort hanging ones."""


@command.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only in it; repeatable.")
@click.option("--prefix", default="", help="Only transactional ids that begin with this.")
@click.option(
    "--sealed", is_flag=True,
    help="Only those sealed for a two-phase commit, which never time out: age, and sink.",
)  # fmt: skip
@cluster_command
def list_transactions(session: CommandSession, states: tuple[str, ...], prefix: str, sealed: bool) -> None:
    """List transactional ids and the state of their transaction."""
    if sealed:
        _list_sealed(session, prefix)
        return
    rows = [
        {"transactional_id": found.transactional_id, "producer_id": found.producer_id, "state": found.state}
        for found in transaction_states.list_transactions(session.cluster, prefix, states)
    ]
    session.show(rows, ["transactional_id", "producer_id", "state"])


def _list_sealed(session: CommandSession, prefix: str) -> None:
    names = [
        found.transactional_id
        for found in transaction_states.list_transactions(session.cluster, prefix, [ONGOING])
    ]
    now_ms, rows = time.time() * 1000, []
    for name, found in (transaction_states.describe(session.cluster, names) if names else {}).items():
        if found is not None and found.timeout_ms == NEVER_MS:
            rows.append({
                "transactional_id": name,
                "sink": sink_of(name),
                "age_seconds": _age(found, now_ms),
                "partitions": [f"{topic}-{number}" for topic, number in found.partitions],
            })  # fmt: skip
    session.show(rows, ["transactional_id", "sink", "age_seconds", "partitions"])


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@cluster_command
def describe(session: CommandSession, names: tuple[str, ...]) -> None:
    """Show what the coordinators know about transactional ids."""
    now_ms, rows = time.time() * 1000, []
    for name, found in transaction_states.describe(session.cluster, names).items():
        if found is None:
            session.fail(f"there is no transactional id {name}")
            continue
        rows.append({
            "transactional_id": name,
            "state": found.state,
            "producer_id": found.identity.producer_id,
            "epoch": found.identity.epoch,
            "timeout_ms": found.timeout_ms,
            "age_seconds": _age(found, now_ms),
            "sealed": found.timeout_ms == NEVER_MS and found.state not in ENDED,
            "sink": sink_of(name),
            "partitions": [f"{topic}-{number}" for topic, number in found.partitions],
        })  # fmt: skip
    columns = ["transactional_id", "state", "producer_id", "epoch", "timeout_ms", "age_seconds"]
    columns += ["sealed", "sink", "partitions"]
    session.show(rows, columns)


def _age(found: transaction_states.TransactionDescription, now_ms: float) -> int | None:
    if found.state in ENDED or found.start_ms < 0:
        return None
    return int((now_ms - found.start_ms) / 1000)


@command.command()
@click.argument("name", metavar="TOPIC[:0,1]")
@cluster_command
def producers(session: CommandSession, name: str) -> None:
    """Show the producers that a topic's partitions remember."""
    found = admin.producers(session.cluster, _partitions(session, name))
    session.show([_row(producer) for producer in found], _PRODUCER)


@command.command()
@click.argument("name", metavar="TOPIC[:0,1]")
@cluster_command
def holders(session: CommandSession, name: str) -> None:
    """Show what holds back readers of committed data, since when, and what to do."""
    found = find_held(session.cluster, _partitions(session, name))
    if session.as_json:
        session.show_json([row.document() for row in found])
    elif not found:
        session.say(f"{name}: nothing is held back")
    else:
        session.show([row.document() | row.in_words() for row in found], _HELD)
        for row in found:
            session.say(f"{row.where[0]}-{row.where[1]}: {row.what_to_do()}")


@command.command("find-hanging")
@click.option("--topic", metavar="TOPIC[:0,1]", help="Only on this topic.  [default: all topics]")
@click.option(
    "--max-transaction-timeout", "minutes", type=click.FloatRange(0), default=15.0, show_default=True,
    metavar="MINUTES", help="Leave out younger ones: they may be in use.",
)  # fmt: skip
@cluster_command
def find_hanging(session: CommandSession, topic: str | None, minutes: float) -> None:
    """Find transactions that hold back readers and that no coordinator will end."""
    now_ms = time.time() * 1000
    old = [
        producer
        for producer in admin.producers(session.cluster, _partitions(session, topic))
        if producer.start >= 0 and now_ms - producer.last_timestamp > minutes * _MINUTE_MS
    ]
    rows = [
        _row(one.producer) | {"minutes": int((now_ms - one.producer.last_timestamp) / _MINUTE_MS)}
        for one in admin.holders(session.cluster, old)
        if one.hangs
    ]
    session.show(rows, _HANGING)


@command.command()
@click.option("--transactional-id", metavar="ID", help="Abort its open transaction, and fence its producer.")
@click.option("--topic", metavar="TOPIC", help="Abort on one partition of this topic.")
@click.option("--partition", type=click.IntRange(0))
@click.option("--start-offset", type=click.IntRange(0), help="The transaction's first offset there.")
@click.option("--force", is_flag=True, help="Even if it takes part in a two-phase commit.")
@cluster_command
def abort(
    session: CommandSession,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    force: bool,
) -> None:
    """Abort a transaction: by transactional id, or a hanging one on a single partition.

    Another one may not be aborted on one partition: its coordinator could still commit it on the others.
    """
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        _abort_id(session, transactional_id, force)
    elif transactional_id is not None or topic is None or partition is None or start_offset is None:
        raise click.UsageError("give --transactional-id, or --topic, --partition and --start-offset")
    else:
        _abort_place(session, (topic, partition), start_offset, force)


def _abort_id(session: CommandSession, transactional_id: str, force: bool) -> None:
    found = transaction_states.describe(session.cluster, [transactional_id])[transactional_id]
    if found is None:
        raise click.ClickException(f"there is no transactional id {transactional_id}")
    if found.state in ENDED:
        raise click.ClickException(f"{transactional_id} has no open transaction ({found.state})")
    if found.timeout_ms == NEVER_MS and not force:
        raise click.ClickException(
            f"{transactional_id} takes part in a two-phase commit, whose outcome may be decided: "
            "ask the system that decides it, or give --force"
        )
    transactions.init_producer_id(session.cluster, transactional_id, min(found.timeout_ms, _MINUTE_MS))
    after = transaction_states.describe(session.cluster, [transactional_id])[transactional_id]
    state = after.state if after is not None else "gone"
    session.say(f"{transactional_id}: aborted, its producer is fenced (state {state})")


def _abort_place(session: CommandSession, where: TopicPartition, start_offset: int, force: bool) -> None:
    cluster, name = session.cluster, f"{where[0]}-{where[1]}"
    found = [p for p in admin.producers(cluster, [where]) if p.start == start_offset]
    if not found:
        raise click.ClickException(f"no transaction that is open on {name} begins at offset {start_offset}")
    for holder in [] if force else admin.holders(cluster, found):
        if not holder.hangs:
            raise click.ClickException(
                f"the transaction at offset {start_offset} of {name} does not hang, {holder.name} has it "
                f"open: abort it with --transactional-id {holder.name}"
            )
    admin.abort_on_partition(cluster, found[0])
    session.say(f"{name}: the transaction of producer id {found[0].producer_id} is aborted")


def _partitions(session: CommandSession, text: str | None) -> list[TopicPartition]:
    there = {name: list(topic.partitions) for name, topic in describe_topics(session.cluster).items()}
    if text is not None:
        return partitions_of(text, there)
    return [(name, number) for name, numbers in there.items() for number in numbers]


def _row(producer: ActiveProducer) -> dict[str, object]:
    return {
        "topic": producer.where[0],
        "partition": producer.where[1],
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "start_offset": producer.start,
    }
