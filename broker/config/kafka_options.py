"""The options of Apache Kafka's broker that this broker does not have: names, types, which are dynamic.

As Kafka 4.3.1 describes them (DescribeConfigs). What they would mean here is in `ignored_options.py`. Clients
may set the dynamic ones of those: they are kept and shown, and have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from eoslog.broker.config.config_def import INT64_MAX, ConfigRule, ConfigType

DYNAMIC: dict[ConfigType, str] = {
    ConfigType.BOOLEAN: """
        follower.fetch.last.tiered.offset.enable transaction.partition.verification.enable
    """,
    ConfigType.STRING: """
        sasl.kerberos.kinit.cmd sasl.mechanism.inter.broker.protocol
        ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.protocol ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm
    """,
    ConfigType.INT: """
        background.threads group.consumer.assignment.interval.ms
        group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
        group.streams.assignment.interval.ms log.cleaner.io.buffer.size log.cleaner.threads
        num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
        remote.fetch.max.wait.ms remote.log.manager.copier.thread.pool.size
        remote.log.manager.expiration.thread.pool.size remote.log.manager.follower.thread.pool.size
        remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
    """,
    ConfigType.SHORT: """
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    """,
    ConfigType.LONG: """
        remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
        sasl.kerberos.min.time.before.relogin
    """,
    ConfigType.DOUBLE: """
        log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    """,
    ConfigType.LIST: """
        config.providers cordoned.log.dirs metric.reporters ssl.cipher.suites
    """,
    ConfigType.CLASS: """
        principal.builder.class ssl.engine.factory.class
    """,
    ConfigType.PASSWORD: """
        sasl.jaas.config
    """,
}
"""By type, those that change while Kafka's broker runs."""

READ_ONLY: dict[ConfigType, str] = {
    ConfigType.BOOLEAN: """
        auto.leader.rebalance.enable controlled.shutdown.enable controller.quorum.auto.join.enable
        remote.log.storage.system.enable sasl.oauthbearer.assertion.claim.jti.include
        ssl.allow.dn.changes ssl.allow.san.changes
    """,
    ConfigType.STRING: """
        broker.rack group.consumer.migration.policy inter.broker.listener.name metadata.log.dir
        metrics.recording.level remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
        replica.selector.class sasl.mechanism.controller.protocol
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol
        security.providers
    """,
    ConfigType.INT: """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
        alter.log.dirs.replication.quota.window.num
        alter.log.dirs.replication.quota.window.size.seconds broker.heartbeat.interval.ms broker.id
        broker.session.timeout.ms controller.quorum.append.linger.ms
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms controller.quota.window.num
        controller.quota.window.size.seconds controller.socket.timeout.ms
        delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
        group.consumer.max.assignment.interval.ms group.consumer.min.assignment.interval.ms
        group.coordinator.append.linger.ms group.coordinator.background.threads
        group.coordinator.threads group.share.delivery.count.limit group.share.heartbeat.interval.ms
        group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
        group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
        group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
        group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
        group.share.min.session.timeout.ms group.share.partition.max.record.locks
        group.share.record.lock.duration.ms group.share.session.timeout.ms
        group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
        group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms group.streams.max.size
        group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
        group.streams.num.standby.replicas group.streams.session.timeout.ms
        initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs
        log.flush.start.offset.checkpoint.interval.ms log.retention.hours log.retention.minutes
        log.roll.hours log.roll.jitter.hours metadata.log.segment.bytes
        metadata.max.idle.interval.ms metrics.num.samples num.replica.alter.log.dirs.threads
        offsets.commit.timeout.ms offsets.load.buffer.size offsets.topic.compression.codec
        producer.purgatory.purge.interval.requests queued.max.requests quota.window.num
        quota.window.size.seconds remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes remote.log.reader.max.pending.tasks
        replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
        replica.fetch.response.max.bytes replica.fetch.wait.max.ms
        replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
        replication.quota.window.size.seconds request.timeout.ms sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.nbf.seconds share.coordinator.append.linger.ms
        share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec share.coordinator.state.topic.num.partitions
        share.coordinator.state.topic.segment.bytes share.coordinator.threads
        share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
        socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
        telemetry.max.bytes transaction.state.log.load.buffer.size
    """,
    ConfigType.SHORT: """
        share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
    """,
    ConfigType.LONG: """
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
        delegation.token.max.lifetime.ms leader.imbalance.check.interval.seconds
        log.dir.failure.timeout.ms log.flush.scheduler.interval.ms
        metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
        metadata.log.segment.ms metadata.max.retention.bytes metadata.max.retention.ms
        metrics.sample.window.ms remote.log.manager.task.interval.ms
        replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms
    """,
    ConfigType.LIST: """
        controller.listener.names controller.quorum.bootstrap.servers controller.quorum.voters
        early.start.listeners group.coordinator.rebalance.protocols group.share.assignors
        kafka.metrics.reporters log.dir process.roles
    """,
    ConfigType.CLASS: """
        alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
        sasl.server.callback.handler.class
    """,
    ConfigType.PASSWORD: """
        delegation.token.secret.key sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.secret
    """,
}
"""By type, those that do not."""

_PER_BROKER = ("sasl.", "ssl.", "principal.builder.class")
"""How the names of dynamic options begin that Kafka takes for one broker only, not for all."""


def _rules(table: dict[ConfigType, str]) -> dict[str, ConfigRule]:
    return {
        name: ConfigRule(name, kind, low=-INT64_MAX, secret=kind is ConfigType.PASSWORD)
        for kind, names in table.items()
        for name in names.split()
    }


_DYNAMIC, _READ_ONLY = _rules(DYNAMIC), _rules(READ_ONLY)


def kafka_names() -> set[str]:
    """All of them."""
    return {*_DYNAMIC, *_READ_ONLY}


def rule_of_kafka(name: str) -> ConfigRule | None:
    """The rule for the values of one of these options; None if it is none of them."""
    return _DYNAMIC.get(name) or _READ_ONLY.get(name)


def read_only(name: str) -> bool:
    """Whether Kafka's broker has to be restarted to change this option. It takes unknown names."""
    return name in _READ_ONLY


def for_one_broker(name: str) -> bool:
    """Whether Kafka takes this option for a single broker only."""
    return name in _DYNAMIC and name.startswith(_PER_BROKER)


# -- ignored options -------------------------------------------------------------------------------
# Kafka's broker options that have no meaning here: which are ignored, and which are refused.
#
# A server.properties made for Kafka starts this broker too, unless that would weaken a promise. Options that
# tune machinery which this broker does not have are ignored, with a line in the log. Options on which their
# owner relies for safety are refused: more copies, access control, policies. Even such an option is accepted
# with one of its `harmless` values, which ask for nothing that is missing.
#
# The table is used only for names that are not options of this broker, so an option added later takes
# precedence.


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
