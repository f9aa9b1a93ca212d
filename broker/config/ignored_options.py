"""Kafka's broker options that have no meaning here: which are ignored, and which are refused.

A server.properties made for Kafka starts this broker too, unless that would weaken a promise. Options that
tune machinery which this broker does not have are ignored, with a line in the log. Options on which their
owner relies for safety are refused: more copies, access control, policies. Even such an option is accepted
with one of its `harmless` values, which ask for nothing that is missing.

The table is used only for names that are not options of this broker, so an option added later takes
precedence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Foreign:
    """A line of the table. `names` are patterns; if `refused`, only the values in `harmless` are accepted."""

    names: tuple[str, ...]
    why: str
    refused: bool = False
    harmless: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether this line applies to the option."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)

    def refuses(self, value: str) -> bool:
        """Whether the broker must not start with this value."""
        return self.refused and value.strip() not in self.harmless


def _ignored(why: str, *names: str) -> Foreign:
    return Foreign(names, why)


def _refused(why: str, *names: str, harmless: Iterable[str] = ()) -> Foreign:
    return Foreign(names, why, True, tuple(harmless))


COPIES = ("*.replication.factor", "min.insync.replicas", "*.min.isr")
"""Options about the number of copies, including those that this broker has."""

# The first line that matches a name applies.
TABLE: tuple[Foreign, ...] = (
    _ignored("there are no share groups", "group.share.*", "share.*"),
    _ignored("there are no streams groups", "group.streams.*"),
    _ignored("groups with members do not move between protocols here", "group.consumer.migration.policy"),
    # Options that would weaken a promise if they were ignored.
    _refused(
        "one broker keeps one copy of everything",
        *COPIES,
        harmless=("", "1", "-1"),
    ),
    _refused("the only data directory takes all new partitions", "cordoned.log.dirs", harmless=("",)),
    _refused("there is no tiered storage", "remote.log.storage.system.enable", harmless=("", "false")),
    _refused("policies are Java classes", "create.topic.policy.class.name", "alter.config.policy.class.name",
             harmless=("",)),
    _refused("there are no client quotas", "client.quota.callback.class", harmless=("",)),
    _refused("values are not looked up elsewhere", "config.providers", "config.providers.*", harmless=("",)),
    _refused("transactional writes are always verified", "transaction.partition.verification.enable",
             harmless=("", "true")),
    _refused("the limit would not be kept", "max.connection*", "connection.failed.*",
             "max.request.partition.*", harmless=("",)),
    # Security: an ignored option may leave the broker open.
    _ignored("there are no other brokers", "security.inter.broker.protocol", "sasl.mechanism.*.protocol"),
    _ignored("the broker checks tickets, it gets none", "sasl.kerberos.*"),
    _ignored("that is an option of clients", "sasl.login.*", "sasl.client.*", "sasl.oauthbearer.assertion.*",
             "sasl.oauthbearer.client.*", "sasl.oauthbearer.token.endpoint.*", "sasl.oauthbearer.scope"),
    _ignored("there are no delegation tokens", "delegation.token.*"),
    _refused(
        "this broker does not have that security option, and security options are never ignored",
        "principal.builder.class", "ssl.*", "sasl.*", "security.providers",
        harmless=("",),
    ),
    # Options that tune machinery which this broker does not have.
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
             "log.flush.start.offset.*", "log.dir.failure.*", "max.incremental.fetch.*"),
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
    _ignored("it is not an option of Apache Kafka's broker", "confluent.*"),
    _ignored("topics keep what their producers chose", "compression.*"),
)  # fmt: skip


def foreign(name: str) -> Foreign | None:
    """The line for a name that is not an option here; None if Kafka's broker does not have it either."""
    return next((line for line in TABLE if line.takes(name)), None)
