"""JKS and PKCS12 stores made by keytool: logins with them; what is wrong is said before a connection."""

import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eoslog.client.wire import tls as made
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.options.source_options import source_options
from eoslog.errors import AuthenticationRefused, BrokerUnreachable, OptionError
from eoslog.testing import EmbeddedBroker
from tests.kit.java_stores import KEY_WORD, WORD, Stores
from tests.scenarios.apache_kafka import ApacheKafka

KINDS = ("JKS", "PKCS12")
Options = dict[str, str]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    assert shutil.which("keytool"), "Java's keytool makes the stores: make setup installs Java"
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def strict(stores: Stores) -> Iterator[EmbeddedBroker]:
    """A broker that wants a certificate."""
    config = {
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": stores.pem("broker"),
        "ssl.truststore.location": str(stores.ca), "ssl.client.auth": "required",
    }  # fmt: skip
    with EmbeddedBroker(config=config) as broker:
        yield broker


def given(stores: Stores, kind: str, trust: str | None = None, **more: str | None) -> Options:
    """What Java's clients would be given; `more` in the place of some of it, None to leave it out."""
    named: dict[str, str | None] = {
        "security.protocol": "SSL",
        "ssl.truststore.location": stores.trust[trust or kind],
        "ssl.truststore.password": WORD,
        "ssl.keystore.location": stores.keys[kind],
        "ssl.keystore.password": WORD,
        "ssl.key.password": KEY_WORD if kind == "JKS" else None,
        "request.timeout.ms": "20000",
    } | {name.replace("__", "."): value for name, value in more.items()}
    return {f"kafka.{name}": value for name, value in named.items() if value is not None}


def topics(bootstrap: str, options: Options) -> list[str]:
    found = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "t"} | options, stream=False)
    assert WORD not in repr(found) and KEY_WORD not in repr(found)
    with Cluster(found.client) as cluster:
        return sorted(cluster.metadata(None).topics)


