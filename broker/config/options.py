"""The options of a broker by their sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache
from typing import Literal, NamedTuple, get_args

from eoslog.broker.config.config_def import INT32_MAX, ConfigRule, option, rule_of
from eoslog.broker.config.kafka_options import rule_of_kafka

# -- security --------------------------------------------------------------------------------------
# Options of authentication and authorization.


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class SecurityOptions:
    """Who may connect, and who may do what."""

    ssl_keystore_type: str = option(
        "JKS", "ssl.keystore.type", "JKS, PKCS12 (each means both) or PEM; by default what the file is"
    )
    ssl_keystore_location: str = option(
        "", "ssl.keystore.location", "file with the broker's private key and its certificate chain"
    )
    ssl_keystore_password: str = option(
        "", "ssl.keystore.password", "password of a JKS or PKCS12 key store", secret=True
    )
    ssl_keystore_certificate_chain: str = option(
        "", "ssl.keystore.certificate.chain", "the certificate chain itself, in place of a file", secret=True
    )
    ssl_keystore_key: str = option("", "ssl.keystore.key", "the private key itself, PKCS #8", secret=True)
    ssl_key_password: str = option(
        "", "ssl.key.password", "password of an encrypted key; in JKS that of the store if empty", secret=True
    )
    ssl_truststore_type: str = option(
        "JKS", "ssl.truststore.type", "JKS, PKCS12 (each means both) or PEM; by default what the file is"
    )
    ssl_truststore_location: str = option(
        "", "ssl.truststore.location", "file with the certificates that sign clients' certificates"
    )
    ssl_truststore_password: str = option(
        "", "ssl.truststore.password", "password of a JKS or PKCS12 trust store", secret=True
    )
    ssl_truststore_certificates: str = option(
        "", "ssl.truststore.certificates", "trusted certificates themselves, in place of a file", secret=True
    )
    ssl_client_auth: str = option(
        "none",
        "ssl.client.auth",
        "whether clients are asked for a certificate",
        choices=("none", "requested", "required"),
    )
    ssl_enabled_protocols: str = option(
        "TLSv1.2,TLSv1.3", "ssl.enabled.protocols", "TLS versions to accept: either or both"
    )
    ssl_principal_mapping_rules: str = option(
        "DEFAULT",
        "ssl.principal.mapping.rules",
        "how a certificate's name becomes a user: RULE:pattern/replacement/[LU],...,DEFAULT",
    )
    sasl_enabled_mechanisms: str = option(
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.enabled.mechanisms",
        "SASL mechanisms to offer: these, OAUTHBEARER and GSSAPI",
    )
    sasl_users_file: str = option(
        "", "sasl.users.file", "file of NAME=PASSWORD lines, for PLAIN and SCRAM on every listener"
    )
    sasl_kerberos_service_name: str = option(
        "",
        "sasl.kerberos.service.name",
        "first part of the broker's Kerberos principal; empty: as in the JAAS text of GSSAPI",
    )
    sasl_kerberos_rules: str = option(
        "DEFAULT",
        "sasl.kerberos.principal.to.local.rules",
        "how a Kerberos principal becomes a user: Kafka's RULE:... and DEFAULT, by commas",
    )
    sasl_max_receive_size: int = option(
        524_288, "sasl.server.max.receive.size", "largest request before a client has authenticated", low=1
    )
    connections_max_reauth_ms: int = option(
        0, "connections.max.reauth.ms", "time after which a SASL session must be renewed; 0: never"
    )
    failed_authentication_delay_ms: int = option(
        100,
        "connection.failed.authentication.delay.ms",
        "delay of the answer to a failed authentication",
        high=60_000,
    )
    oauth_jwks_url: str = option(
        "", "sasl.oauthbearer.jwks.endpoint.url", "http(s) or file URL of the keys that sign tokens (JWKS)"
    )
    oauth_jwks_refresh_ms: int = option(
        3_600_000,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "how often the keys of tokens are read again",
        low=1,
    )
    oauth_issuer: str = option("", "sasl.oauthbearer.expected.issuer", "required issuer of a token (iss)")
    oauth_audience: str = option(
        "", "sasl.oauthbearer.expected.audience", "accepted audiences of a token (aud), by commas"
    )
    oauth_clock_skew_s: int = option(
        30,
        "sasl.oauthbearer.clock.skew.seconds",
        "allowed difference of clocks, in a token's times",
        high=86_400,
    )
    oauth_subject_claim: str = option("sub", "sasl.oauthbearer.sub.claim.name", "claim that names the user")
    oauth_scope_claim: str = option(
        "scope", "sasl.oauthbearer.scope.claim.name", "claim that names the scopes"
    )
    authorizer: str = option(
        "",
        "authorizer.class.name",
        "the authorizer; empty: everybody may do everything",
        choices=("", AUTHORIZER),
    )
    super_users: str = option("", "super.users", "users who may do everything, as User:NAME;User:NAME")
    allow_without_acl: bool = option(
        False, "allow.everyone.if.no.acl.found", "open resources without any ACL to everybody"
    )


# -- network ---------------------------------------------------------------------------------------
# Options of listeners, connections and requests.


@dataclass(frozen=True)
class NetworkOptions:
    """Where the broker listens, and the limits for clients."""

    host: str = option("127.0.0.1", "listen.host", "address to listen on, if listeners is not set")
    port: int = option(
        9092, "listen.port", "port to listen on, if listeners is not set; 0: a free one", high=65535
    )
    listeners: str = option(
        "",
        "listeners",
        "addresses to listen on, as NAME://HOST:PORT,...; empty host: every address, port 0: a free one",
    )
    advertised_listeners: str = option(
        "",
        "advertised.listeners",
        "addresses that clients are given, as NAME://HOST:PORT,...",
    )
    listener_protocols: str = option(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "listener.security.protocol.map",
        "security protocol of each listener, as NAME:PROTOCOL,...",
    )
    listener_overrides: tuple[str, ...] = option(
        (),
        "listener.name.*",
        "an option of one listener: listener.name.NAME.OPTION, the name in lower case; dynamic are"
        " ssl.keystore.*, ssl.key.password, ssl.truststore.*, max.connections and"
        " max.connection.creation.rate",
        secret=True,
        dynamic=True,
    )
    node_id: int = option(1, "node.id", "this broker's id", high=INT32_MAX)
    request_max_bytes: int = option(
        104_857_600, "socket.request.max.bytes", "largest request", low=1, high=INT32_MAX
    )
    fetch_max_bytes: int = option(
        57_671_680, "fetch.max.bytes", "largest answer to a fetch", low=1024, high=INT32_MAX
    )
    max_connections: int = option(
        INT32_MAX, "max.connections", "most connections at a time", low=1, high=INT32_MAX, dynamic=True
    )
    max_connections_per_ip: int = option(
        INT32_MAX,
        "max.connections.per.ip",
        "most connections of one address at a time",
        high=INT32_MAX,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = option(
        "",
        "max.connections.per.ip.overrides",
        "max.connections.per.ip of some addresses or names of machines",
        pattern=r"([^,]+:[0-9]{1,9}(,[^,]+:[0-9]{1,9})*,?)?",
        hint="ADDRESS:NUMBER,...",
        dynamic=True,
    )
    max_connection_creation_rate: int = option(
        INT32_MAX,
        "max.connection.creation.rate",
        "most new connections a second; more wait before they are served",
        low=1,
        high=INT32_MAX,
        dynamic=True,
    )
    connections_max_idle_ms: int = option(
        600_000, "connections.max.idle.ms", "close a connection that has sent no request for this long", low=1
    )
    connections_max_stalled_ms: int = option(
        10_000,
        "connections.max.stalled.ms",
        "while memory is short, close a connection that neither finishes its request nor reads its answer for"
        " this long",
        low=1,
    )
    queued_max_request_bytes: int = option(
        268_435_456,
        "queued.max.request.bytes",
        "requests that connections may hold before reading waits; -1: no limit, Kafka's default",
        low=-1,
    )
    queued_max_response_bytes: int = option(
        268_435_456,
        "queued.max.response.bytes",
        "answers that connections may hold before fetches wait; -1: no limit",
        low=-1,
    )
    fetch_session_slots: int = option(
        1_000,
        "max.incremental.fetch.session.cache.slots",
        "most fetch sessions (KIP-227) kept",
        high=INT32_MAX,
    )
    fetch_session_eviction_ms: int = option(
        120_000,
        "min.incremental.fetch.session.eviction.ms",
        "idle time after which a fetch session may make room for a new one",
    )


LIMITS = ("max.connections", "max.connection.creation.rate")
STORES = (
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.key.password",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates",
)  # fmt: skip
"""The key store and the trust store."""

_MECHANISM = re.compile(
    r"(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.(sasl\.jaas\.config|connections\.max\.reauth\.ms)"
)


class ListenerOption(NamedTuple):
    """An option of a single listener, listener.name.NAME.OPTION or .MECHANISM.OPTION, by the base option that
    it takes the place of: name, type and whether it is dynamic are those (KIP-226). A dynamic one is for one
    broker, except for the limits of connections, which may be set for all brokers."""

    base: str
    rule: ConfigRule

    @property
    def limit(self) -> bool:
        """Whether it limits connections."""
        return self.base in LIMITS

    @property
    def dynamic(self) -> bool:
        """Whether it changes while the broker runs."""
        return self.limit or self.base in STORES


def listener_option(name: str) -> ListenerOption | None:
    """The option of that name, without listener.name.NAME; None if a listener has none such."""
    of_mechanism = _MECHANISM.fullmatch(name)
    base = of_mechanism[1] if of_mechanism else name
    rule = _rules().get(base) or (rule_of_kafka(base) if of_mechanism else None)
    return None if rule is None else ListenerOption(base, rule)


@cache
def _rules() -> dict[str, ConfigRule]:
    """By base option."""
    declared = {
        one.metadata["name"]: rule_of(one) for one in (*fields(SecurityOptions), *fields(NetworkOptions))
    }
    wanted = {one.metadata["name"] for one in fields(SecurityOptions)} | set(LIMITS)
    return {name: rule for name, rule in declared.items() if name in wanted}


# -- storage ---------------------------------------------------------------------------------------
# Options of the log: where it is, what durable means, how often it is maintained.


FlushMode = Literal["fsync", "os"]


@dataclass(frozen=True)
class StorageOptions:
    """The data directory, and when data is flushed."""

    log_dirs: str = option("eoslog-data", "log.dirs", "data directory")
    flush: FlushMode = option(
        "fsync",
        "flush.mode",
        "fsync: acknowledge after fdatasync; os: after the write call, as Kafka does",
        choices=get_args(FlushMode),
    )
    checkpoint_interval_ms: int = option(
        60_000,
        "log.flush.offset.checkpoint.interval.ms",
        "how often the recovery points are written",
        low=1,
    )
    offsets_topic_segment_bytes: int = option(
        100 << 20,
        "offsets.topic.segment.bytes",
        "segment.bytes of __consumer_offsets, used when it is created",
        low=1024,
        high=INT32_MAX,
    )
    transaction_log_segment_bytes: int = option(
        100 << 20,
        "transaction.state.log.segment.bytes",
        "segment.bytes of __transaction_state, used when it is created",
        low=1024,
        high=INT32_MAX,
    )
    retention_check_interval_ms: int = option(
        300_000, "log.retention.check.interval.ms", "how often to look for segments to delete", low=1
    )
    cleaner_enable: bool = option(True, "log.cleaner.enable", "compact the topics that ask for it")
    cleaner_backoff_ms: int = option(
        15_000, "log.cleaner.backoff.ms", "how often to look for logs that need compaction", low=1
    )
    cleaner_dedupe_buffer_size: int = option(
        128 << 20,
        "log.cleaner.dedupe.buffer.size",
        "memory for a compaction's keys; a log with more is compacted in several runs",
        low=1 << 20,
        dynamic=True,
    )
    scrub_bytes_per_second: int = option(
        32 << 20,
        "log.scrub.bytes.per.second",
        "how fast segments that the start did not read are checked for damage; 0: never",
        low=0,
        dynamic=True,
    )


# -- operations ------------------------------------------------------------------------------------
# Options of running the broker: its log, metrics, console and shutdown.


LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


@dataclass(frozen=True)
class OperationsOptions:
    """What the broker shows about itself, and how it stops."""

    logging_level: str = option(
        "info", "logging.level", "least severe lines on standard error", choices=LEVELS
    )
    logging_format: str = option(
        "text", "logging.format", "text, or json: one object a line", choices=FORMATS
    )
    metrics_listen: str = option(
        "",
        "metrics.listen",
        "HOST:PORT of /metrics (Prometheus), /healthz and /readyz; empty: none, port 0: a free one",
    )
    console_listen: str = option(
        "", "console.listen", "HOST:PORT of the web console; empty: none, port 0: a free one"
    )
    console_writable: bool = option(False, "console.writable", "let transactions be aborted from the console")
    console_listener: str = option(
        "",
        "console.listener",
        "the listener whose TLS and authentication the console uses; empty: the first with SASL, else that"
        " asks for certificates, else with TLS",
    )
    console_insecure: bool = option(
        False,
        "console.insecure",
        "allow other machines a console without authentication, or with passwords but no TLS",
    )
    shutdown_grace_ms: int = option(
        5_000, "shutdown.grace.ms", "time that running requests have to end after SIGTERM"
    )


# -- transactions ----------------------------------------------------------------------------------
# Options of producer ids and transactions.


@dataclass(frozen=True)
class TransactionOptions:
    """The options of the transaction coordinator and of producer states."""

    transaction_log_partitions: int = option(
        4,
        "transaction.state.log.num.partitions",
        "partitions of __transaction_state, fixed at first use; 50 in Kafka",
        low=1,
    )
    transaction_max_timeout_ms: int = option(
        900_000, "transaction.max.timeout.ms", "longest transaction time-out a client may ask for", low=1
    )
    transaction_abort_interval_ms: int = option(
        10_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "how often to look for timed-out transactions",
        low=1,
    )
    transactional_id_expiration_ms: int = option(
        604_800_000,
        "transactional.id.expiration.ms",
        "idle time after which a transactional id is removed",
        low=1,
    )
    transactional_id_cleanup_interval_ms: int = option(
        3_600_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "how often to look for idle transactional ids",
        low=1,
    )
    two_phase_commit: bool = option(
        True,
        "transaction.two.phase.commit.enable",
        "let producers ask for transactions that never time out (KIP-939); false in Kafka",
    )
    producer_id_expiration_ms: int = option(
        86_400_000,
        "producer.id.expiration.ms",
        "idle time after which a producer id is removed",
        low=1,
        dynamic=True,
    )
    producer_id_check_interval_ms: int = option(
        600_000,
        "producer.id.expiration.check.interval.ms",
        "how often to look for idle producer ids",
        low=1,
    )


# -- groups ----------------------------------------------------------------------------------------
# Options of groups and of the offsets they commit.


ASSIGNORS = ("uniform", "range")


@dataclass(frozen=True)
class GroupOptions:
    """The group coordinator's options."""

    offsets_topic_partitions: int = option(
        8,
        "offsets.topic.num.partitions",
        "partitions of __consumer_offsets, fixed at first use; 50 in Kafka",
        low=1,
    )
    offset_metadata_max_bytes: int = option(
        4096, "offset.metadata.max.bytes", "longest metadata of a committed offset"
    )
    offsets_retention_minutes: int = option(
        7 * 24 * 60,
        "offsets.retention.minutes",
        "how long offsets are kept once their group is empty or stops reading their topic (KIP-211)",
        low=1,
        high=INT32_MAX,
    )
    offsets_retention_check_interval_ms: int = option(
        600_000, "offsets.retention.check.interval.ms", "how often to look for expired offsets", low=1
    )
    group_initial_rebalance_delay_ms: int = option(
        0,
        "group.initial.rebalance.delay.ms",
        "wait for more members before a group's first rebalance; 3000 in Kafka",
    )
    group_min_session_timeout_ms: int = option(
        6_000, "group.min.session.timeout.ms", "shortest session timeout of a classic group's members", low=1
    )
    group_max_session_timeout_ms: int = option(
        1_800_000,
        "group.max.session.timeout.ms",
        "longest session timeout of a classic group's members",
        low=1,
    )
    group_max_size: int = option(INT32_MAX, "group.max.size", "most members of a classic group", low=1)
    consumer_group_session_timeout_ms: int = option(
        45_000,
        "group.consumer.session.timeout.ms",
        "time without heartbeats after which a consumer group removes a member",
        low=1,
    )
    consumer_group_min_session_timeout_ms: int = option(
        45_000,
        "group.consumer.min.session.timeout.ms",
        "shortest session timeout that a group may be given",
        low=1,
    )
    consumer_group_max_session_timeout_ms: int = option(
        60_000,
        "group.consumer.max.session.timeout.ms",
        "longest session timeout that a group may be given",
        low=1,
    )
    consumer_group_heartbeat_interval_ms: int = option(
        5_000,
        "group.consumer.heartbeat.interval.ms",
        "how often members of a consumer group should send heartbeats",
        low=1,
    )
    consumer_group_min_heartbeat_interval_ms: int = option(
        5_000,
        "group.consumer.min.heartbeat.interval.ms",
        "shortest heartbeat interval that a group may be given",
        low=1,
    )
    consumer_group_max_heartbeat_interval_ms: int = option(
        15_000,
        "group.consumer.max.heartbeat.interval.ms",
        "longest heartbeat interval that a group may be given",
        low=1,
    )
    consumer_group_max_size: int = option(
        INT32_MAX, "group.consumer.max.size", "most members of a consumer group", low=1
    )
    consumer_group_assignors: tuple[str, ...] = option(
        ASSIGNORS,
        "group.consumer.assignors",
        "assignors that consumer groups may use; the first one is the default",
        choices=ASSIGNORS,
    )
