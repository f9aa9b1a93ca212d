"""IncrementalAlterConfigs (key 44, versions 0-1): change single configs of a resource (KIP-339).

SET, DELETE (back to the default), and for lists APPEND and SUBTRACT; either all changes of a resource are
made or none. For topics, brokers (dynamic options only) and groups. Errors and validate_only as in
AlterConfigs; APPEND or SUBTRACT of a config that is not a list is INVALID_CONFIG.

Left out: levels of loggers and subscriptions to client metrics, as in DescribeConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import configs
from eoslog.broker.handlers.alter_configs import for_each_resource
from eoslog.broker.requests import RequestContext
from eoslog.broker.resources import AlterConfigOp, ConfigChange, resource_of
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsRequestResource,
        IncrementalAlterConfigsResponseDraft,
    )


KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = (0, 1)


access = configs(AclOperation.ALTER_CONFIGS)


def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponseDraft:
    """Change each resource separately."""

    def change(wanted: IncrementalAlterConfigsRequestResource) -> None:
        changes = [
            ConfigChange(one["name"], one["config_operation"], one["value"]) for one in wanted["configs"]
        ]
        for one in changes:
            if one.value is None and one.operation != AlterConfigOp.DELETE:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.name}: a value must not be null")
        resource = resource_of(context.broker, wanted["resource_type"])
        resource.change(wanted["resource_name"], changes, validate_only=request["validate_only"])

    return {"responses": for_each_resource(request["resources"], change)}
