"""`sasl.*`, `ssl.*` and `listener.name.*` while a broker runs (KIP-226): both brokers answer the same."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eoslog.broker.config.options import LIMITS
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import STORE_WORD, Stores, free_ports, lives, plain_jaas, serial
from tests.scenarios.apache_kafka import ApacheKafka

# -- two brokers with the same listeners ---------------------------------------------------------
# The bundled broker and Apache Kafka with the same listeners, certificates and users, for an admin who asks
# both about `sasl.*`, `ssl.*` and `listener.name.*` (KIP-226).

BROKER = 4
OWN, EVERY = "1", ""
"""The names of the broker's resource: this one, and the default of all."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SOURCES = {1: "topic", 2: "broker", 3: "every broker", 4: "start", 5: "default"}

Change = tuple[str, int, str | None]


def settings(stores: Stores) -> dict[str, str]:
    """The options of both at the start, beside the listeners."""
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(carol="carol-password"),
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.location": stores("broker"),
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": stores("first"),
        "listener.name.ssl.ssl.client.auth": "required",
    }


class ThreeListeners(ApacheKafka):
    """Apache Kafka with listeners PLAINTEXT, SSL and SASL_PLAINTEXT."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({})
        self.ssl_port, self.sasl_port = free_ports(2)
        listeners = addresses(self.port, self.ssl_port, self.sasl_port)
        self._settings |= options | {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        }


def addresses(plain: int, tls: int, sasl: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{sasl}"


@dataclass
class Subject:
    """One of the two brokers."""

    name: str
    port: int
    ssl_port: int
    stores: Stores
    restart: Callable[[], object]
    _marks: Iterator[int] = field(default_factory=lambda: itertools.count(1_000_000))

    def admin(self) -> Wire:
        return Wire("127.0.0.1", self.port, 30)

    def alter(self, resource: str, *changes: Change, validate_only: bool = False) -> str:
        """IncrementalAlterConfigs; the error's name. What was changed is in effect on return."""
        configs = [
            {"name": n, "config_operation": operation, "value": value} for n, operation, value in changes
        ]
        return self._altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resource, configs, validate_only)

    def replace(self, resource: str, options: dict[str, str]) -> str:
        """AlterConfigs; the error's name."""
        configs = [{"name": n, "value": value} for n, value in options.items()]
        return self._altered(ApiKey.ALTER_CONFIGS, 2, resource, configs, False)

    def _altered(self, key: ApiKey, version: int, resource: str, configs: object, validate_only: bool) -> str:
        wanted = {"resource_type": BROKER, "resource_name": resource, "configs": configs}
        with self.admin() as wire:
            (answer,) = wire.call(key, version, resources=[wanted], validate_only=validate_only)["responses"]
            if self.name == "kafka" and answer["error_code"] == 0 and not validate_only:
                self._settle(wire)
                self._settle(wire)  # a second one comes only when all of the first is done
        return ErrorCode(answer["error_code"]).name

    def _settle(self, wire: Wire) -> None:
        """Kafka answers before a change is in effect: wait until a later one is."""
        name, value = "log.cleaner.min.compaction.lag.ms", str(next(self._marks))
        config = {"name": name, "config_operation": SET, "value": value}
        wanted = {"resource_type": BROKER, "resource_name": EVERY, "configs": [config]}
        wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wanted], validate_only=False)
        deadline = time.monotonic() + 30
        while self.described(EVERY, [name], wire).get(name, {}).get("value") != value:
            assert time.monotonic() < deadline, "a change does not come into effect"
            time.sleep(0.02)

    def described(
        self, resource: str, names: list[str] | None = None, wire: Wire | None = None
    ) -> dict[str, dict[str, Any]]:
        """DescribeConfigs with synonyms; a missing option is not there."""
        wanted = {"resource_type": BROKER, "resource_name": resource, "configuration_keys": names}
        with self.admin() if wire is None else contextlib.nullcontext(wire) as asked:
            (found,) = asked.call(
                ApiKey.DESCRIBE_CONFIGS,
                4,
                resources=[wanted],
                include_synonyms=True,
                include_documentation=False,
            )["results"]
        assert found["error_code"] == 0, found
        return {one["name"]: one for one in found["configs"]}

    def tls(self, user: str = "alice") -> Wire:
        """A new connection by TLS that has been served a request. OSError if it is not."""
        return self.stores.connection(self.ssl_port, user)

    def lets_in(self, user: str = "alice") -> bool:
        """Whether a new connection of this user is served."""
        return self.stores.lets_in(self.ssl_port, user)


