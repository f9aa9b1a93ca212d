"""Which transactions hold back readers of committed records, and what to do about them.

Readers stop at the last stable offset of a partition: at the beginning of its oldest open transaction.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eoslog.client.admin import transactions
from eoslog.client.admin.producers import ActiveProducer
from eoslog.client.wire.cluster import Cluster
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.topic_partitions import TopicPartition

NEVER_MS = 2**31 - 1
"""The time-out of a transaction under two-phase commit (KIP-939): it is sealed, and ends only when its sink,
or a user by hand, ends it."""
_BEING_ENDED = ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True)
class Holder:
    """The transaction that holds a partition back: as the partition knows it, its transactional id (None: not
    known), and as its coordinator describes it (None: the coordinator does not know it)."""

    producer: ActiveProducer
    name: str | None
    found: transactions.TransactionDescription | None

    @property
    def sink(self) -> str | None:
        """The eoslog sink whose transaction it is; None: by its name it belongs to none."""
        return None if self.name is None else sink_of(self.name)

    @property
    def hangs(self) -> bool:
        """Whether no coordinator will end the transaction on this partition."""
        return self.found is None or self.producer.where not in self.found.partitions

    @property
    def sealed(self) -> bool:
        """Whether it takes part in a two-phase commit, and never times out."""
        return self.found is not None and not self.hangs and self.found.timeout_ms == NEVER_MS

    def way_out(self) -> str:
        """What to do, as a sentence without its full stop."""
        if self.hangs or self.found is None:
            topic, partition = self.producer.where
            return (
                "no coordinator will end it, as far as this user can see (Describe on its transactional id); "
                f"to end it, eoslog transactions abort --topic {topic} --partition {partition} "
                f"--start-offset {self.producer.start}"
            )
        if self.found.state in _BEING_ENDED:
            return (
                "its coordinator is ending it, and waits for its partitions' leaders: if that takes more "
                "than some seconds, check the brokers"
            )
        if not self.sealed:
            return (
                "it ends when its producer or its time-out ends it; to end it now, "
                f"eoslog transactions abort --transactional-id {self.name}"
            )
        who = "the program that began it ends it" if self.sink is None else (
            f"start the query of sink {self.sink} again, which ends it"
        )  # fmt: skip
        return (
            f"it is sealed for a two-phase commit and never times out: {who}; if that never happens, "
            f"eoslog transactions abort --transactional-id {self.name} --force"
        )


def oldest(found: Iterable[ActiveProducer]) -> list[ActiveProducer]:
    """The first open transaction of each partition: that is the one that holds readers back."""
    first: dict[TopicPartition, ActiveProducer] = {}
    for producer in found:
        known = first.get(producer.where)
        if producer.start >= 0 and (known is None or producer.start < known.start):
            first[producer.where] = producer
    return list(first.values())


def holders(cluster: Cluster, open_there: Sequence[ActiveProducer]) -> list[Holder]:
    """What the coordinators know of these transactions. Raises KafkaError, EoslogError."""
    if not open_there:
        return []
    ids = sorted({producer.producer_id for producer in open_there})
    listed = transactions.list_transactions(cluster, "", producer_ids=ids)
    names = {listing.producer_id: listing.transactional_id for listing in listed}
    known = transactions.describe(cluster, sorted(set(names.values()))) if names else {}
    return [
        Holder(producer, names.get(producer.producer_id), known.get(names.get(producer.producer_id, "")))
        for producer in open_there
    ]


def clock(ms: int) -> str:
    """A time in ms since 1970, as text (UTC)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