@pytest.mark.parametrize("trust", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_login_with_a_store(strict: EmbeddedBroker, stores: Stores, kind: str, trust: str) -> None:
    assert topics(strict.bootstrap, given(stores, kind, trust)) == []


@pytest.mark.parametrize("said", ["JKS", "PKCS12", "pkcs12"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_java_type_means_both_as_in_java(
    strict: EmbeddedBroker, stores: Stores, kind: str, said: str
) -> None:
    options = given(stores, kind, ssl__keystore__type=said, ssl__truststore__type=said)
    assert topics(strict.bootstrap, options) == []


def test_stores_and_pem_together(strict: EmbeddedBroker, stores: Stores) -> None:
    pem = given(stores, "JKS", ssl__truststore__location=str(stores.ca), ssl__truststore__password=None)
    assert topics(strict.bootstrap, pem | {"kafka.ssl.truststore.type": "PEM"}) == []


def test_without_a_key_the_broker_refuses(strict: EmbeddedBroker, stores: Stores) -> None:
    none = dict.fromkeys(("ssl__keystore__location", "ssl__keystore__password", "ssl__key__password"))
    with pytest.raises((AuthenticationRefused, BrokerUnreachable)):
        topics(strict.bootstrap, given(stores, "JKS", **none) | {"kafka.request.timeout.ms": "3000"})


def test_a_trust_store_of_jks_opens_without_its_password(strict: EmbeddedBroker, stores: Stores) -> None:
    assert topics(strict.bootstrap, given(stores, "JKS", ssl__truststore__password=None)) == []


def test_a_trust_store_of_pkcs12_does_not(stores: Stores) -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\.truststore\.password is missing"):
        topics("127.0.0.1:9", given(stores, "PKCS12", ssl__truststore__password=None))


def test_a_broker_without_an_authority(stores: Stores) -> None:
    """Its own certificate is in the trust store."""
    store, trust = stores.self_signed("broker")
    pem = stores.folder / "self-signed-key.pem"
    command = ["openssl", "pkcs12", "-in", store, "-passin", f"pass:{WORD}", "-nodes", "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    with EmbeddedBroker(
        config={"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(pem)}
    ) as broker:
        assert topics(broker.bootstrap, given(stores, "JKS", ssl__truststore__location=trust)) == []
        with pytest.raises(AuthenticationRefused, match="not trusted"):
            topics(broker.bootstrap, given(stores, "JKS"))


def cut(stores: Stores, kind: str) -> Options:
    short = stores.folder / f"short.{kind.lower()}"
    short.write_bytes(Path(stores.keys[kind]).read_bytes()[:-40])
    return given(stores, kind, ssl__keystore__location=str(short))


Make = Callable[[Stores, str], Options]
KEYS, TRUST = r"option kafka\.ssl\.keystore\.", r"option kafka\.ssl\.truststore\."
WRONG: dict[str, tuple[Make, str]] = {
    "wrong password": (
        lambda stores, kind: given(stores, kind, ssl__keystore__password="open-sesame"),
        KEYS + r"password does not open .*client\.\w+: the password is wrong",
    ),
    "wrong password of the trust store": (
        lambda stores, kind: given(stores, kind, ssl__truststore__password="open-sesame"),
        TRUST + "password does not open .*trust",
    ),
    "no password": (
        lambda stores, kind: given(stores, kind, ssl__keystore__password=None),
        KEYS + "password is missing",
    ),
    "wrong key password": (
        lambda stores, kind: given(stores, kind, ssl__key__password="open-sesame"),
        r"option kafka\.ssl\.key\.password",
    ),
    "said to be PEM": (
        lambda stores, kind: given(stores, kind, ssl__keystore__type="PEM"),
        KEYS + r"type: .* is (JKS|PKCS12), not PEM: correct the type",
    ),
    "damaged": (cut, KEYS + "password does not open .*short.*damaged"),
    "no key": (
        lambda stores, kind: given(stores, kind, ssl__keystore__location=stores.trust[kind]),
        KEYS + "location: .* has no private key",
    ),
    "two keys": (
        lambda stores, kind: given(stores, kind, ssl__keystore__location=stores.two_keys(kind)),
        KEYS + "location: .* has 2 private keys",
    ),
    "PEM said to be of Java": (
        lambda stores, kind: given(
            stores, kind, ssl__truststore__location=str(stores.ca), ssl__truststore__type=kind
        ),
        TRUST + r"type: .*ca\.pem is PEM, not (JKS|PKCS12): correct the type",
    ),
    "PEM with a store's password": (
        lambda stores, kind: given(stores, kind, ssl__truststore__location=str(stores.ca)),
        TRUST + r"password: .*ca\.pem is PEM, which has no store password",
    ),
    "something else": (
        lambda stores, kind: given(stores, kind, ssl__truststore__location=__file__),
        TRUST + "type: .* is neither PEM, JKS nor PKCS12",
    ),
    "not there": (
        lambda stores, kind: given(stores, kind, ssl__keystore__location="/nowhere/client.jks"),
        KEYS + "location cannot be used: .*No such file.*every machine",
    ),
    "expired key": (
        lambda stores, kind: given(stores, kind, ssl__keystore__location=stores.expired_keys(kind)),
        KEYS + "location: the certificate of the key .late-.* in .* expired on 2020-01-02: give a renewed",
    ),
    "expired trust": (
        lambda stores, kind: given(stores, kind, ssl__truststore__location=stores.expired_trust(kind)),
        TRUST + "location: all certificates .* have expired, the last on 2020-01-02",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_before_a_connection(stores: Stores, name: str, kind: str) -> None:
    make, says = WRONG[name]
    options = make(stores, kind)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        with pytest.raises(OptionError, match=says) as raised:
            topics(f"127.0.0.1:{nobody.getsockname()[1]}", options)
        nobody.settimeout(0)
        with pytest.raises(BlockingIOError):
            nobody.accept()
    assert not {WORD, KEY_WORD, "open-sesame"} & set(str(raised.value).replace("'", " ").split())


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"ssl__truststore__type": "BCFKS"}, "cannot be 'BCFKS': choose one of PEM, JKS, PKCS12"),
        ({"ssl__keystore__location": None}, r"kafka\.ssl\.keystore\.password has no effect without"),
        ({"ssl__truststore__location": None}, r"kafka\.ssl\.truststore\.password has no effect without"),
    ],
)
def test_what_does_not_fit_is_said_when_options_are_read(
    stores: Stores, more: dict[str, str | None], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        source_options(
            {"kafka.bootstrap.servers": "b:1", "subscribe": "t"} | given(stores, "JKS", **more), stream=False
        )


def test_without_the_library_the_error_names_the_extra(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    made.context.cache_clear()
    with pytest.raises(
        OptionError, match=r"pip install 'eoslog\[keystores\]', for a query also where its tasks run"
    ):
        topics("127.0.0.1:9", given(stores, "JKS"))
    pem = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": str(stores.ca)}
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"} | pem
    tls = source_options(options, stream=False).client.security.tls
    assert tls is not None and made.context(tls)


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_key_lies_nowhere_on_a_disk(stores: Stores, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory; where a system has no such files, in a private file that is gone at once."""
    seen: list[tuple[str, os.stat_result]] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, path: str, *more: Any) -> None:
        seen.append((path, os.stat(path)))
        load(self, path, *more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    monkeypatch.setattr(sys, "platform", system)
    found = source_options(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "t"} | given(stores, "PKCS12"), stream=False
    )
    tls = found.client.security.tls
    assert tls is not None
    made.context.cache_clear()
    made.context(tls)
    [(path, status)] = seen
    assert stat.S_IMODE(status.st_mode) & 0o077 == 0 or status.st_nlink == 0
    assert status.st_nlink == (0 if system == "linux" else 1)
    assert not os.path.exists(path)


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_login_at_apache_kafka_with_its_own_stores(stores: Stores) -> None:
    """Both sides have stores of keytool, and the broker wants a certificate of the authority."""
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": stores.keys["PKCS12"], "ssl.keystore.password": WORD,
        "ssl.key.password": WORD,
        "ssl.truststore.location": stores.trust["JKS"], "ssl.truststore.password": WORD,
        "ssl.client.auth": "required",
    }  # fmt: skip
    nothing = dict.fromkeys(("ssl__keystore__location", "ssl__keystore__password", "ssl__key__password"))
    with ApacheKafka(config) as kafka:
        for kind in KINDS:
            assert topics(kafka.bootstrap, given(stores, kind)) == []
        with pytest.raises((AuthenticationRefused, BrokerUnreachable)):
            topics(kafka.bootstrap, given(stores, "JKS", **nothing))
