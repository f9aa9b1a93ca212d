"""SASL AWS_MSK_IAM: a connection is signed with AWS credentials (the payload of aws-msk-iam-auth).

The one message is a JSON of a presigned request (SigV4) of the action kafka-cluster:Connect at the broker's
name. botocore finds, renews and uses the credentials (extra `msk-iam`).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from eoslog.client.wire.security_settings import AWS, AwsSettings
from eoslog.errors import AuthenticationRefused, OptionError
from eoslog.version import __version__

_VERSION = "2020_10_22"
_ACTION = "kafka-cluster:Connect"
_SERVICE = "kafka-cluster"
_GOOD_FOR_S = 900
_REGION_OF_NAME = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$", re.IGNORECASE
)

_credentials: dict[AwsSettings, Any] = {}  # botocore's, which renew themselves
_lock = threading.Lock()


def payload(aws: AwsSettings, host: str) -> bytes:
    """The message for a broker. Raises AuthenticationRefused, OptionError."""
    try:
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise OptionError(
            f"kafka.sasl.mechanism={AWS} needs botocore: add it with pip install 'eoslog[msk-iam]', "
            "also where the tasks run"
        ) from None
    _quieten()
    try:
        session = _session(aws)
        region = _region(aws, host, session)
        with _lock:
            if aws not in _credentials:
                _credentials[aws] = _found(aws, session, region)
            frozen = _credentials[aws].get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        # Not `from error`: its text may contain a secret, and Spark shows the texts of causes.
        raise AuthenticationRefused(
            f"{AWS}: no AWS credentials: {_reason(error)}; check profile, role and their rights, also "
            "where the tasks run"
        ) from None
    request = AWSRequest("GET", f"https://{host}/?Action={quote(_ACTION, safe='')}")
    SigV4QueryAuth(frozen, _SERVICE, region, expires=_GOOD_FOR_S).add_auth(request)
    signed = {name.lower(): value for name, value in parse_qsl(urlsplit(request.url).query)}
    whole = {"version": _VERSION, "host": host, "user-agent": f"eoslog/{__version__}"} | signed
    return json.dumps(whole).encode()


def forget(aws: AwsSettings) -> None:
    """Look credentials up again for the next login: the broker refused these."""
    with _lock:
        _credentials.pop(aws, None)


def check_accepted(answer: bytes) -> None:
    """An accepting broker answers with a JSON that has a request id. Raises AuthenticationRefused."""
    try:
        accepted = json.loads(answer)["version"] == _VERSION
    except (ValueError, KeyError, TypeError):
        accepted = False
    if not accepted:
        raise AuthenticationRefused(
            f"{AWS}: the broker did not accept the signature; check that it is one of Amazon MSK with "
            "IAM, and the clock of this machine"
        )


def _quieten() -> None:
    """At DEBUG botocore logs session tokens, and what STS answers."""
    log = logging.getLogger("botocore")
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)


def _session(aws: AwsSettings) -> Any:
    import botocore.session

    return botocore.session.Session(profile=aws.profile)


def _region(aws: AwsSettings, host: str, session: Any) -> str:
    if aws.region is not None:
        return aws.region
    named = _REGION_OF_NAME.search(host)
    region: str | None = named[1].lower() if named else session.get_config_variable("region")
    if region is None:
        raise OptionError(
            f"{AWS}: the name {host} has no AWS region in it: give awsRegion in kafka.sasl.jaas.config "
            "or set AWS_DEFAULT_REGION wherever tasks run"
        )
    return region


def _found(aws: AwsSettings, session: Any, region: str) -> Any:
    """botocore's credentials for these settings. Raises AuthenticationRefused, BotoCoreError."""
    from botocore.credentials import Credentials

    if aws.access_key is not None:
        source: Any = Credentials(aws.access_key, aws.secret_key, aws.session_token)
    else:
        source = session.get_credentials()
    if source is None:
        raise AuthenticationRefused(
            f"{AWS}: no AWS credentials are found on this machine: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile, or a role of the machine, wherever tasks run"
        )
    return source if aws.role_arn is None else _assumed(aws, session, source, region)


def _assumed(aws: AwsSettings, session: Any, source: Any, region: str) -> Any:
    """Credentials of the role, which botocore gets again before they end."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    def client(service: str, **credentials: Any) -> Any:
        return session.create_client(service, region_name=aws.sts_region or region, **credentials)

    named = {"RoleSessionName": aws.role_session, "ExternalId": aws.role_external_id}
    extra = {name: value for name, value in named.items() if value}
    fetcher = AssumeRoleCredentialFetcher(client, source, aws.role_arn, extra_args=extra, cache={})
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _reason(error: Exception) -> str:
    """The kind of error; of AWS's own errors the code. Their texts may hold parts of a secret."""
    answer = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return code or type(error).__name__
