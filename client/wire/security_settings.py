"""How a client authenticates and which brokers it trusts: TLS and SASL settings, by Kafka's client names.

Pure values; sasl.py and tls.py use them. Secrets are in no `repr`. The settings are sent to the tasks with
the options; files named in them must exist where the tasks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from eoslog.client.wire.aws_settings import MECHANISM as AWS
from eoslog.client.wire.aws_settings import AwsSettings, aws_settings
from eoslog.client.wire.kerberos_settings import KerberosSettings, kerberos_settings
from eoslog.client.wire.token_settings import TokenSettings, token_settings
from eoslog.errors import OptionError
from eoslog.protocol import jaas
from eoslog.protocol.scram import HASHES

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
    `tokens`, AWS_MSK_IAM has `aws`."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
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
    if by_password and not (sasl.user and sasl.password):
        raise OptionError(
            f"{sasl.mechanism} needs a user and a password: give kafka.sasl.jaas.config, or "
            "kafka.sasl.username and kafka.sasl.password"
        )
