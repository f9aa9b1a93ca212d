"""Every option of `format("eoslog")`, as one table: name, type, default, where it applies, meaning.

An option is one row, which also names the field that gets its value, and says how Spark's connector differs.
parsing.py and the documentation's table are both made from it. Names and defaults are those of Spark's Kafka
connector, except `kafka.isolation.level`, which is read_committed here. Options that have no effect here, or
are refused, are in ignored_and_refused.py.
"""

from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any

from eoslog.client.wire.security_settings import PROTOCOLS
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase


class OptionType(Enum):
    """How an option's text is read. The value is its name in messages and documentation."""

    TEXT = "text"
    BOOL = "true or false"
    COUNT = "a whole number above 0"
    LIMIT = "a whole number; 0 for never"
    NUMBER = "a whole number, 0 or more"
    MILLIS = "milliseconds, a whole number above 0"
    BYTES = "bytes, a whole number above 0"
    BUFFER = "bytes, a whole number above 0, or -1 for the system's own"
    ADDRESSES = "host:port,host:port"
    NAMES = "names separated by commas"
    PATTERN = "a regular expression"
    ASSIGNMENT = 'JSON like {"topic":[0,1]}'
    OFFSETS = 'earliest, latest, or JSON like {"topic":{"0":23,"1":-2}}'
    TIME = "milliseconds since 1970"
    TIMES = 'JSON like {"topic":{"0":1700000000000}}'
    DURATION = "a time such as 30s, 15m or 2h"
    CHOICE = "one of a few words"


class Use(Flag):
    """Where an option applies."""

    READ = auto()
    READ_STREAM = auto()
    WRITE = auto()
    WRITE_STREAM = auto()
    SOURCE = READ | READ_STREAM
    SINK = WRITE | WRITE_STREAM
    ALL = SOURCE | SINK


@dataclass(frozen=True)
class Option:
    """One line of the table. `default` is the parsed value, None: not set. `unset` says what then applies,
    where that is one value."""

    name: str
    kind: OptionType
    default: Any
    use: Use
    meaning: str
    choices: tuple[str, ...] = ()
    secret: bool = False
    """Whether the value must never be shown."""
    unset: str = ""
    field: str = ""
    """The field of SinkOptions and SourceOptions that gets the value as it is."""
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    needs: tuple[str, ...] = ()
    """It only modifies others, and does nothing without one of these."""
    later: bool = False
    """Whether it is one of Kafka's clients from 4.1 on: those of Spark's connector do not have it."""
    sparks: str = ""
    """The default of Spark's connector (4.2, with kafka-clients 3.9), if it is not ours."""
    differs: str = ""
    """What else differs there; documentation only, as the two before it."""


GUARANTEES = ("exactly_once", "at_least_once", "at_most_once")
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")  # the index is the codec's number in a batch
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


