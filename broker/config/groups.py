"""Options of groups and of the offsets they commit."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.base import INT32_MAX, option


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
    group_initial_rebalance_delay_ms: int = option(
        0, "group.initial.rebalance.delay.ms", "wait for more members before a group's first rebalance"
    )
    group_min_session_timeout_ms: int = option(
        6_000, "group.min.session.timeout.ms", "shortest session", low=1
    )
    group_max_session_timeout_ms: int = option(
        1_800_000, "group.max.session.timeout.ms", "longest session", low=1
    )
    group_max_size: int = option(INT32_MAX, "group.max.size", "most members of a group", low=1)
