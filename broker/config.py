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


def _named(name: str, meaning: str, low: int = 0, high: int = 2**63 - 1) -> dict[str, Any]:
    return {"name": name, "meaning": meaning, "low": low, "high": high}


@dataclass(frozen=True)
class BrokerConfig:
    """All options of a broker. Times in ms, sizes in bytes."""

    log_dirs: str = field(default="eoslog-data", metadata=_named("log.dirs", "data directory"))
    host: str = field(
        default="127.0.0.1", metadata=_named("listen.host", "address to listen on and to advertise")
    )
    port: int = field(
        default=9092, metadata=_named("listen.port", "port to listen on; 0 picks a free one", high=65535)
    )
    node_id: int = field(default=1, metadata=_named("node.id", "this broker's id", high=_INT32_MAX))
    flush: FlushMode = field(
        default="fsync",
        metadata=_named(
            "flush.mode", "fsync: acknowledge after fdatasync; os: after the write call, as Kafka does"
        ),
    )

    auto_create_topics: bool = field(
        default=True, metadata=_named("auto.create.topics.enable", "create unknown topics on first use")
    )
    num_partitions: int = field(
        default=1, metadata=_named("num.partitions", "partitions of a topic made without a number", low=1)
    )
    accept_replication_factor: bool = field(
        default=False,
        metadata=_named(
            "accept.any.replication.factor", "take a replication factor above 1 on this single node"
        ),
    )
    offsets_topic_partitions: int = field(
        default=8,
        metadata=_named(
            "offsets.topic.num.partitions", "partitions of __consumer_offsets, fixed at its first use", low=1
        ),
    )
    transaction_log_partitions: int = field(
        default=4,
        metadata=_named(
            "transaction.state.log.num.partitions",
            "partitions of __transaction_state, fixed at first use",
            low=1,
        ),
    )

    message_max_bytes: int = field(
        default=1_048_588, metadata=_named("message.max.bytes", "largest record batch", high=_INT32_MAX)
    )
    segment_bytes: int = field(
        default=1 << 30,
        metadata=_named("log.segment.bytes", "roll to a new segment at this size", low=1024, high=_INT32_MAX),
    )
    index_interval_bytes: int = field(
        default=4096,
        metadata=_named(
            "log.index.interval.bytes", "one index entry about each so many bytes", high=_INT32_MAX
        ),
    )
    timestamp_after_max_ms: int = field(
        default=3_600_000,
        metadata=_named(
            "log.message.timestamp.after.max.ms", "how far ahead of the broker's clock a record may be"
        ),
    )
    timestamp_type: str = field(
        default="CreateTime",
        metadata=_named(
            "log.message.timestamp.type", "CreateTime, or LogAppendTime to stamp with the broker's clock"
        ),
    )
    request_max_bytes: int = field(
        default=104_857_600,
        metadata=_named("socket.request.max.bytes", "largest request", low=1, high=_INT32_MAX),
    )
    fetch_max_bytes: int = field(
        default=57_671_680, metadata=_named("fetch.max.bytes", "largest answer to a fetch", low=1024)
    )
    checkpoint_interval_ms: int = field(
        default=60_000,
        metadata=_named(
            "log.flush.offset.checkpoint.interval.ms", "how often the recovery points are written", low=1
        ),
    )

    transaction_max_timeout_ms: int = field(
        default=900_000,
        metadata=_named(
            "transaction.max.timeout.ms", "longest transaction time-out a client may ask for", low=1
        ),
    )
    transaction_abort_interval_ms: int = field(
        default=10_000,
        metadata=_named(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "how often time-outs are looked for",
            low=1,
        ),
    )
    transactional_id_expiration_ms: int = field(
        default=604_800_000,
        metadata=_named(
            "transactional.id.expiration.ms", "idle time after which a transactional id is forgotten", low=1
        ),
    )
    producer_id_expiration_ms: int = field(
        default=86_400_000,
        metadata=_named(
            "producer.id.expiration.ms", "idle time after which a producer id is forgotten", low=1
        ),
    )

    group_initial_rebalance_delay_ms: int = field(
        default=0,
        metadata=_named(
            "group.initial.rebalance.delay.ms", "wait for more members before a group's first rebalance"
        ),
    )
    group_min_session_timeout_ms: int = field(
        default=6_000, metadata=_named("group.min.session.timeout.ms", "shortest session", low=1)
    )
    group_max_session_timeout_ms: int = field(
        default=1_800_000, metadata=_named("group.max.session.timeout.ms", "longest session", low=1)
    )
    group_max_size: int = field(
        default=_INT32_MAX, metadata=_named("group.max.size", "most members of a group", low=1)
    )
    offset_metadata_max_bytes: int = field(
        default=4096, metadata=_named("offset.metadata.max.bytes", "longest metadata of a committed offset")
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
            raise ConfigError(
                f"log.message.timestamp.type={self.timestamp_type}: must be {' or '.join(TIMESTAMP_TYPES)}"
            )

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