TABLE: tuple[Option, ...] = (
    Option("kafka.bootstrap.servers", OptionType.ADDRESSES, None, Use.ALL,
           "Brokers of first contact. A protocol before an address, as in SSL://host:port, has no effect. "
           "Without this option the driver's environment names them: EOSLOG_BOOTSTRAP_SERVERS, else "
           "bootstrap.servers in the file EOSLOG_COMMAND_CONFIG. TLS and SASL of that file then count, too."),
    Option("subscribe", OptionType.NAMES, None, Use.SOURCE,
           "Topics to read. Give exactly one of subscribe, subscribePattern and assign.",
           field="subscribe"),
    Option("subscribePattern", OptionType.PATTERN, None, Use.SOURCE,
           "Topics to read: the pattern must match the whole name.",
           field="pattern",
           differs="A Python regular expression; Java's own syntax is an error."),
    Option("assign", OptionType.ASSIGNMENT, None, Use.SOURCE, "Partitions to read.", field="assign"),
    Option("startingOffsets", OptionType.OFFSETS, None, Use.SOURCE,
           "Where a batch or a new stream begins: earliest (default of batches), latest (default of "
           "streams), an offset for each partition (-2: earliest, -1: latest), or committed: the offsets of "
           "kafka.group.id. Also a line of a checkpoint's offset log: its topics, cluster and leader epochs "
           "are compared.",
           differs="Only eoslog has committed. Names outside of subscribe or assign are refused when the "
                   "options are read."),
    Option("startingTimestamp", OptionType.TIME, None, Use.SOURCE,
           "Begin at each partition's first record of this time or later. Overrides "
           "startingOffsetsByTimestamp and startingOffsets."),
    Option("startingOffsetsByTimestamp", OptionType.TIMES, None, Use.SOURCE,
           "As startingTimestamp, with a time for each partition. Overrides startingOffsets."),
    Option("startingOffsetsByTimestampStrategy", OptionType.CHOICE, "error", Use.SOURCE,
           "If all records are older than the starting time: fail, or begin at the latest offset.",
           ("error", "latest"), needs=("startingTimestamp", "startingOffsetsByTimestamp")),
    Option("endingOffsets", OptionType.OFFSETS, None, Use.READ,
           "Where a batch ends, exclusive: latest (the default) or an offset for each partition (-1: "
           "latest).",
           differs="An offset beyond the log is found when the query is planned, not while it is read."),
    Option("endingTimestamp", OptionType.TIME, None, Use.READ,
           "End before each partition's first record of this time or later; at its end if it has none. Waits "
           "for open transactions with earlier records. Overrides endingOffsetsByTimestamp and "
           "endingOffsets.",
           differs="Refused in a stream; Spark's connector ignores it there."),
    Option("endingOffsetsByTimestamp", OptionType.TIMES, None, Use.READ,
           "As endingTimestamp, with a time for each partition. Overrides endingOffsets."),
    Option("minOffsetsPerTrigger", OptionType.COUNT, None, Use.READ_STREAM,
           "A micro-batch waits for this many offsets, or until maxTriggerDelay is over.",
           field="min_offsets"),
    Option("maxTriggerDelay", OptionType.DURATION, 900_000, Use.READ_STREAM,
           "The longest wait for minOffsetsPerTrigger.",
           field="max_delay_ms", needs=("minOffsetsPerTrigger",)),
    Option("maxOffsetsPerTrigger", OptionType.COUNT, None, Use.READ_STREAM,
           "The most offsets in a micro-batch, shared among partitions by backlog. Markers and aborted "
           "records count.",
           field="max_offsets"),
    Option("minPartitions", OptionType.COUNT, None, Use.SOURCE,
           "Split large partitions, so that a batch has at least about this many tasks.",
           field="min_partitions",
           differs="Ranges may be split elsewhere."),
    Option("maxRecordsPerPartition", OptionType.COUNT, None, Use.SOURCE,
           "Split partitions, so that no task reads more offsets.",
           field="max_records",
           differs="Ranges may be split elsewhere."),
    Option("small.batch.max.offsets", OptionType.LIMIT, 1000, Use.READ_STREAM,
           "The stream's own process reads a micro-batch of up to this many offsets, and passes it to Spark "
           "as one task. 0: tasks always read, as they do with minPartitions, maxRecordsPerPartition or "
           "kafka.client.rack.",
           field="small_offsets"),
    Option("small.batch.max.bytes", OptionType.BYTES, 1_048_576, Use.READ_STREAM,
           "As small.batch.max.offsets, in bytes: of what is fetched, and of its unpacked records.",
           field="small_bytes"),
    Option("filter.push.down", OptionType.CHOICE, "auto", Use.READ,
           "Read less for a query's filters, with spark.sql.python.filterPushdown.enabled. auto: only after "
           "Spark 4.3, which plans each scan by its own filters. true: always; up to 4.3 only for a load() "
           "that is scanned once.",
           ("auto", "true", "false"), field="push_down"),
    Option("timestamp.upper.bound.force.push.down", OptionType.BOOL, False, Use.READ,
           "With filters pushed down: stop at the first record that is too late for a filter on timestamp, "
           "as topics with message.timestamp.type=LogAppendTime do anyway. Rows are missing where timestamps "
           "do not rise with offsets.",
           field="times_rise"),
    Option("includeHeaders", OptionType.BOOL, False, Use.SOURCE, "Adds the column headers.", field="headers"),
    Option("failOnDataLoss", OptionType.BOOL, True, Use.SOURCE,
           "Stop if records of the range are gone: by retention, or with a topic that was deleted or created "
           "again. false: warn, and go on with the others.",
           field="fail_on_data_loss",
           differs="Stops for every topic that was created again, not only if it ends before the query's "
                   "position. With false it is read from its beginning."),
    Option("cluster.moved.to", OptionType.TEXT, None, Use.READ_STREAM,
           "The id of the cluster to which topics were moved with unchanged offsets. Without it a checkpoint "
           "of another cluster stops the query.",
           field="moved_to"),
    Option("kafkaConsumer.pollTimeoutMs", OptionType.MILLIS, None, Use.SOURCE,
           "How long a task waits for the next records of its range; kafka.default.api.timeout.ms if not "
           "given.",
           sparks="spark.network.timeout (120 s)"),
    Option("fetchOffset.numRetries", OptionType.COUNT, 3, Use.SOURCE,
           "How many requests for the log's end, before one below the query's position is accepted: a new "
           "leader may not know it yet.",
           field="end_tries",
           differs="Failures of the connection are retried for kafka.default.api.timeout.ms."),
    Option("fetchOffset.retryIntervalMs", OptionType.MILLIS, 1_000, Use.SOURCE,
           "The pause between requests of fetchOffset.numRetries.",
           field="end_pause_ms"),
    Option("kafka.isolation.level", OptionType.CHOICE, "read_committed", Use.SOURCE,
           "read_committed hides records of open and aborted transactions. Exactly once needs it on both "
           "sides.",
           ISOLATION_LEVELS, sparks="read_uncommitted"),
    Option("topic", OptionType.TEXT, None, Use.SINK,
           "Topic of all rows; without it each row names its own in the column topic.",
           field="topic"),
    Option("processing.guarantee", OptionType.CHOICE, "exactly_once", Use.SINK,
           "What a restart may do to rows: nothing, repeat some, or lose some.",
           GUARANTEES, aliases=("processing.mode", "mode")),
    Option("transactional.id", OptionType.TEXT, None, Use.SINK | Use.READ_STREAM,
           "Name of the sink and prefix of its transactions; the query's id if not given. In a source "
           "give the sink's name. With startingOffsets=committed the query that has it, and that this one "
           "replaces, is stopped before the group is read.",
           field="transactional_id"),
    Option("shadow.of", OptionType.TEXT, None, Use.READ_STREAM,
           "The transactional.id of a running query. This query, a new version of it, reads the batches that "
           "the running one has decided. Needs kafka.group.id of the running query, shadow.topic and "
           "shadow.into."),
    Option("shadow.topic", OptionType.TEXT, None, Use.READ_STREAM,
           "The topic that the running query writes."),
    Option("shadow.into", OptionType.TEXT, None, Use.READ_STREAM,
           "The topic that this query writes while it is a shadow."),
    Option("read.whole.batches", OptionType.NAMES, None, Use.SOURCE,
           "The transactional.ids of sinks that write what is read. A read then ends between two of their "
           "batches: it has all rows of a batch, in all partitions and topics, or none. Not beside "
           "maxOffsetsPerTrigger, endingOffsets or shadow.of.",
           field="whole_batches"),
    Option("as.of.batch", OptionType.NUMBER, None, Use.READ,
           "End behind this micro-batch of the one sink that read.whole.batches names. Former decisions are "
           "read in __consumer_offsets, until that is compacted. Refused where retention or compaction may "
           "have taken rows.",
           field="as_of_batch"),
    Option("as.of.time", OptionType.TIME, None, Use.READ,
           "The same, behind the last micro-batch that was decided by then.",
           field="as_of_time"),
    Option("decision.topic", OptionType.TEXT, ANCHOR, Use.ALL,
           "For clusters that hide internal topics: a topic for whose partitions the sink's group keeps "
           "decisions. It must live as long as the sink; it is never read or written. A source names that of "
           "the sink that is stopped, or of the sinks of read.whole.batches.",
           field="decision_topic"),
    Option("start.accepted", OptionType.TEXT, None, Use.SINK,
           "Lets a start go on although rows may be doubled or missing: the words from its error, separated "
           "by commas."),
    Option("checkpoint.sync", OptionType.BOOL, True, Use.WRITE_STREAM,
           "Sync a batch's plan to a checkpoint on a local disk before the batch is decided, so that a power "
           "cut of the driver's machine cannot take it.",
           field="checkpoint_sync"),
    Option("deadletter.topic", OptionType.TEXT, None, Use.SINK,
           "Rows that cannot be written, or have a reason in the column deadletter, go here in the same "
           "transaction, with the reason in their headers. Without it such a row fails the batch.",
           field="deadletter_topic"),
    Option("write.token", OptionType.TEXT, None, Use.WRITE,
           "A job that is run again with the same token and topic adds its rows once; other rows are an "
           "error. Of tokens that end in a number (job-17) the last 64 are remembered.",
           field="write_token"),
    Option("state.topic", OptionType.TEXT, None, Use.WRITE_STREAM,
           "A compacted topic to which each decision saves the checkpoint, with its state; eoslog checkpoint "
           "restore writes a lost one again. Needs transactional.id."),
    Option("state.every.batches", OptionType.COUNT, None, Use.WRITE_STREAM,
           "With state.topic: save the state every so many micro-batches. A restored query runs the batches "
           "since then again, for their state alone.",
           unset="1"),
    Option("kafka.group.id", OptionType.TEXT, None, Use.ALL,
           "Group to which a stream's source offsets are committed, in the transaction of its rows. If not "
           "given, <transactional.id>/offsets, or that of the query's id: under exactly_once, for eoslog's "
           "sources on the sink's cluster.",
           field="group_id", sparks="one for each query",
           differs="No group is joined."),
    Option("commit.source.offsets", OptionType.BOOL, True, Use.WRITE_STREAM,
           "Commit the source offsets of an exactly_once query without kafka.group.id, too.",
           field="commits_offsets"),
    Option("kafka.transaction.timeout.ms", OptionType.MILLIS, 900_000, Use.SINK,
           "The broker aborts a transaction that is open for longer, and refuses more than its "
           "transaction.max.timeout.ms.",
           field="transaction_timeout_ms", sparks="60000",
           differs="Spark's sink has no transactions."),
    Option("two.phase.commit", OptionType.CHOICE, "auto", Use.SINK,
           "Keep transactions from timing out once a batch is about to be decided (KIP-939). auto: if the "
           "cluster offers it. require: or the query does not start. Never done by a batch write without "
           "transactional.id and write.token.",
           tuple(policy.value for policy in TwoPhase)),
    Option("on.lost.transaction", OptionType.CHOICE, "stop", Use.SINK,
           "If transactions of a decided batch timed out unfinished. stop: every start fails. replay: the "
           "next run writes the lost partitions again, after comparing numbers of rows with the first time, "
           "and checksums if the option was set then; for queries whose partitions replay equally.",
           tuple(policy.value for policy in OnLost)),
    Option("progress.log", OptionType.BOOL, False, Use.WRITE_STREAM,
           "Write each micro-batch's figures, a line of JSON, to the standard error of Spark's driver.",
           field="progress_log"),
    Option("kafka.compression.type", OptionType.CHOICE, "none", Use.SINK,
           "Compression of record batches.",
           CODEC_NAMES),
    Option("kafka.max.in.flight.requests.per.connection", OptionType.COUNT, 5, Use.SINK,
           "Unanswered Produce requests to a broker, at most 5."),
    Option("kafka.enable.idempotence", OptionType.BOOL, True, Use.SINK,
           "false: ask for no producer id, for brokers that give none. Needs "
           "processing.guarantee=at_least_once. Batches sent again after a broken connection may be doubled, "
           "and stand behind later ones.",
           field="idempotent"),
    Option("kafka.batch.size", OptionType.BYTES, 900_000, Use.SINK,
           "Record batches are cut at this size. Keep it below the topic's max.message.bytes. A larger row "
           "is a batch of its own.",
           field="max_batch_bytes", sparks="16384",
           differs="No batch waits for kafka.linger.ms."),
    Option("kafka.client.id", OptionType.TEXT, "eoslog", Use.ALL,
           "Name under which brokers know this client."),
    Option("first.contact.timeout.ms", OptionType.MILLIS, 5_000, Use.ALL,
           "How long a start tries addresses where nothing listens, or that no name server knows. Brokers "
           "that were reached once are waited for as the other time-outs say."),
    Option("kafka.request.timeout.ms", OptionType.MILLIS, 30_000, Use.ALL,
           "The longest wait for one answer, one connection, or the first contact."),
    Option("kafka.default.api.timeout.ms", OptionType.MILLIS, 60_000, Use.ALL,
           "How long reads and look-ups are retried while a broker is away.",
           aliases=("kafka.max.block.ms",)),
    Option("kafka.delivery.timeout.ms", OptionType.MILLIS, 120_000, Use.SINK,
           "How long records and transaction ends are retried."),
    Option("kafka.retry.backoff.ms", OptionType.MILLIS, 100, Use.ALL,
           "First pause before a retry; doubles up to kafka.retry.backoff.max.ms."),
    Option("kafka.retry.backoff.max.ms", OptionType.MILLIS, 1_000, Use.ALL, "Longest pause before a retry."),
    Option("kafka.max.request.size", OptionType.BYTES, 1 << 20, Use.SINK,
           "Batches for several partitions share a request up to this size."),
    Option("kafka.metadata.max.age.ms", OptionType.MILLIS, 300_000, Use.ALL,
           "Leaders and partition counts are requested again after this time; by a stream for each batch "
           "anyway."),
    Option("kafka.fetch.min.bytes", OptionType.BYTES, 1, Use.SOURCE,
           "A broker answers with this much, or after kafka.fetch.max.wait.ms."),
    Option("kafka.fetch.max.wait.ms", OptionType.MILLIS, 500, Use.SOURCE,
           "A broker's longest wait for kafka.fetch.min.bytes; at most half of kafka.request.timeout.ms."),
    Option("kafka.max.partition.fetch.bytes", OptionType.BYTES, 4 << 20, Use.SOURCE,
           "The most in an answer; a single larger record batch still comes.",
           sparks="1048576"),
    Option("kafka.fetch.max.bytes", OptionType.BYTES, 50 << 20, Use.SOURCE,
           "As kafka.max.partition.fetch.bytes; a request is for one partition, so the lower of the two "
           "applies."),
    Option("kafka.client.rack", OptionType.TEXT, "", Use.SOURCE,
           "The reader's rack: leaders may send it to a replica there (KIP-392)."),
    Option("kafka.send.buffer.bytes", OptionType.BUFFER, -1, Use.ALL,
           "The sockets' SO_SNDBUF. -1: the system chooses, and adapts.",
           sparks="131072"),
    Option("kafka.receive.buffer.bytes", OptionType.BUFFER, -1, Use.ALL,
           "The sockets' SO_RCVBUF. -1: the system chooses.",
           sparks="65536 (producer 32768)"),
    Option("kafka.socket.connection.setup.timeout.ms", OptionType.MILLIS, 10_000, Use.ALL,
           "The longest wait for a connection's first packet, within kafka.request.timeout.ms."),
    Option("kafka.security.protocol", OptionType.CHOICE, "plaintext", Use.ALL,
           "Whether connections use TLS and SASL.",
           PROTOCOLS),
    Option("kafka.sasl.mechanism", OptionType.TEXT, None, Use.ALL,
           "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI. Must be given, except "
           "where the options name Kerberos.",
           sparks="GSSAPI",
           differs="A Kerberos login is part of the options, not of the JVM."),
    Option("kafka.sasl.kerberos.service.name", OptionType.TEXT, None, Use.ALL,
           "First part of the brokers' principals, as in kafka/host@REALM."),
    Option("kafka.sasl.jaas.config", OptionType.TEXT, None, Use.ALL,
           "A JAAS text with credentials, as Java clients have it: PlainLoginModule, ScramLoginModule, "
           "OAuthBearerLoginModule (with clientId, clientSecret, scope, extension_NAME), IAMLoginModule or "
           "Krb5LoginModule.",
           secret=True),
    Option("kafka.sasl.username", OptionType.TEXT, None, Use.ALL, "User, in place of a JAAS text."),
    Option("kafka.sasl.password", OptionType.TEXT, None, Use.ALL,
           "Password, in place of a JAAS text.",
           secret=True),
    Option("kafka.sasl.password.file", OptionType.TEXT, None, Use.ALL,
           "File with the password, on every machine that runs tasks. It is read for each login. After a "
           "refusal another password is waited for, for kafka.request.timeout.ms."),
    Option("kafka.sasl.oauthbearer.token.endpoint.url", OptionType.TEXT, None, Use.ALL,
           "Where tokens come from: an http(s) URL, by client credentials or an assertion, or a file: URL of "
           "a token that something else renews."),
    Option("kafka.sasl.oauthbearer.client.credentials.client.id", OptionType.TEXT, None, Use.ALL,
           "Client id for the endpoint, in place of clientId in the JAAS text.",
           later=True),
    Option("kafka.sasl.oauthbearer.client.credentials.client.secret", OptionType.TEXT, None, Use.ALL,
           "Its secret, in place of clientSecret in the JAAS text.",
           secret=True, later=True),
    Option("kafka.sasl.oauthbearer.scope", OptionType.TEXT, None, Use.ALL,
           "Scope to ask for, in place of scope in the JAAS text.",
           later=True),
    Option("kafka.sasl.oauthbearer.header.urlencode", OptionType.BOOL, False, Use.ALL,
           "URL-encode id and secret in the request's header, as RFC 6749 wants it."),
    Option("kafka.sasl.oauthbearer.sub.claim.name", OptionType.TEXT, None, Use.ALL,
           "A claim that tokens must have: the one that names the user.",
           sparks="sub",
           differs="Only checked if it is given."),
    Option("kafka.sasl.oauthbearer.jwt.retriever.class", OptionType.TEXT, None, Use.ALL,
           "One of Kafka's own classes; JwtBearerJwtRetriever sends the assertion as grant. If not given, "
           "the URL says which.",
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.file", OptionType.TEXT, None, Use.ALL,
           "File with a signed JWT that says who the client is, in place of its secret.",
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.private.key.file", OptionType.TEXT, None, Use.ALL,
           "PEM key that signs the JWT (needs eoslog[oauth]).",
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.private.key.passphrase", OptionType.TEXT, None, Use.ALL,
           "Password of the key that signs the JWT.",
           secret=True, later=True),
    Option("kafka.sasl.oauthbearer.assertion.algorithm", OptionType.CHOICE, None, Use.ALL,
           "How the JWT is signed.",
           ("rs256", "es256"), unset="rs256", later=True),
    Option("kafka.sasl.oauthbearer.assertion.template.file", OptionType.TEXT, None, Use.ALL,
           'JSON file with further parts of the JWT: {"header":{},"payload":{}}.',
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.claim.iss", OptionType.TEXT, None, Use.ALL,
           "The JWT's issuer.",
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.claim.sub", OptionType.TEXT, None, Use.ALL,
           "The JWT's subject.",
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.claim.aud", OptionType.TEXT, None, Use.ALL,
           "The JWT's audience.",
           later=True),
    Option("kafka.sasl.oauthbearer.assertion.claim.exp.seconds", OptionType.COUNT, None, Use.ALL,
           "How many seconds the JWT is good.",
           unset="300", later=True),
    Option("kafka.sasl.oauthbearer.assertion.claim.nbf.seconds", OptionType.LIMIT, None, Use.ALL,
           "How many seconds before now the JWT is good, too.",
           unset="60", later=True),
    Option("kafka.sasl.oauthbearer.assertion.claim.jti.include", OptionType.BOOL, False, Use.ALL,
           "Give each JWT an id.",
           later=True),
    Option("kafka.sasl.oauthbearer.token.callback", OptionType.TEXT, None, Use.ALL,
           "Where tokens come from, as module:function. It returns the token, or (token, seconds from now "
           "for which it is good)."),
    Option("kafka.ssl.truststore.location", OptionType.TEXT, None, Use.ALL,
           "File with the certificates to trust, on every machine that runs tasks: PEM, JKS or PKCS12 (these "
           "two need eoslog[keystores])."),
    Option("kafka.ssl.ca.location", OptionType.TEXT, None, Use.ALL,
           "kafka.ssl.truststore.location by librdkafka's name."),
    Option("kafka.ssl.truststore.certificates", OptionType.TEXT, None, Use.ALL,
           "The certificates to trust, as PEM text."),
    Option("kafka.ssl.truststore.type", OptionType.TEXT, None, Use.ALL,
           "PEM, JKS or PKCS12 (these two each mean both, as in Java); if not given, what the file is.",
           sparks="JKS"),
    Option("kafka.ssl.truststore.password", OptionType.TEXT, None, Use.ALL,
           "Password of a JKS or PKCS12 trust store. Without it a JKS store is not checked for damage.",
           secret=True),
    Option("kafka.ssl.keystore.location", OptionType.TEXT, None, Use.ALL,
           "File with this client's key and certificates, on every machine that runs tasks: PEM, JKS or "
           "PKCS12.",
           differs="A store with several keys is refused; Java's clients choose one."),
    Option("kafka.ssl.keystore.certificate.chain", OptionType.TEXT, None, Use.ALL,
           "This client's certificates, as PEM text."),
    Option("kafka.ssl.keystore.key", OptionType.TEXT, None, Use.ALL,
           "This client's key, as PEM text.",
           secret=True),
    Option("kafka.ssl.keystore.type", OptionType.TEXT, None, Use.ALL,
           "As kafka.ssl.truststore.type.",
           sparks="JKS"),
    Option("kafka.ssl.keystore.password", OptionType.TEXT, None, Use.ALL,
           "Password of a JKS or PKCS12 key store.",
           secret=True),
    Option("kafka.ssl.certificate.location", OptionType.TEXT, None, Use.ALL,
           "PEM file with this client's certificates, by librdkafka's name."),
    Option("kafka.ssl.key.location", OptionType.TEXT, None, Use.ALL,
           "PEM file with this client's key, by librdkafka's name."),
    Option("kafka.ssl.key.password", OptionType.TEXT, None, Use.ALL,
           "Password of an encrypted key; in a JKS store that of the store if not given.",
           secret=True),
    Option("kafka.ssl.enabled.protocols", OptionType.TEXT, None, Use.ALL,
           "TLS versions: either or both.",
           unset="TLSv1.2,TLSv1.3"),
    Option("kafka.ssl.endpoint.identification.algorithm", OptionType.CHOICE, None, Use.ALL,
           "https checks the broker's name against its certificate; none, or empty, does not.",
           ("https", "none", ""), unset="https"),
    Option("path", OptionType.TEXT, None, Use.ALL, "Set by Spark from load() and start(); not used."),
    Option("checkpointLocation", OptionType.TEXT, None, Use.ALL,
           "Spark's checkpoint of the query; the sink reads source offsets there.",
           field="checkpoint_location"),
    Option("queryName", OptionType.TEXT, None, Use.ALL, "Spark's name of the query, for messages."),
)  # fmt: skip

ALIASES = {alias: option.name for option in TABLE for alias in option.aliases}
"""Other names of options."""

SPARKS_OPTIONS = (
    "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id",
    "includeHeaders", "useDeprecatedOffsetFetching", "topic",
)  # fmt: skip
"""All options of Spark's guide to its Kafka connector. It passes on those of Kafka's clients, too."""
