"""DescribeConfigs (key 32, versions 1-4): the configs of topics, brokers and groups.

The answer has all configs, or the ones named. Every config has its source, its other possible sources
(synonyms, KIP-226), its type and its meaning (KIP-569). For a broker named by its id all its options are
listed, for "" the ones set for all brokers. Options of single listeners are listed as far as they are set,
and are read_only, as Kafka says of them. The values of secrets are never shown. An unknown topic is
UNKNOWN_TOPIC_OR_PARTITION, an unknown resource type or broker INVALID_REQUEST; the other resources of the
request are still answered. A resource that is named twice among several is described once; Kafka describes it
twice.

Left out: levels of loggers (KIP-412) and subscriptions to client metrics (KIP-714) are not configs here;
their types are INVALID_REQUEST. Options of Kafka that have no meaning here are listed only if they are set,
and without a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import configs
from eoslog.broker.requests import RequestContext
from eoslog.broker.resources import ConfigEntry, resource_of
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeConfigsRequest,
        DescribeConfigsRequestResource,
        DescribeConfigsResponseConfigDraft,
        DescribeConfigsResponseDraft,
        DescribeConfigsResponseResultDraft,
        DescribeConfigsResponseSynonymDraft,
    )


KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = (1, 4)


access = configs(AclOperation.DESCRIBE_CONFIGS)


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponseDraft:
    """Describe each resource separately."""
    return {"results": [_describe(context, request, wanted) for wanted in request["resources"]]}


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, wanted: DescribeConfigsRequestResource
) -> DescribeConfigsResponseResultDraft:
    kind, name, keys = wanted["resource_type"], wanted["resource_name"], wanted["configuration_keys"]
    answer: DescribeConfigsResponseResultDraft = {"resource_type": kind, "resource_name": name}
    try:
        entries = resource_of(context.broker, kind).entries(name)
        configs = [_described(entry, request) for entry in entries if not keys or entry.name in keys]
        return answer | {"error_code": ErrorCode.NONE, "error_message": None, "configs": configs}
    except KafkaError as error:
        return answer | {"error_code": error.code, "error_message": error.message, "configs": []}


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResponseConfigDraft:
    hidden = entry.sensitive
    synonyms: list[DescribeConfigsResponseSynonymDraft] = [
        {"name": one.name, "value": None if hidden else one.value, "source": one.source}
        for one in entry.synonyms
    ]
    return {
        "name": entry.name,
        "value": None if hidden else entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": hidden,
        "synonyms": synonyms if request["include_synonyms"] else [],
        "config_type": entry.kind or 0,
        "documentation": entry.meaning if request["include_documentation"] else None,
    }
