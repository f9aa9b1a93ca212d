"""How a client authenticates and which brokers it trusts: TLS, SASL and tokens, by Kafka's client names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from eoslog.errors import OptionError
from eoslog.errors.pages import see
from eoslog.protocol import jaas
from eoslog.protocol.scram import HASHES

# -- tokens ----------------------------------------------------------------------------------------
# OAUTHBEARER: where tokens come from. Pure values, by the option names of Kafka 4 and by older ones.


_PREFIX = "kafka.sasl.oauthbearer."
_CLASSES = "org.apache.kafka.common.security.oauthbearer."


class Flow(Enum):
    """How a token is got. The value is for messages."""

    CALLBACK = "kafka.sasl.oauthbearer.token.callback"
    FILE = "a file"
    CLIENT_CREDENTIALS = "client credentials"
    JWT_BEARER = "a JWT as grant"


RETRIEVERS: dict[str, Flow | None] = {
    f"{_CLASSES}DefaultJwtRetriever": None,
    f"{_CLASSES}FileJwtRetriever": Flow.FILE,
    f"{_CLASSES}ClientCredentialsJwtRetriever": Flow.CLIENT_CREDENTIALS,
    f"{_CLASSES}JwtBearerJwtRetriever": Flow.JWT_BEARER,
}
"""Kafka's classes; None: the URL says which."""


@dataclass(frozen=True)
class Assertion:
    """A signed JWT that says who the client is: from a file, or made with a private key."""

    file: str | None = None
    key_file: str | None = None
    key_passphrase: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    template_file: str | None = None
    issuer: str | None = None
    subject: str | None = None
    audience: str | None = None
    expires_s: int = 300
    not_before_s: int = 60
    with_id: bool = False


@dataclass(frozen=True)
class TokenSettings:
    """Where a process gets its tokens. `assertion`: in place of the client's secret, or as grant."""

    flow: Flow
    url: str = ""
    callback: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    url_encoded: bool = False
    subject_claim: str | None = None
    assertion: Assertion | None = None


def token_settings(options: Mapping[str, Any], login: Mapping[str, str]) -> TokenSettings:
    """Make settings from parsed options and those of the login module. Raises OptionError."""
    given = {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
    made = TokenSettings(
        _flow(given),
        url=given.get("token.endpoint.url") or "",
        callback=given.get("token.callback") or "",
        client_id=given.get("client.credentials.client.id") or login.get("clientId", ""),
        client_secret=given.get("client.credentials.client.secret") or login.get("clientSecret", ""),
        scope=given.get("scope") or login.get("scope", ""),
        url_encoded=bool(given.get("header.urlencode")),
        subject_claim=given.get("sub.claim.name"),
        assertion=_assertion(given),
    )
    _check_tokens(made)
    return made


def _flow(given: Mapping[str, Any]) -> Flow:
    url, callback = given.get("token.endpoint.url"), given.get("token.callback")
    if (url is None) == (callback is None):
        raise OptionError(
            "OAUTHBEARER needs one source of tokens: give kafka.sasl.oauthbearer.token.endpoint.url (with "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .secret), or "
            "kafka.sasl.oauthbearer.token.callback as module:function"
        )
    name = jaas.class_name(given.get("jwt.retriever.class") or "")
    if name and name not in RETRIEVERS:
        raise OptionError(
            f"option kafka.sasl.oauthbearer.jwt.retriever.class cannot be {name!r}: choose one of "
            f"{', '.join(RETRIEVERS)}, or give kafka.sasl.oauthbearer.token.callback in place of it"
        )
    if url is None:
        return Flow.CALLBACK
    by_url = Flow.FILE if str(url).startswith("file:") else Flow.CLIENT_CREDENTIALS
    flow = RETRIEVERS.get(name) or by_url
    if not str(url).startswith(("http:", "https:", "file:")) or (flow is Flow.FILE) != (by_url is Flow.FILE):
        raise OptionError(
            "option kafka.sasl.oauthbearer.token.endpoint.url: tokens come from "
            f"{flow.value}: give a URL that begins with {'file:' if flow is Flow.FILE else 'https:'}"
        )
    return flow


def _assertion(given: Mapping[str, Any]) -> Assertion | None:
    said = {
        name.removeprefix("assertion."): value
        for name, value in given.items()
        if name.startswith("assertion.") and value
    }
    if not said:
        return None
    if ("file" in said) == ("private.key.file" in said):
        raise OptionError(
            "an assertion comes from one place: give kafka.sasl.oauthbearer.assertion.file, or "
            "kafka.sasl.oauthbearer.assertion.private.key.file, which signs one"
        )
    return Assertion(
        file=said.get("file"),
        key_file=said.get("private.key.file"),
        key_passphrase=said.get("private.key.passphrase"),
        algorithm=said.get("algorithm", "rs256").upper(),
        template_file=said.get("template.file"),
        issuer=said.get("claim.iss"),
        subject=said.get("claim.sub"),
        audience=said.get("claim.aud"),
        expires_s=said.get("claim.exp.seconds", 300),
        not_before_s=said.get("claim.nbf.seconds", 60),
        with_id=said.get("claim.jti.include", False),
    )


