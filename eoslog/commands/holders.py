"""What holds back readers of committed data, by partition, for `eoslog transactions holders`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eoslog.client.admin.group_offsets import fetch_committed
from eoslog.client.admin.list_offsets import LATEST, list_offsets
from eoslog.client.admin.producers import Holder, clock, holders, oldest, producers
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.decision import Decision, decode, topics_with_chunks
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

COLUMNS = ["topic", "partition", "stable", "end", "transactional_id", "producer_id", "epoch", "state"]
COLUMNS += ["open_since", "timeout", "sink"]


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


def find(cluster: Cluster, places: Sequence[TopicPartition]) -> list[HeldPartition]:
    """The partitions whose last stable offset is behind their end. Raises KafkaError, EoslogError."""
    wanted = dict.fromkeys(places, LATEST)
    ends = list_offsets(cluster, wanted, committed=False)  # first: later records do not count
    stable = list_offsets(cluster, wanted, committed=True)
    behind = [where for where in places if stable[where] < ends[where]]
    if not behind:
        return []
    known = _still_there(cluster, holders(cluster, oldest(producers(cluster, behind))))
    by_place = {holder.producer.where: holder for holder in known}
    decisions = {sink: _last_decision(cluster, sink) for sink in {h.sink for h in known if h.sink}}
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
    found = producers(cluster, doubted) if doubted else []
    begun = {(producer.where, producer.producer_id, producer.start) for producer in found}
    return [
        holder
        for holder in known
        if not holder.hangs
        or (holder.producer.where, holder.producer.producer_id, holder.producer.start) in begun
    ]


def _last_decision(cluster: Cluster, name: str) -> Decision | None:
    """The last batch that a sink has decided. None: there is none, or this user may not read it."""
    sink = Sink(name)
    try:
        committed = fetch_committed(cluster, sink.group, None, require_stable=False)
        topics = topics_with_chunks(committed)  # option decision.topic: one of them
        return decode(sink, {number: kept for (topic, number), kept in committed.items() if topic in topics})
    except (EoslogError, KafkaError):
        return None
