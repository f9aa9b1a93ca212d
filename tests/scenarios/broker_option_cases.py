"""What an admin asks about `sasl.*`, `ssl.*` and `listener.name.*`, and where the two brokers differ."""

from __future__ import annotations

from typing import NamedTuple

from tests.broker.security.securitykit import plain_jaas
from tests.broker.security.stores import STORE_WORD
from tests.scenarios.broker_option_site import APPEND, DELETE, EVERY, OWN, SET, SUBTRACT, Change

TLS, SASL, PLAIN = (f"listener.name.{name}." for name in ("ssl", "sasl_plaintext", "plaintext"))
JAAS = plain_jaas(dave="dave-password-8Kd")
SECRET = "a-secret-4Wm"


class Case(NamedTuple):
    """A request to one resource. `{name}` in a value is the path of a file of `Stores`."""

    resource: str
    changes: tuple[Change, ...]

    @property
    def title(self) -> str:
        signs = {SET: "=", DELETE: " deleted", APPEND: " += ", SUBTRACT: " -= "}
        texts = (f"{name}{signs[how]}{'' if value is None else value}" for name, how, value in self.changes)
        return f"{self.resource or 'every broker'}: {', '.join(texts)}"


def _set(*pairs: tuple[str, str]) -> list[Case]:
    return [Case(resource, ((name, SET, value),)) for resource in (OWN, EVERY) for name, value in pairs]


_STORES = (
    ("ssl.keystore.location", "{renewed}"),
    ("ssl.keystore.type", "PEM"),
    ("ssl.keystore.key", SECRET),
    ("ssl.keystore.certificate.chain", "x"),
    ("ssl.key.password", SECRET),
    ("ssl.keystore.password", SECRET),
    ("ssl.truststore.location", "{both}"),
    ("ssl.truststore.certificates", "x"),
    ("ssl.truststore.password", SECRET),
)
_RESTART = (
    ("ssl.client.auth", "none"),
    ("ssl.enabled.protocols", "TLSv1.3"),
    ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
    ("ssl.principal.mapping.rules", "DEFAULT"),
    ("ssl.allow.dn.changes", "true"),
    ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"),
    ("sasl.jaas.config", JAAS),
    ("sasl.kerberos.service.name", "kafka"),
    ("sasl.kerberos.principal.to.local.rules", "DEFAULT"),
    ("sasl.server.max.receive.size", "100000"),
    ("connections.max.reauth.ms", "5000"),
)
_LIMITS = tuple(
    (name, value)
    for name in ("max.connections", "max.connection.creation.rate")
    for value in ("50", "0", "-1", "many")
)
_OVERRIDES = tuple(
    ("max.connections.per.ip.overrides", value)
    for value in (
        "127.0.0.9:5", "localhost:50", "10.0.0.1:3,10.0.0.2:4", "10.0.0.1:3, 10.0.0.2:4", "x",
        "10.0.0.1:many", "10.0.0.1:-1", "10.0.0.1:0", "10.0.0.1:3,10.0.0.1:4", "no.such.host.invalid:4", "",
        "[::9]:5", "::9:5", "10.0.0.1:99999999999", ":5", "10.0.0.1:", "10.0.0.1:3,",
    )
)  # fmt: skip
_BAD_STORES = (
    *(("ssl.keystore.location", f"{{{bad}}}") for bad in ("renamed", "fewer", "mixed", "garbage", "missing")),
    ("ssl.keystore.location", ""),
    ("ssl.keystore.type", "JKS"),
    ("ssl.keystore.type", "nothing"),
    ("ssl.truststore.location", "{garbage}"),
    ("ssl.truststore.location", "{missing}"),
    ("ssl.truststore.type", "JKS"),
)


def _java_store(store: str, path: str, kind: str | None, password: str | None) -> Case:
    """A Java store in the place of a PEM file; what is None is left as it was."""
    given = {"type": kind, "location": path, "password": password}
    return Case(
        OWN,
        tuple((f"{TLS}ssl.{store}.{name}", SET, value) for name, value in given.items() if value is not None),
    )


_JAVA_STORES = tuple(
    _java_store(store, path, kind, password)
    for store, path in (("keystore", "{renewed.p12}"), ("truststore", "{both.p12}"))
    for kind, password in (
        *((kind, STORE_WORD) for kind in ("PKCS12", "JKS", "pkcs12", "PEM", "nothing", None)),
        ("PKCS12", "wrong"), ("PKCS12", ""), ("PKCS12", None),
    )
)  # fmt: skip

