"""AWS_MSK_IAM: whose credentials sign, and for which region. Pure values, from IAMLoginModule's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eoslog.errors import OptionError

MECHANISM = "AWS_MSK_IAM"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_NO_EFFECT = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")
_FIELDS = {
    "awsProfileName": "profile",
    "awsRegion": "region",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session",
    "awsRoleExternalId": "role_external_id",
    "awsStsRegion": "sts_region",
    "awsRoleAccessKeyId": "access_key",
    "awsRoleSecretAccessKey": "secret_key",
    "awsRoleSessionToken": "session_token",
}
_OF_A_ROLE = [name for name in _FIELDS if name.startswith(("awsRole", "awsSts")) and name != "awsRoleArn"]


@dataclass(frozen=True)
class AwsSettings:
    """What is not given is what botocore finds: environment, files, container, machine. `region`: if not
    given, that of the broker's name."""

    profile: str | None = None
    region: str | None = None
    role_arn: str | None = None
    role_session: str = "aws-msk-iam-auth"
    role_external_id: str | None = None
    sts_region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def aws_settings(login: Mapping[str, str]) -> AwsSettings:
    """Make settings from a login module's options. Raises OptionError."""
    unknown = sorted(login.keys() - _FIELDS.keys() - set(_NO_EFFECT))
    if unknown:
        raise OptionError(
            f"option kafka.sasl.jaas.config: IAMLoginModule has no option {unknown[0]}: give some of "
            f"{', '.join(_FIELDS)}"
        )
    if "awsProfileName" in login and "awsRoleArn" in login:
        raise OptionError(
            "option kafka.sasl.jaas.config: give awsProfileName or awsRoleArn, not both; a profile may name "
            "a role itself (role_arn)"
        )
    useless = [name for name in _OF_A_ROLE if name in login]
    if useless and "awsRoleArn" not in login:
        raise OptionError(
            f"option kafka.sasl.jaas.config: {useless[0]} has no effect without awsRoleArn: give both, or "
            "neither"
        )
    if ("awsRoleAccessKeyId" in login) != ("awsRoleSecretAccessKey" in login):
        raise OptionError(
            "option kafka.sasl.jaas.config: awsRoleAccessKeyId and awsRoleSecretAccessKey go together: give "
            "both"
        )
    return AwsSettings(**{_FIELDS[name]: value for name, value in login.items() if name in _FIELDS})