@contextlib.contextmanager
def both(directory: Path) -> Iterator[tuple[Subject, Subject]]:
    """Apache Kafka and the bundled broker, with files of the same names in folders of their own."""
    folders = [directory / name for name in ("kafka", "eoslog")]
    for folder in folders:
        folder.mkdir()
    theirs, ours = map(Stores, folders)
    plain, tls, sasl = free_ports(3)
    config = settings(ours) | {"listeners": addresses(plain, tls, sasl)}
    with ThreeListeners(settings(theirs)) as kafka, EmbeddedBroker(config=config, log_level="info") as eoslog:
        yield (
            Subject("kafka", kafka.port, kafka.ssl_port, theirs, kafka.restart),
            Subject("eoslog", plain, tls, ours, eoslog.restart),
        )


# -- what is asked -------------------------------------------------------------------------------
# What an admin asks about `sasl.*`, `ssl.*` and `listener.name.*`, and where the two brokers differ.

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


# -- the answers compared ------------------------------------------------------------------------
# `sasl.*`, `ssl.*` and `listener.name.*` while a broker runs (KIP-226): the bundled broker and Apache Kafka
# answer to the same requests, in the same run. Not part of the plain test run: `make test-broker-options`.
#
# The cases and the differences that are meant stand above. A difference has to be told
# there, and each one told there has to be one.

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

NONE = "NONE"
Told = dict[str, dict[str, Any] | None]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Subject, Subject]]:
    with both(tmp_path_factory.mktemp("options")) as pair:
        yield pair


def filled(case: Case, stores: Stores) -> Case:
    """The case with the paths of this broker's files."""

    def path(value: str | None) -> str | None:
        return stores(value[1:-1]) if value and value.startswith("{") else value

    return Case(case.resource, tuple((name, how, path(value)) for name, how, value in case.changes))


def told(subject: Subject, names: list[str]) -> dict[str, Told]:
    """What is said of these options, of this broker and of all; paths of files without their folder."""
    return {
        resource: {name: _plain(subject, found.get(name)) for name in names}
        for resource in (OWN, EVERY)
        for found in [subject.described(resource, names)]
    }


def _plain(subject: Subject, one: dict[str, Any] | None) -> dict[str, Any] | None:
    if one is None:
        return None
    folder = f"{subject.stores.directory}/"
    return {
        "value": one["value"] and one["value"].replace(folder, ""),
        "source": SOURCES[one["config_source"]],
        "sensitive": one["is_sensitive"],
        "read_only": one["read_only"],
        "type": one["config_type"],
        "synonyms": [
            (other["name"], other["value"] and other["value"].replace(folder, ""), SOURCES[other["source"]])
            for other in one["synonyms"]
        ],
    }


def answered(subject: Subject, case: Case) -> tuple[str, dict[str, Told]]:
    """The error's name and what is told then. What was refused has changed nothing; the rest is undone."""
    case = filled(case, subject.stores)
    names = [name for name, _, _ in case.changes]
    before = told(subject, names)
    code = subject.alter(case.resource, *case.changes)
    after = told(subject, names)
    if code != NONE:
        assert after == before, f"{subject.name}: {case.title} is {code}, and has changed something"
        return code, after
    assert subject.alter(case.resource, *((name, DELETE, None) for name in names)) == NONE
    assert told(subject, names) == before, f"{subject.name}: {case.title} cannot be undone"
    return code, after


def differing(theirs: dict[str, Told], ours: dict[str, Told]) -> dict[tuple[str, str], str]:
    """(option, fact) -> both answers, where they are not the same."""
    return {
        (name, fact): f"{resource or 'every broker'}: kafka {one.get(fact)!r}, eoslog {other.get(fact)!r}"
        for resource, options in theirs.items()
        for name, (one, other) in {
            name: (found or {}, ours[resource][name] or {}) for name, found in options.items()
        }.items()
        for fact in sorted(one.keys() | other.keys())
        if one.get(fact) != other.get(fact)
    }


