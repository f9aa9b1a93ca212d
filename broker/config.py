"""The broker's options: one frozen dataclass, one table, Kafka's names.

Each field carries Kafka's option name and its meaning as metadata; `from_options` reads a mapping of
Kafka's names to strings, `topic_defaults` says what a topic gets when its own configs are silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args

FlushMode = Literal["fsync", "os"]

_INT32_MAX = 2**31 - 1


class ConfigError(ValueError):
    """An option has no known name or a value that does not fit; the text says which and what would."""


def _option(name: str, default: Any, meaning: str, *, low: int = 0, high: int = 2**63 - 1) -> Any:
    return field(default=default, metadata={"name": name, "meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True)
class BrokerConfig:
    """All options of a broker. Times in ms, sizes in bytes."""

    log_dirs: str = _option("log.dirs", "eoslog-data", "data directory")
    host: str = _option("listen.host", "127.0.0.1", "address to listen on and to advertise")
    port: int = _option("listen.port", 9092, "port to listen on; 0 picks a free one", high=65535)
    node_id: int = _option("node.id", 1, "this broker's id", high=_INT32_MAX)
    flush: FlushMode = _option(
        "flush.mode", "fsync", "fsync: acknowledge after fdatasync; os: after the write call, as Kafka does"
    )

    auto_create_topics: bool = _option("auto.create.topics.enable", True, "create unknown topics on first use")
    num_partitions: int = _option("num.partitions", 1, "partitions of a topic made without a number", low=1)
    accept_replication_factor: bool = _option(
        "accept.any.replication.factor", False, "take a replication factor above 1 on this single node"
    )
    offsets_topic_partitions: int = _option(
        "offsets.topic.num.partitions", 8, "partitions of __consumer_offsets, fixed at its first use", low=1
    )
    transaction_log_partitions: int = _option(
        "transaction.state.log.num.partitions", 4, "partitions of __transaction_state, fixed at first use", low=1
    )

    message_max_bytes: int = _option("message.max.bytes", 1_048_588, "largest record batch", high=_INT32_MAX)
    segment_bytes: int = _option(
        "log.segment.bytes", 1 << 30, "roll to a new segment at this size", low=1024, high=_INT32_MAX
    )
    index_interval_bytes: int = _option(
        "log.index.interval.bytes", 4096, "one index entry about each so many bytes", high=_INT32_MAX
    )
    timestamp_after_max_ms: int = _option(
        "log.message.timestamp.after.max.ms", 3_600_000, "how far ahead of the broker's clock a record may be"
    )
    timestamp_type: str = _option(
        "log.message.timestamp.type", "CreateTime", "CreateTime, or LogAppendTime to stamp with the broker's clock"
    )
    request_max_bytes: int = _option(
        "socket.request.max.bytes", 104_857_600, "largest request", low=1, high=_INT32_MAX
    )
    fetch_max_bytes: int = _option("fetch.max.bytes", 57_671_680, "largest answer to a fetch", low=1024)
    checkpoint_interval_ms: int = _option(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "how often the recovery points are written", low=1
    )

    transaction_max_timeout_ms: int = _option(
        "transaction.max.timeout.ms", 900_000, "longest transaction time-out a client may ask for", low=1
    )
    transaction_abort_interval_ms: int = _option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, "how often time-outs are looked for", low=1
    )
    transactional_id_expiration_ms: int = _option(
        "transactional.id.expiration.ms", 604_800_000, "idle time after which a transactional id is forgotten", low=1
    )
    producer_id_expiration_ms: int = _option(
        "producer.id.expiration.ms", 86_400_000, "idle time after which a producer id is forgotten", low=1
    )

    group_initial_rebalance_delay_ms: int = _option(
        "group.initial.rebalance.delay.ms", 0, "wait for more members before a group's first rebalance"
    )
    group_min_session_timeout_ms: int = _option("group.min.session.timeout.ms", 6_000, "shortest session", low=1)
    group_max_session_timeout_ms: int = _option("group.max.session.timeout.ms", 1_800_000, "longest session", low=1)
    group_max_size: int = _option("group.max.size", _INT32_MAX, "most members of a group", low=1)
    offset_metadata_max_bytes: int = _option(
        "offset.metadata.max.bytes", 4096, "longest metadata of a committed offset"
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            low, high = option.metadata["low"], option.metadata["high"]
            if type(option.default) is int and not low <= value <= high:
                raise ConfigError(f"{option.metadata['name']}={value}: must be between {low} and {high}")
        if self.flush not in get_args(FlushMode):
            raise ConfigError(f"flush.mode={self.flush}: must be fsync or os")
        if self.timestamp_type not in TIMESTAMP_TYPES:
            raise ConfigError(f"log.message.timestamp.type={self.timestamp_type}: must be {TIMESTAMP_TYPES}")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> BrokerConfig:
        """Build from Kafka's option names and text values. Raises ConfigError naming the option."""
        table = {option.metadata["name"]: option for option in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in options.items():
            if name not in table:
                raise ConfigError(f"unknown option {name}; known are {', '.join(sorted(table))}")
            values[table[name].name] = _parse(table[name], text)
        return cls(**values)

    def topic_defaults(self) -> dict[str, str]:
        """Kafka's topic configs as this broker fills them in, by name."""
        return {topic: _text(getattr(self, option)) for topic, option in TOPIC_CONFIGS.items()} | {
            "cleanup.policy": "delete"
        }


TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

# A topic's config by Kafka's name -> the field above that is its default.
TOPIC_CONFIGS: dict[str, str] = {
    "max.message.bytes": "message_max_bytes",
    "segment.bytes": "segment_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "message.timestamp.type": "timestamp_type",
}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(option: Field[Any], text: str) -> Any:
    name, default = option.metadata["name"], option.default
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={text}: must be true or false")
        return text.lower() == "true"
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name}={text}: must be a whole number") from None
    return text
