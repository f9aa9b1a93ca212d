"""DescribeUserScramCredentials (key 50, version 0): which SCRAM credentials users have (KIP-554).

Only credentials that clients have set by AlterUserScramCredentials; users from the configuration are not
listed. A user without credentials gets RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE.

Complete.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.scram import NUMBERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponseCredentialInfoDraft,
        DescribeUserScramCredentialsResponseDraft,
        DescribeUserScramCredentialsResponseResultDraft,
    )


KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)


access = needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponseDraft:
    """Return mechanisms and iterations of the users in the request, of all users if it has none."""
    credentials = context.broker.credentials
    names = Counter(user["name"] for user in request["users"] or ())
    users = list(names) if request["users"] else credentials.users()
    return {
        "error_message": None,
        "results": [
            _refused(user, ErrorCode.DUPLICATE_RESOURCE, "is named more than once")
            if names[user] > 1
            else _described(context, user)
            for user in users
        ],
    }


def _described(context: RequestContext, user: str) -> DescribeUserScramCredentialsResponseResultDraft:
    found = context.broker.credentials.of(user)
    if not found:
        return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, "has no SCRAM credentials")
    infos: list[DescribeUserScramCredentialsResponseCredentialInfoDraft] = [
        {"mechanism": number, "iterations": found[name].iterations}
        for number, name in NUMBERS.items()
        if name in found
    ]
    return {"user": user, "error_message": None, "credential_infos": infos}


def _refused(user: str, code: ErrorCode, why: str) -> DescribeUserScramCredentialsResponseResultDraft:
    return {"user": user, "error_code": code, "error_message": f"user {user} {why}"}