def test_both_take_and_refuse_the_same(subjects: tuple[Subject, Subject]) -> None:
    codes: dict[str, tuple[str, str]] = {}
    facts: dict[tuple[str, str], str] = {}
    for case in CASES:
        (theirs, after), (ours, after_ours) = (answered(subject, case) for subject in subjects)
        codes[case.title] = theirs, ours
        if theirs == ours == NONE:
            facts |= differing(after, after_ours)
    refused = {title for title, (theirs, ours) in codes.items() if theirs == NONE != ours}
    taken = {title for title, (theirs, ours) in codes.items() if theirs != NONE == ours}
    others = {title: pair for title, pair in codes.items() if pair[0] != pair[1] and NONE not in pair}
    for title, (theirs, ours) in codes.items():
        if theirs != ours:
            print(f"{title}: kafka {theirs}, eoslog {ours}")
    for key, answers in facts.items():
        print(*key, answers)
    assert (refused, taken, others) == (set(REFUSED_HERE), set(TAKEN_HERE), {})
    assert facts.keys() == FACTS.keys()


def test_what_the_start_gave_is_told_alike(subjects: tuple[Subject, Subject]) -> None:
    names = sorted(settings(subjects[0].stores))
    theirs, ours = (told(subject, names) for subject in subjects)
    facts = differing(theirs, ours)
    for key, answers in facts.items():
        print(*key, answers)
    assert facts.keys() == START_FACTS.keys()


def test_a_whole_resource_is_replaced(subjects: tuple[Subject, Subject]) -> None:
    most, rate, key = (TLS + name for name in (*LIMITS, "ssl.keystore.location"))
    for subject in subjects:
        before = told(subject, [most, rate, key])
        assert subject.replace(OWN, {most: "5", key: subject.stores("missing")}) == "INVALID_REQUEST"
        assert subject.replace(EVERY, {key: subject.stores("renewed")}) == "INVALID_REQUEST"
        assert subject.alter(OWN, (most, SET, "5"), validate_only=True) == NONE
        assert subject.alter(OWN, (most, SET, "0"), validate_only=True) == "INVALID_REQUEST"
        assert told(subject, [most, rate, key]) == before
        assert subject.replace(OWN, {most: "5", rate: "6"}) == NONE
        assert subject.replace(OWN, {most: "7"}) == NONE
        found = subject.described(OWN, [most, rate])
        assert (found[most]["value"], rate in found) == ("7", False)
        assert subject.replace(OWN, {}) == NONE
        assert told(subject, [most, rate, key]) == before


def test_secrets_are_never_told(subjects: tuple[Subject, Subject]) -> None:
    for subject in subjects:
        for resource in (OWN, EVERY):
            assert SECRET not in repr(subject.described(resource))
            assert "carol-password" not in repr(subject.described(resource))


def test_a_key_store_changes_for_new_connections(subjects: tuple[Subject, Subject]) -> None:
    option = TLS + "ssl.keystore.location"
    for subject in subjects:
        with subject.tls() as old:
            before = serial(old)
            assert subject.alter(OWN, (option, SET, subject.stores("garbage"))) == "INVALID_REQUEST"
            with subject.tls() as same:
                assert serial(same) == before
            assert subject.alter(OWN, (option, SET, subject.stores("renewed"))) == NONE
            with subject.tls() as new:
                assert serial(new) != before and lives(new) and lives(old)
        subject.restart()
        with subject.tls() as again:
            assert serial(again) != before, f"{subject.name} has forgotten it"
        assert subject.alter(OWN, (option, DELETE, None)) == NONE
        with subject.tls() as last:
            assert serial(last) == before


def test_an_authority_that_is_removed_is_trusted_no_more(subjects: tuple[Subject, Subject]) -> None:
    option = TLS + "ssl.truststore.location"
    for subject in subjects:
        assert subject.lets_in("alice") and not subject.lets_in("bob")
        assert subject.alter(OWN, (option, SET, subject.stores("both"))) == NONE
        with subject.tls("bob") as old:
            assert subject.lets_in("alice")
            assert subject.alter(OWN, (option, SET, subject.stores("second"))) == NONE
            assert not subject.lets_in("alice") and subject.lets_in("bob")
            assert subject.alter(OWN, (option, DELETE, None)) == NONE
            assert subject.lets_in("alice") and not subject.lets_in("bob") and lives(old)


def test_a_listener_has_its_own_limit_of_connections(subjects: tuple[Subject, Subject]) -> None:
    option = TLS + "max.connections"
    for subject in subjects:
        for resource in (OWN, EVERY):
            with subject.tls() as first:
                assert subject.alter(resource, (option, SET, "1")) == NONE
                assert not subject.lets_in() and lives(first)
                assert subject.alter(resource, (option, DELETE, None)) == NONE
                assert subject.lets_in()
