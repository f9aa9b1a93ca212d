"""AlterUserScramCredentials (key 51, version 0): set or remove users' SCRAM credentials (KIP-554).

All valid changes are made together, durable before the answer. If a user has an invalid change, or two
changes for one mechanism, nothing of that user changes. Iterations are 4096 to 16384, as in Kafka.

Complete.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from eoslog.broker.authorize.access import AccessRequest, RequestRefused, needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.scram import MAX_ITERATIONS, MIN_ITERATIONS, NUMBERS, Credential, credential_of

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsRequestDeletion,
        AlterUserScramCredentialsRequestUpsertion,
        AlterUserScramCredentialsResponseDraft,
        AlterUserScramCredentialsResponseResultDraft,
    )


logger = logging.getLogger(__name__)
_CHANGES = "%s from %s %s the %s credential of user %r"

KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)


def _credentials_refused(
    asked: AccessRequest[AlterUserScramCredentialsRequest], code: ErrorCode
) -> RequestRefused[AlterUserScramCredentialsResponseDraft]:
    """A user appears once in the answer, however many changes were requested."""
    changes = [*asked.request["deletions"], *asked.request["upsertions"]]
    names = dict.fromkeys(change["name"] for change in changes)
    return RequestRefused({"results": [{"user": name, "error_code": code} for name in names]})


access = needs(AclOperation.ALTER, ResourceType.CLUSTER, refuse=_credentials_refused)


_Change: TypeAlias = "AlterUserScramCredentialsRequestDeletion | AlterUserScramCredentialsRequestUpsertion"


def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponseDraft:
    """Make the changes and return each user's result."""
    removed, put = request["deletions"], request["upsertions"]
    changes = [*removed, *put]
    errors: dict[str, KafkaError] = {}
    for (name, _), times in Counter((one["name"], one["mechanism"]) for one in changes).items():
        if times > 1:
            errors[name] = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
    for one in removed:
        _note(errors, one, _removable(context, one))
    for one in put:
        _note(errors, one, _acceptable(one))
    try:
        new = [(_key(one), _credential(one)) for one in put if one["name"] not in errors]
        gone = [_key(one) for one in removed if one["name"] not in errors]
        context.broker.credentials.change(new, gone)
        for verb, keys in (("sets", [key for key, _ in new]), ("removes", gone)):
            for user, mechanism in keys:
                logger.info(_CHANGES, context.principal, context.client_host, verb, mechanism, user)
    except KafkaError as error:
        errors = {one["name"]: error for one in changes} | errors
    return {
        "results": [_result(name, errors.get(name)) for name in dict.fromkeys(c["name"] for c in changes)]
    }


def _note(errors: dict[str, KafkaError], one: _Change, error: KafkaError | None) -> None:
    if error is not None:
        errors.setdefault(one["name"], error)


def _named(one: _Change) -> KafkaError | None:
    if not one["name"]:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one["mechanism"] not in NUMBERS:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _removable(context: RequestContext, one: AlterUserScramCredentialsRequestDeletion) -> KafkaError | None:
    wrong = _named(one)
    if wrong is None and context.broker.credentials.get(*_key(one)) is None:
        return KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return wrong


def _acceptable(one: AlterUserScramCredentialsRequestUpsertion) -> KafkaError | None:
    wrong = _named(one)
    if wrong is not None:
        return wrong
    if one["iterations"] < MIN_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if one["iterations"] > MAX_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not len(one["salt"]) or not len(one["salted_password"]):
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt or salted password is empty")
    return None


def _key(one: _Change) -> tuple[str, str]:
    return one["name"], NUMBERS[one["mechanism"]]


def _credential(one: AlterUserScramCredentialsRequestUpsertion) -> Credential:
    salted, salt = bytes(one["salted_password"]), bytes(one["salt"])
    return credential_of(NUMBERS[one["mechanism"]], salted, salt, one["iterations"])


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResponseResultDraft:
    if error is None:
        return {"user": name, "error_message": None}
    return {"user": name, "error_code": error.code, "error_message": error.message}