CASES: tuple[Case, ...] = (
    *_set(*_STORES, *_RESTART, *_LIMITS, *_OVERRIDES),
    *_set(("sasl.login.refresh.buffer.seconds", "200"), ("sasl.login.refresh.buffer.seconds", "soon")),
    *_set(("sasl.kerberos.kinit.cmd", "/bin/true"), ("sasl.oauthbearer.jwks.endpoint.url", "file:/keys")),
    *_set(("advertised.listeners", "PLAINTEXT://127.0.0.1:1"), ("principal.builder.class", "no.such.Class")),
    *_set(*((TLS + name, value) for name, value in (*_STORES, *_BAD_STORES, *_RESTART, *_LIMITS))),
    *_set((TLS + "no.such.option", "1"), (TLS + "connections.max.idle.ms", "1000"), (TLS + "log.dirs", "x")),
    *_set((SASL + "plain.sasl.jaas.config", JAAS), (SASL + "plain.connections.max.reauth.ms", "1000")),
    *_set((SASL + "plain.connections.max.reauth.ms", "x"), (SASL + "sasl.enabled.mechanisms", "PLAIN")),
    *_set((SASL + "max.connections", "7"), (PLAIN + "max.connections", "70")),
    *_set((PLAIN + "ssl.keystore.location", "{renewed}"), (PLAIN + "ssl.truststore.location", "{missing}")),
    *_set(("listener.name.other.max.connections", "5"), ("listener.name.SSL.max.connections", "5")),
    *_set(("listener.name.other.ssl.keystore.location", "{renewed}"), ("listener.name.ssl", "5")),
    *_JAVA_STORES,
    Case(OWN, ((TLS + "max.connections", DELETE, None),)),
    Case(OWN, ((TLS + "ssl.client.auth", DELETE, None),)),
    Case(OWN, ((TLS + "max.connections", SET, None),)),
    Case(OWN, ((TLS + "max.connections", APPEND, "5"),)),
    Case(OWN, ((TLS + "ssl.enabled.protocols", APPEND, "TLSv1.3"),)),
    Case(OWN, (("sasl.enabled.mechanisms", APPEND, "SCRAM-SHA-256"),)),
    Case(OWN, (("sasl.enabled.mechanisms", SUBTRACT, "PLAIN"),)),
    Case(OWN, ((TLS + "max.connections", SET, "5"), (TLS + "ssl.keystore.location", SET, "{missing}"))),
    Case(OWN, ((TLS + "max.connections", SET, "5"), (TLS + "max.connection.creation.rate", SET, "6"))),
    Case(OWN, ((TLS + "ssl.keystore.location", SET, "{renewed}"), (TLS + "ssl.keystore.type", SET, "PEM"))),
)

_UNCHECKED = "Kafka keeps it, and it has no effect until a restart: eoslog does not take what it does not do"
_NOBODY = "Kafka keeps options of listeners that are not there: eoslog takes it for a mistake"
_NAMES = (
    "Kafka compares the names in the old certificate and the new one (ssl.allow.dn.changes): eoslog does not"
)
_NO_DEFAULT = "Options of Kafka that mean nothing here have no default"

_NO_LIMIT = "Kafka takes a limit below 0 and an address without a name, which are mistakes"

REFUSED_HERE: dict[str, str] = {
    **{f"{OWN}: {name}={value}": _UNCHECKED for name, value in _RESTART[:3] + _RESTART[5:9]},
    **{f"{OWN}: {TLS}{name}={value}": _UNCHECKED for name, value in _RESTART},
    **{
        f"{resource or 'every broker'}: max.connections.per.ip.overrides={value}": _NO_LIMIT
        for resource in (OWN, EVERY)
        for value in ("10.0.0.1:-1", ":5")
    },
    f"{OWN}: {TLS}ssl.keystore.location={{mixed}}": "Kafka takes a key that does not fit the certificate",
    _java_store("truststore", "{both.p12}", "PKCS12", None).title: (
        "Without its password Java sees none of the certificates, and Kafka then trusts nobody"
    ),
    f"{OWN}: {TLS}no.such.option=1": _UNCHECKED,
    f"{OWN}: {TLS}connections.max.idle.ms=1000": _UNCHECKED,
    f"{OWN}: {TLS}log.dirs=x": _UNCHECKED,
    f"{OWN}: {SASL}plain.sasl.jaas.config={JAAS}": _UNCHECKED,
    f"{OWN}: {SASL}plain.connections.max.reauth.ms=1000": _UNCHECKED,
    f"{OWN}: {SASL}sasl.enabled.mechanisms=PLAIN": _UNCHECKED,
    f"{OWN}: sasl.enabled.mechanisms += SCRAM-SHA-256": _UNCHECKED,
    f"{OWN}: sasl.enabled.mechanisms -= PLAIN": _UNCHECKED,
    f"{OWN}: listener.name.other.ssl.keystore.location={{renewed}}": _NOBODY,
    **{
        f"{place}: {name}=5": _NOBODY
        for place in (OWN, "every broker")
        for name in (
            "listener.name.other.max.connections", "listener.name.SSL.max.connections", "listener.name.ssl",
        )
    },
}  # fmt: skip
"""Title of the case -> why eoslog refuses what Kafka takes."""

TAKEN_HERE: dict[str, str] = {
    **{
        f"{resource or 'every broker'}: max.connections.per.ip.overrides=[::9]:5": "IPv6 is written so"
        for resource in (OWN, EVERY)
    },
    f"{OWN}: {TLS}ssl.keystore.location={{renamed}}": _NAMES,
    f"{OWN}: {TLS}ssl.keystore.location={{fewer}}": _NAMES,
    f"{OWN}: {TLS}ssl.key.password={SECRET}": "OpenSSL needs no password for a key that is not encrypted",
}
"""Title of the case -> why eoslog takes what Kafka refuses."""

FACTS: dict[tuple[str, str], str] = {
    ("sasl.login.refresh.buffer.seconds", "synonyms"): _NO_DEFAULT,
    ("sasl.kerberos.kinit.cmd", "synonyms"): _NO_DEFAULT,
}
"""(option, fact) that DescribeConfigs tells in another way -> why."""

START_FACTS: dict[tuple[str, str], str] = {
    ("sasl.enabled.mechanisms", "type"): "a text here, a list in Kafka",
    ("sasl.enabled.mechanisms", "synonyms"): "another default: eoslog offers what needs no other server",
    ("sasl.enabled.mechanisms", "read_only"): "Kafka takes it for listeners that are added later",
}
"""The same of the options that both were given at the start."""