def _check_tokens(made: TokenSettings) -> None:
    if made.flow is Flow.CALLBACK and ":" not in made.callback:
        raise OptionError("option kafka.sasl.oauthbearer.token.callback: give it as module:function")
    if made.flow is Flow.JWT_BEARER and made.assertion is None:
        raise OptionError(
            "JwtBearerJwtRetriever needs an assertion: give kafka.sasl.oauthbearer.assertion.file, or "
            "kafka.sasl.oauthbearer.assertion.private.key.file"
        )
    by_secret = made.flow is Flow.CLIENT_CREDENTIALS and made.assertion is None
    if by_secret and not (made.client_id and made.client_secret):
        raise OptionError(
            "the token endpoint needs an id and a secret: give "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .secret, or clientId and clientSecret "
            "in kafka.sasl.jaas.config"
        )
    if made.assertion is not None and made.flow in (Flow.CALLBACK, Flow.FILE):
        raise OptionError(
            "kafka.sasl.oauthbearer.assertion options have no effect, as tokens come from "
            f"{made.flow.value}: leave them out"
        )


# -- TLS and SASL ----------------------------------------------------------------------------------
# How a client authenticates and which brokers it trusts: TLS and SASL settings, by Kafka's client names.
#
# Pure values; sasl.py and tls.py use them. Secrets are in no `repr`. The settings are sent to the tasks with
# the options; files named in them must exist where the tasks run.


_USED = ("useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName")
_NO_KERBEROS_EFFECT = (
    "storeKey", "doNotPrompt", "refreshKrb5Config", "debug", "isInitiator", "renewTGT",
    "tryFirstPass", "useFirstPass", "storePass", "clearPass",
)  # fmt: skip
"""Nobody prompts, no other module has a password, and MIT's library always reads krb5.conf as it is."""

_HOW = (
    "give useKeyTab=true with keyTab and principal, or useTicketCache=true for the tickets of kinit. "
    f"{see('kerberos')}"
)


@dataclass(frozen=True)
class KerberosSettings:
    """Whose tickets to use, and for which service. Without a keytab they come from a ticket cache."""

    service: str
    principal: str = ""
    keytab: str = ""
    ticket_cache: str = ""

    @property
    def who(self) -> str:
        """The client, for messages."""
        return self.principal or f"the owner of the ticket cache {self.ticket_cache or '(the default one)'}"


def kerberos_settings(login: Mapping[str, str] | None, option: str | None) -> KerberosSettings:
    """Make settings from a login module's options; None, if there is no JAAS text: the default ticket cache.

    `option`: kafka.sasl.kerberos.service.name. Raises OptionError, which shows no value of the JAAS text.
    """
    if login is not None:
        _check(login)
    login = login or {}
    service = option or login.get("serviceName")
    if not service:
        raise OptionError(
            "option kafka.sasl.kerberos.service.name is missing: give the first part of the brokers' "
            "principal, as in kafka/host@REALM"
        )
    if login.get("serviceName", service) != service:
        raise OptionError(
            "kafka.sasl.jaas.config: serviceName is not kafka.sasl.kerberos.service.name: give one of them"
        )
    principal, keytab = login.get("principal", ""), login.get("keyTab", "").removeprefix("file:")
    if not _true(login, "useKeyTab"):
        return KerberosSettings(service, principal, "", login.get("ticketCache", ""))
    if not keytab or not principal:
        raise OptionError("kafka.sasl.jaas.config: useKeyTab=true needs keyTab and principal: give both")
    return KerberosSettings(service, principal, keytab)


def _true(login: Mapping[str, str], name: str, otherwise: str = "false") -> bool:
    """As Java's module reads it: any other text than true is false."""
    return login.get(name, otherwise).lower() == "true"


