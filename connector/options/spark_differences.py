"""Where an option of Spark's Kafka connector (4.2, with kafka-clients 3.9) differs from ours, and why.

Only for the table in the documentation. An option that is not named here has the same default and the same
meaning in both.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """`default`: Spark's, if it is not ours, else "". `text`: what differs."""

    default: str
    text: str


OF_LATER_CLIENTS = (
    "kafka.sasl.oauthbearer.client.credentials.client.id",
    "kafka.sasl.oauthbearer.client.credentials.client.secret",
    "kafka.sasl.oauthbearer.scope",
    "kafka.sasl.oauthbearer.jwt.retriever.class",
    "kafka.sasl.oauthbearer.assertion.file",
    "kafka.sasl.oauthbearer.assertion.private.key.file",
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
    "kafka.sasl.oauthbearer.assertion.algorithm",
    "kafka.sasl.oauthbearer.assertion.template.file",
    "kafka.sasl.oauthbearer.assertion.claim.iss",
    "kafka.sasl.oauthbearer.assertion.claim.sub",
    "kafka.sasl.oauthbearer.assertion.claim.aud",
    "kafka.sasl.oauthbearer.assertion.claim.exp.seconds",
    "kafka.sasl.oauthbearer.assertion.claim.nbf.seconds",
    "kafka.sasl.oauthbearer.assertion.claim.jti.include",
)
"""Options of Kafka's clients from 4.1 on: those of Spark's connector do not have them."""

SPARKS_OPTIONS = (
    "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id",
    "includeHeaders", "useDeprecatedOffsetFetching", "topic",
)  # fmt: skip
"""All options of Spark's guide to its Kafka connector. It passes on those of Kafka's clients, too."""

_LATER_JSON = "A topic or partition named twice is an error, not the last of the two."
_SEEN = "Without it eoslog sees from the file whether it is PEM, JKS or PKCS12."
_ALWAYS_CHECKED = "Must be valid even if another option takes precedence."

DIFFERENCES: dict[str, Difference] = {
    "assign": Difference("", _LATER_JSON),
    "subscribePattern": Difference(
        "", "A Python regular expression, not a Java one; syntax that only Java has is an error."
    ),
    "startingOffsets": Difference(
        "",
        f"Only eoslog has committed. {_LATER_JSON} {_ALWAYS_CHECKED} Names that do "
        "not match subscribe or assign are refused when the options are read.",
    ),
    "endingOffsets": Difference(
        "",
        f"{_LATER_JSON} An offset beyond the log is found when the query is planned, not while it is read.",
    ),
    "startingTimestamp": Difference("", _ALWAYS_CHECKED),
    "endingTimestamp": Difference("", "Refused in a stream; Spark's connector ignores it there."),
    "failOnDataLoss": Difference(
        "",
        "Also stops for a topic that was deleted and created again, which Spark's "
        "connector notices only if the new one is shorter than the query's position; "
        "with false the new topic is read from its beginning.",
    ),
    "kafkaConsumer.pollTimeoutMs": Difference("spark.network.timeout (120 s)", ""),
    "fetchOffset.numRetries": Difference(
        "", "Failures of the connection are tried again for kafka.default.api.timeout.ms."
    ),
    "maxOffsetsPerTrigger": Difference("", "Counts offsets, as in Spark: markers and aborted records too."),
    "minPartitions": Difference("", "Approximate, as in Spark; ranges may be split in other places."),
    "maxRecordsPerPartition": Difference("", "Ranges may be split in other places."),
    "kafka.isolation.level": Difference(
        "read_uncommitted", "Exactly once needs read_committed on both sides."
    ),
    "kafka.group.id": Difference(
        "spark-kafka-source-...",
        "No group is joined. eoslog's sink commits the "
        "source's offsets to it in the transaction of the rows.",
    ),
    "kafka.batch.size": Difference(
        "16384", "A batch is cut at this size; it does not wait for kafka.linger.ms."
    ),
    "kafka.transaction.timeout.ms": Difference("60000", "Spark's sink has no transactions."),
    "kafka.client.id": Difference("", "Java's clients make their own for each client."),
    "kafka.max.partition.fetch.bytes": Difference("1048576", ""),
    "kafka.send.buffer.bytes": Difference("131072", "-1 lets the system choose, which adapts."),
    "kafka.receive.buffer.bytes": Difference("65536 (producer 32768)", "-1 lets the system choose."),
    "kafka.sasl.oauthbearer.sub.claim.name": Difference("sub", "Only checked if it is given."),
    "kafka.sasl.mechanism": Difference(
        "GSSAPI", "Must be given, except for Kerberos, whose login is part of the options, not of the JVM."
    ),
    "kafka.ssl.truststore.type": Difference("JKS", _SEEN),
    "kafka.ssl.keystore.location": Difference(
        "", "A store with several keys is refused; Java's clients choose one."
    ),
    "kafka.ssl.keystore.type": Difference("JKS", _SEEN),
}
