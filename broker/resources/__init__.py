"""What has configs, by the resource types of DescribeConfigs and AlterConfigs: one file a type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.resources.base import ConfigResourceType, Resource
from eoslog.broker.resources.brokers import BrokerResource
from eoslog.broker.resources.groups import GroupResource
from eoslog.broker.resources.topics import TopicResource
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker

__all__ = ["ConfigResourceType", "Resource", "resource_of"]

_ALL: dict[int, type[Resource]] = {
    ConfigResourceType.TOPIC: TopicResource,
    ConfigResourceType.BROKER: BrokerResource,
    ConfigResourceType.GROUP: GroupResource,
}


def resource_of(broker: Broker, kind: int) -> Resource:
    """The resources of a type. Raises KafkaError INVALID_REQUEST for a type that has none."""
    if kind not in _ALL:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configs here")
    return _ALL[kind](broker)
