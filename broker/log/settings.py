"""What a log needs of its topic's configs, by Kafka's names, with the broker's options as defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eoslog.broker.config import TIMESTAMP_TYPES, BrokerConfig
from eoslog.protocol.errors import ErrorCode, KafkaError

# Topic configs of Kafka that are taken and handed back though no rule here looks at them (yet): a client
# that sets them must not fail, and none of them weakens a guarantee when it is not acted upon.
_STORED_ONLY = frozenset(
    (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    )
)
_LIMITS = {
    "max.message.bytes": (0, 2**31 - 1),
    "segment.bytes": (1024, 2**31 - 1),
    "index.interval.bytes": (0, 2**31 - 1),
    "message.timestamp.after.max.ms": (0, 2**63 - 1),
}
_POLICIES = frozenset({"delete", "compact"})


@dataclass(frozen=True)
class LogSettings:
    """Sizes in bytes, times in ms."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    compacted: bool = False
    producer_id_expiration_ms: int = 86_400_000

    @classmethod
    def of(cls, config: BrokerConfig, topic: Mapping[str, str]) -> LogSettings:
        """The settings of a topic. Raises KafkaError INVALID_CONFIG naming the config."""
        values = config.topic_defaults()
        for name, text in topic.items():
            if name not in values and name not in _STORED_ONLY:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown topic config {name}")
            values[name] = text
        policies = {policy.strip() for policy in values["cleanup.policy"].split(",")}
        if not policies <= _POLICIES:
            raise _invalid("cleanup.policy", values["cleanup.policy"], "delete, compact or both")
        times = values["message.timestamp.type"]
        if times not in TIMESTAMP_TYPES:
            raise _invalid("message.timestamp.type", times, " or ".join(TIMESTAMP_TYPES))
        return cls(
            segment_bytes=_number(values, "segment.bytes"),
            index_interval_bytes=_number(values, "index.interval.bytes"),
            max_message_bytes=_number(values, "max.message.bytes"),
            timestamp_after_max_ms=_number(values, "message.timestamp.after.max.ms"),
            log_append_time=times == "LogAppendTime",
            compacted="compact" in policies,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )


def _number(values: Mapping[str, str], name: str) -> int:
    low, high = _LIMITS[name]
    text = values[name]
    try:
        number = int(text)
    except ValueError:
        raise _invalid(name, text, "a whole number") from None
    if not low <= number <= high:
        raise _invalid(name, text, f"between {low} and {high}")
    return number


def _invalid(name: str, value: str, wanted: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value}: must be {wanted}")
