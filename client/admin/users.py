"""Users with passwords (KIP-554): describe, add and remove them with the standard requests.

A password does not leave this machine: the request has a salted hash, which is enough to check it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eoslog.client.wire.cluster import Cluster, ask_controller, not_allowed
from eoslog.client.wire.retry import retrying
from eoslog.errors import EoslogError
from eoslog.protocol import errors
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.scram import NUMBERS, salted_password
from eoslog.protocol.typed import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterUserScramCredentialsRequestDeletionDraft,
        AlterUserScramCredentialsRequestDraft,
        AlterUserScramCredentialsRequestUpsertionDraft,
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResponseResult,
        DescribeUserScramCredentialsRequestDraft,
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResponseCredentialInfo,
        DescribeUserScramCredentialsResponseResult,
    )


_Result: TypeAlias = (
    "DescribeUserScramCredentialsResponse | DescribeUserScramCredentialsResponseResult"
    " | AlterUserScramCredentialsResponseResult"
)

_SALT_BYTES = 32
_CODES = {name: number for number, name in NUMBERS.items()}


@dataclass(frozen=True, order=True)
class KnownPassword:
    """A user's password that the cluster can check by one mechanism."""

    user: str
    mechanism: str
    iterations: int


def describe_users(cluster: Cluster, names: tuple[str, ...] = ()) -> tuple[list[KnownPassword], list[str]]:
    """The passwords of these users, or of all if none is named; and the names that are not known.

    Raises KafkaError, EoslogError.
    """
    body: DescribeUserScramCredentialsRequestDraft = {
        "users": [{"name": name} for name in dict.fromkeys(names)] or None
    }

    def attempt() -> tuple[list[KnownPassword], list[str]]:
        answer = cluster.any_broker().call(DESCRIBE_USER_SCRAM_CREDENTIALS, body)
        _check(answer, "users", "Describe")
        found, missing = [], []
        for result in answer["results"]:
            if result["error_code"] == ErrorCode.RESOURCE_NOT_FOUND:
                missing.append(result["user"])
                continue
            _check(result, f"user {result['user']}", "Describe")
            found += [_known(result["user"], info) for info in result["credential_infos"]]
        return sorted(found), missing

    return retrying(cluster, "DescribeUserScramCredentials", attempt)


def put_user(cluster: Cluster, name: str, mechanism: str, password: str, iterations: int) -> None:
    """Add a user, or change the password of one. Raises KafkaError, EoslogError."""
    salt = secrets.token_bytes(_SALT_BYTES)
    change: AlterUserScramCredentialsRequestUpsertionDraft = {
        "name": name,
        "mechanism": _CODES[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted_password(mechanism, password, salt, iterations),
    }
    _alter(cluster, name, {"deletions": [], "upsertions": [change]})


def remove_user(cluster: Cluster, name: str, mechanism: str) -> None:
    """Forget a user's password for a mechanism. Raises KafkaError, EoslogError."""
    change: AlterUserScramCredentialsRequestDeletionDraft = {"name": name, "mechanism": _CODES[mechanism]}
    try:
        _alter(cluster, name, {"deletions": [change], "upsertions": []})
    except errors.ResourceNotFound as error:
        raise EoslogError(
            f"user {name} has no password for {mechanism}: see eoslog users list for those there are"
        ) from error


def _alter(cluster: Cluster, name: str, body: AlterUserScramCredentialsRequestDraft) -> None:
    def code(answer: AlterUserScramCredentialsResponse) -> int:
        return answer["results"][0]["error_code"]

    answer = ask_controller(cluster, ALTER_USER_SCRAM_CREDENTIALS, body, code)
    _check(answer["results"][0], f"user {name}", "Alter")


def _known(user: str, info: DescribeUserScramCredentialsResponseCredentialInfo) -> KnownPassword:
    return KnownPassword(
        user, NUMBERS.get(info["mechanism"], f"mechanism {info['mechanism']}"), info["iterations"]
    )


def _check(result: _Result, what: str, right: str) -> None:
    code = result["error_code"]
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise not_allowed("users", right)
    if code:
        raise KafkaError(code, f"{what}: {result['error_message'] or 'refused'}")