def _check(login: Mapping[str, str]) -> None:
    """Refuse what Java's Krb5LoginModule does not take either, and what it alone can do. Without this the
    tickets of whoever has run kinit would be used, and the query would run as somebody else."""
    for name in login:
        if name not in _USED + _NO_KERBEROS_EFFECT:
            raise OptionError(f"kafka.sasl.jaas.config: Krb5LoginModule has no option {name}: {_near(name)}")
    by_keytab, by_cache = _true(login, "useKeyTab"), _true(login, "useTicketCache")
    said = ""
    if "keyTab" in login and not by_keytab:
        said = "keyTab is given without useKeyTab=true"
    elif "ticketCache" in login and not by_cache:
        said = "ticketCache is given without useTicketCache=true"
    elif not by_keytab and not by_cache:
        said = "neither useKeyTab=true nor useTicketCache=true is given, and Spark asks nobody for a password"
    elif not _true(login, "isInitiator", "true"):
        said = "isInitiator=false is for brokers: a client without tickets cannot log in"
    elif _true(login, "renewTGT"):
        said = (
            "renewTGT=true renews tickets of a cache, and eoslog does not: leave it out and have kinit -R run"
        )
    if said:
        raise OptionError(f"kafka.sasl.jaas.config: {said}: {_HOW}")


def _near(name: str) -> str:
    """Java's module passes over names that it does not know: as a misspelt principal, for one."""
    known = {one.lower(): one for one in _USED + _NO_KERBEROS_EFFECT}
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"did you mean {known[near[0]]}?" if near else _HOW


AWS = "AWS_MSK_IAM"
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


PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER", AWS, "GSSAPI")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(HASHES),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "IAMLoginModule": (AWS,),
    "Krb5LoginModule": ("GSSAPI",),
}
_FORM = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
_KERBEROS_FORM = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
    'keyTab="/path" principal="name@REALM";'
)
_JAVA_TLS = (
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
)  # how Java does TLS to the token endpoint, not whom it trusts
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("PEM", "JKS", "PKCS12")


@dataclass(frozen=True)
class TlsSettings:
    """How a broker's certificate is checked, and the client's own certificate: files of PEM, JKS or PKCS12 (a
    type that is None is seen from the file), or PEM as text."""

    ca_file: str | None = None
    ca_type: str | None = None
    ca_password: str | None = field(default=None, repr=False)
    ca_text: str | None = None
    certificate_file: str | None = None
    certificate_type: str | None = None
    certificate_password: str | None = field(default=None, repr=False)
    certificate_text: str | None = None
    key_file: str | None = None
    key_text: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_name: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


@dataclass(frozen=True)
class SaslSettings:
    """A mechanism and its credentials. `delegated`: those of a delegation token, by SCRAM. OAUTHBEARER has
    `tokens`, AWS_MSK_IAM has `aws`. `password_file`: read for each login, in place of `password`."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    delegated: bool = False
    tokens: TokenSettings | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    aws: AwsSettings | None = None
    kerberos: KerberosSettings | None = None


@dataclass(frozen=True)
class Security:
    """`tls` None: plain text; `sasl` None: no authentication beyond TLS's own."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Make settings from parsed options, by their lower-case names. Raises OptionError."""
        protocol = options.get("kafka.security.protocol") or "plaintext"
        tls = _tls(options) if protocol.endswith("ssl") else None
        sasl = _sasl(options) if protocol.startswith("sasl") else None
        for prefix, used in (("kafka.ssl.", tls), ("kafka.sasl.", sasl)):
            extra = sorted(name for name, value in options.items() if name.startswith(prefix) and value)
            if used is None and extra:
                raise OptionError(
                    f"option {extra[0]} has no effect with kafka.security.protocol={protocol}: "
                    f"choose one of {', '.join(PROTOCOLS)} to go with it, or leave it out"
                )
        return cls(tls, sasl)


def _tls(options: Mapping[str, Any]) -> TlsSettings:
    for store in ("truststore", "keystore"):
        _check_store(options, f"kafka.ssl.{store}")
    versions = tuple(
        v.strip() for v in (options.get("kafka.ssl.enabled.protocols") or "TLSv1.2,TLSv1.3").split(",")
    )
    if not set(versions) <= set(TLS_VERSIONS):
        raise OptionError(f"option kafka.ssl.enabled.protocols: give {' or '.join(TLS_VERSIONS)}, or both")
    certificate = options.get("kafka.ssl.keystore.location") or options.get("kafka.ssl.certificate.location")
    tls = TlsSettings(
        ca_file=options.get("kafka.ssl.truststore.location") or options.get("kafka.ssl.ca.location"),
        ca_type=options.get("kafka.ssl.truststore.type"),
        ca_password=options.get("kafka.ssl.truststore.password"),
        ca_text=options.get("kafka.ssl.truststore.certificates"),
        certificate_file=certificate,
        certificate_type=options.get("kafka.ssl.keystore.type"),
        certificate_password=options.get("kafka.ssl.keystore.password"),
        certificate_text=options.get("kafka.ssl.keystore.certificate.chain"),
        key_file=options.get("kafka.ssl.key.location"),
        key_text=options.get("kafka.ssl.keystore.key"),
        key_password=options.get("kafka.ssl.key.password"),
        check_name=options.get("kafka.ssl.endpoint.identification.algorithm") not in ("none", ""),
        versions=versions,
    )
    if bool(tls.certificate_text) != bool(tls.key_text):
        raise OptionError(
            "options kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key go together: give both"
        )
    return tls


