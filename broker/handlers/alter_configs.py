"""AlterConfigs (key 33, versions 0-2): set exactly these configs of a resource.

For topics, brokers (dynamic options only) and groups. The change is durable and in effect when it is
answered; with validate_only it is only checked. Refused with INVALID_REQUEST: a resource or a config that is
named twice, a null value, any other resource type, options that cannot change while the broker runs. Refused
with INVALID_CONFIG: unknown configs and invalid values. A refused resource does not stop the others.
Of a listener's own options (listener.name.NAME.*) the key store, the trust store and the limits of
connections can change, the limits also for all brokers; the rest, and a store that cannot be read, are
INVALID_REQUEST.
A broker's options that are Kafka's and mean nothing here are kept, with a line in the log, as are names that
nobody knows (Kafka keeps them for plug-ins). Those on which their owner relies for safety are refused.

Left out: levels of loggers and subscriptions to client metrics, as in DescribeConfigs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from eoslog.broker.authorize.access import configs
from eoslog.broker.requests import RequestContext
from eoslog.broker.resources import resource_of
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterConfigsRequest,
        AlterConfigsRequestResource,
        AlterConfigsResponseDraft,
        AlterConfigsResponseResponseDraft,
        IncrementalAlterConfigsRequestResource,
    )


KEY = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


access = configs(AclOperation.ALTER_CONFIGS)


_Resource = TypeVar("_Resource", "AlterConfigsRequestResource", "IncrementalAlterConfigsRequestResource")


def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponseDraft:
    """Change each resource separately."""

    def replace(wanted: AlterConfigsRequestResource) -> None:
        configs = {}
        for config in wanted["configs"]:
            if config["value"] is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config['name']}: a value must not be null")
            configs[config["name"]] = config["value"]
        resource = resource_of(context.broker, wanted["resource_type"])
        resource.replace(wanted["resource_name"], configs, validate_only=request["validate_only"])

    return {"responses": for_each_resource(request["resources"], replace)}


def for_each_resource(
    resources: list[_Resource], act: Callable[[_Resource], None]
) -> list[AlterConfigsResponseResponseDraft]:
    """Call `act`, which may raise KafkaError, for each resource. Refuses a resource or config named twice."""
    counts = Counter((one["resource_type"], one["resource_name"]) for one in resources)
    answers: list[AlterConfigsResponseResponseDraft] = []
    for one in resources:
        resource = one["resource_type"], one["resource_name"]
        code, message = ErrorCode.NONE, None
        try:
            if counts[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "this resource is in the request twice")
            names = [config["name"] for config in one["configs"]]
            if len(set(names)) < len(names):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a config is in the request twice")
            act(one)
        except KafkaError as error:
            code, message = error.code, error.message
        kind, name = resource
        answers.append(
            {"error_code": code, "error_message": message, "resource_type": kind, "resource_name": name}
        )
    return answers
