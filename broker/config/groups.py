"""Options of groups and of the offsets they commit."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.config_def import INT32_MAX, option

ASSIGNORS = ("uniform", "range")


@dataclass(frozen=True)
class GroupOptions:
    """The group coordinator's options."""

    offsets_topic_partitions: int = option(
        8,
        "offsets.topic.num.partitions",
        "partitions of __consumer_offsets, fixed at its first use",
        low=1,
    )
    offset_metadata_max_bytes: int = option(
        4096, "offset.metadata.max.bytes", "longest metadata of a committed offset"
    )
    offsets_retention_minutes: int = option(
        7 * 24 * 60,
        "offsets.retention.minutes",
        "how long offsets are kept after their group becomes empty or stops reading their topic (KIP-211)",
        low=1,
        high=INT32_MAX,
    )
    offsets_retention_check_interval_ms: int = option(
        600_000, "offsets.retention.check.interval.ms", "how often to look for expired offsets", low=1
    )
    group_initial_rebalance_delay_ms: int = option(
        0, "group.initial.rebalance.delay.ms", "wait for more members before a group's first rebalance"
    )
    group_min_session_timeout_ms: int = option(
        6_000, "group.min.session.timeout.ms", "shortest session of a member of a classic group", low=1
    )
    group_max_session_timeout_ms: int = option(
        1_800_000, "group.max.session.timeout.ms", "longest session of a member of a classic group", low=1
    )
    group_max_size: int = option(INT32_MAX, "group.max.size", "most members of a classic group", low=1)
    consumer_group_session_timeout_ms: int = option(
        45_000, "group.consumer.session.timeout.ms", "session of a member of a consumer group", low=1
    )
    consumer_group_min_session_timeout_ms: int = option(
        45_000, "group.consumer.min.session.timeout.ms", "shortest session that a group may be given", low=1
    )
    consumer_group_max_session_timeout_ms: int = option(
        60_000, "group.consumer.max.session.timeout.ms", "longest session that a group may be given", low=1
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