def _check_store(options: Mapping[str, Any], store: str) -> None:
    kind, password = options.get(f"{store}.type"), options.get(f"{store}.password")
    if kind and kind.upper() not in STORE_TYPES:
        raise OptionError(
            f"option {store}.type cannot be {kind!r}: choose one of {', '.join(STORE_TYPES)}; keytool "
            "-importkeystore -deststoretype PKCS12 converts other stores"
        )
    if password and not options.get(f"{store}.location"):
        raise OptionError(
            f"option {store}.password has no effect without {store}.location: give both, or neither"
        )


def _sasl(options: Mapping[str, Any]) -> SaslSettings:
    mechanism = (options.get("kafka.sasl.mechanism") or _implied(options)).upper()
    if mechanism not in MECHANISMS:
        said = f"cannot be {mechanism!r}" if mechanism else "is missing"
        raise OptionError(f"option kafka.sasl.mechanism {said}: choose one of {', '.join(MECHANISMS)}")
    login = _login(options.get("kafka.sasl.jaas.config"), mechanism)
    service = options.get("kafka.sasl.kerberos.service.name")
    if mechanism == "GSSAPI":
        given = options.get("kafka.sasl.jaas.config") is not None
        kerberos = kerberos_settings(login if given else None, service)
        return SaslSettings(mechanism, user=kerberos.who, kerberos=kerberos)
    if service:
        raise OptionError(
            f"option kafka.sasl.kerberos.service.name has no effect with {mechanism}: leave it out"
        )
    sasl = SaslSettings(
        mechanism,
        user=options.get("kafka.sasl.username") or login.get("username", ""),
        password=options.get("kafka.sasl.password") or login.get("password", ""),
        password_file=options.get("kafka.sasl.password.file") or "",
        delegated=login.get("tokenauth", "").lower() == "true",
        tokens=token_settings(options, login) if mechanism == "OAUTHBEARER" else None,
        extensions=tuple(
            (name.removeprefix("extension_"), value)
            for name, value in sorted(login.items())
            if name.startswith("extension_")
        ),
        aws=aws_settings(login) if mechanism == AWS else None,
    )
    _check_sasl(sasl)
    return sasl


def _implied(options: Mapping[str, Any]) -> str:
    """The mechanism if none is given: Kafka's default, where something of Kerberos is."""
    named = "Krb5LoginModule" in (options.get("kafka.sasl.jaas.config") or "")
    return "GSSAPI" if named or options.get("kafka.sasl.kerberos.service.name") else ""


def _login(text: str | None, mechanism: str) -> dict[str, str]:
    if text is None:
        return {}
    try:
        login = jaas.parse(text)
    except jaas.JaasError as error:
        raise OptionError(
            f"option kafka.sasl.jaas.config cannot be read: {error}; give it as "
            + (_KERBEROS_FORM if mechanism == "GSSAPI" else _FORM)
        ) from error
    if mechanism not in _MODULES.get(login.module, ()):
        raise OptionError(
            f"option kafka.sasl.jaas.config names {login.module}, which does not go with "
            f"kafka.sasl.mechanism={mechanism}: choose one of {', '.join(_MODULES)}"
        )
    if login.package.startswith("com.ibm."):
        raise OptionError(
            f"option kafka.sasl.jaas.config names {login.package}.{login.module}, which IBM's old Java had, "
            f"with options of its own: give it as {_KERBEROS_FORM}"
        )
    trust = [name for name in login.options if name.startswith("ssl.") and name not in _JAVA_TLS]
    if trust:
        raise OptionError(
            f"option kafka.sasl.jaas.config: {trust[0]} for the token endpoint is not supported: add its "
            "authority to those of the machine, and leave it out"
        )
    return login.options


def _check_sasl(sasl: SaslSettings) -> None:
    by_password = sasl.tokens is None and sasl.aws is None
    if by_password and not (sasl.user and (sasl.password or sasl.password_file)):
        raise OptionError(
            f"{sasl.mechanism} needs a user and a password: give kafka.sasl.jaas.config, or "
            "kafka.sasl.username with kafka.sasl.password or kafka.sasl.password.file"
        )
    if sasl.password_file and (sasl.password or not by_password):
        why = "a password is given, too" if by_password else f"{sasl.mechanism} has no password"
        raise OptionError(f"option kafka.sasl.password.file has no effect, {why}: leave one of them out")
