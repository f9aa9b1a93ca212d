"""Kafka's broker options that have no meaning here: which are passed over, and which must be refused.

A server.properties made for Kafka starts this broker too, as far as that weakens nothing. Passed over,
with a line in the log, is what tunes machinery that this broker does not have. Refused is what its owner
relies on for safety: more copies, closed doors, rules of one's own. `harmless` are the values with which
even such an option asks for nothing that is missing.

The table is looked at only for names that are no options here, so an option that comes to be wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Foreign:
    """A line of the table: `names` are patterns, `refused` unless the value is one of `harmless`."""

    names: tuple[str, ...]
    why: str
    refused: bool = False
    harmless: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether this line is about the option."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)

    def refuses(self, value: str) -> bool:
        """Whether a broker with this value must not start."""
        return self.refused and value.strip() not in self.harmless


def _ignored(why: str, *names: str) -> Foreign:
    return Foreign(names, why)


def _refused(why: str, *names: str, harmless: Iterable[str] = ()) -> Foreign:
    return Foreign(names, why, True, tuple(harmless))


COPIES = ("*.replication.factor", "min.insync.replicas", "*.min.isr")
"""Options about the number of copies, those that are known here too."""

# The first line that takes a name counts.
TABLE: tuple[Foreign, ...] = (
    _ignored("there are no share groups", "group.share.*", "share.*"),
    _ignored("there are no streams groups", "group.streams.*"),
    _ignored("groups with members do not move between protocols here", "group.consumer.migration.policy"),
    # What would weaken a promise.
    _refused(
        "one broker keeps one copy of everything",
        *COPIES,
        harmless=("", "1", "-1"),
    ),
    _refused("there is no tiered storage", "remote.log.storage.system.enable", harmless=("", "false")),
    _refused("policies are Java classes", "create.topic.policy.class.name", "alter.config.policy.class.name",
             harmless=("",)),
    _refused("there are no client quotas", "client.quota.callback.class", harmless=("",)),
    _refused("values are not looked up elsewhere", "config.providers", "config.providers.*", harmless=("",)),
    _refused("transactional writes are always verified", "transaction.partition.verification.enable",
             harmless=("", "true")),
    _refused("the limit would not be kept", "max.connection*", "connection.failed.*",
             "max.request.partition.*", harmless=("",)),
    # Doors: an option of security that is passed over may leave one open.
    _ignored("there are no other brokers", "security.inter.broker.protocol", "sasl.mechanism.*.protocol"),
    _ignored("there is no Kerberos", "sasl.kerberos.*"),
    _ignored("that is an option of clients", "sasl.login.*", "sasl.client.*", "sasl.oauthbearer.assertion.*",
             "sasl.oauthbearer.client.*", "sasl.oauthbearer.token.endpoint.*", "sasl.oauthbearer.scope"),
    _ignored("there are no delegation tokens", "delegation.token.*"),
    _refused(
        "an option of security that this broker does not have cannot be passed over",
        "principal.builder.class", "ssl.*", "sasl.*", "security.providers",
        harmless=("",),
    ),
    # What tunes machinery that is not there.
    _ignored("one node, no quorum", "process.roles", "controller.*", "metadata.*", "internal.metadata.*",
             "broker.heartbeat.*", "broker.session.*", "initial.broker.registration.*",
             "early.start.listeners", "server.max.startup.time.ms"),
    _ignored("there is no ZooKeeper", "zookeeper.*"),
    _ignored("there are no replicas", "replica.*", "replication.*", "num.replica.*", "leader.*",
             "auto.leader.rebalance.enable", "unclean.leader.election.*", "follower.*", "inter.broker.*",
             "controlled.shutdown.*", "broker.rack", "alter.log.dirs.*", "request.timeout.ms",
             "socket.connection.setup.*"),
    _ignored("one event loop serves all", "num.io.threads", "num.network.threads", "background.threads",
             "num.recovery.threads.per.data.dir", "queued.max.*", "*.purgatory.*", "socket.send.buffer.bytes",
             "socket.receive.buffer.bytes", "socket.listen.backlog.size", "log.cleaner.threads",
             "log.cleaner.io.*", "log.cleaner.dedupe.*", "group.coordinator.*", "*.load.buffer.size",
             "add.partitions.to.txn.*", "log.initial.task.delay.ms", "log.flush.scheduler.*",
             "log.flush.start.offset.*", "log.dir.failure.*", "cordoned.log.dirs", "max.incremental.fetch.*"),
    _ignored("metrics are Prometheus's (metrics.listen)", "metric.reporters", "metrics.*", "kafka.metrics.*",
             "auto.include.jmx.reporter", "telemetry.*"),
    _ignored("there is no tiered storage", "remote.*", "log.local.*"),
    _ignored("formats before Kafka 4 are not written", "log.message.format.version",
             "log.message.downconversion.enable"),
    _ignored("there are no client quotas", "quota.window.*", "controller.quota.*"),
    _ignored("there is nothing to tune", "log.roll.jitter.*", "offsets.commit.*", "offsets.topic.*",
             "transaction.state.log.*", "unstable.*", "password.encoder.*", "group.consumer.regex.*",
             "group.consumer.*assignment.interval.ms", "transaction.remove.expired.*",
             "producer.id.expiration.check.*", "offsets.retention.check.*"),
    _ignored("it is no option of Apache Kafka's broker", "confluent.*"),
    _ignored("topics keep what their producers chose", "compression.*"),
)  # fmt: skip


def foreign(name: str) -> Foreign | None:
    """The line about a name that is no option here; None if Kafka's broker has none of that name either."""
    return next((line for line in TABLE if line.takes(name)), None)
