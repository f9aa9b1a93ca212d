"""TLS and SASL of the client: what is refused at once, what is never shown, and a round trip over each."""

import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from eoslog.client.wire import retry
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import retrying
from eoslog.client.wire.sasl import authenticate
from eoslog.client.wire.security_settings import (
    PROTOCOLS,
    Flow,
    KerberosSettings,
    SaslSettings,
    TokenSettings,
)
from eoslog.client.wire.tokens import Tokens
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.errors import AuthenticationRefused, BrokerUnreachable, OptionError, RetriesExhausted
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.scram import ClientExchange
from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import ALICE, ALICE_SECRET, Issuer, Pki, free_ports, plain_jaas

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "open-sesame"
WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN = "com.sun.security.auth.module.Krb5LoginModule required"
KEYTAB = f'{LOGIN} useKeyTab=true keyTab="/k" principal="alice@REALM";'


def options(bootstrap: str = "b:9092", **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t"}
    return source_options(given | {f"kafka.{k.replace('__', '.')}": v for k, v in more.items()}, stream=False)


def jaas(module: str = PLAIN_LOGIN, **values: str) -> str:
    return f"{module} required " + " ".join(f'{name}="{value}"' for name, value in values.items()) + ";"


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"security__protocol": "tls"}, "choose one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
    ({"security__protocol": "SASL_PLAINTEXT"}, "kafka.sasl.mechanism is missing"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN", "sasl__username": "u",
      "sasl__password": SECRET, "sasl__password__file": "/p"},
     "has no effect, a password is given, too"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER", "sasl__password__file": "/p",
      "sasl__oauthbearer__token__callback": "a:b"}, "has no effect, OAUTHBEARER has no password"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "CRAM-MD5"}, "cannot be 'CRAM-MD5'"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "GSSAPI"}, "kerberos.service.name is missing"),
    ({"security__protocol": "SASL_SSL", "sasl__jaas__config": KEYTAB.replace(' principal="alice@REALM"', ""),
      "sasl__kerberos__service__name": "kafka"}, "needs keyTab and principal"),
    ({"security__protocol": "SASL_SSL", "sasl__jaas__config": KEYTAB.replace("use", 'serviceName="x" use'),
      "sasl__kerberos__service__name": "kafka"}, "serviceName is not"),
    ({"security__protocol": "SASL_SSL", "sasl__jaas__config": KEYTAB, "sasl__mechanism": "PLAIN"},
     "does not go"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN", "sasl__username": "u",
      "sasl__password": SECRET, "sasl__kerberos__service__name": "kafka"}, "no effect with PLAIN"),
    *(
        ({"security__protocol": "SASL_SSL", "sasl__kerberos__service__name": "kafka",
          "sasl__jaas__config": f"{LOGIN} {login};"}, says)
        for login, says in (
            ('keyTab="/k" principal="alice@REALM"', "keyTab is given without useKeyTab=true"),
            ('keyTab="/k" useTicketCache=true', "keyTab is given without useKeyTab=true"),
            ('useKeyTab=false keyTab="/k" principal="alice@REALM"', "keyTab is given without"),
            ('ticketCache="/c"', "ticketCache is given without useTicketCache=true"),
            ("useTicketCache=false", "neither useKeyTab=true nor useTicketCache=true"),
            ('principal="alice@REALM"', "neither useKeyTab=true nor useTicketCache=true"),
            ("", "neither useKeyTab=true nor useTicketCache=true"),
        )
    ),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN"}, "needs a user and a password"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN", "sasl__jaas__config": SECRET},
     "cannot be read"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "SCRAM-SHA-256",
      "sasl__jaas__config": jaas(username="u", password=SECRET)}, "does not go with"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER", "sasl__jaas__config": jaas(
        "o.OAuthBearerLoginModule", **{"clientSecret": SECRET, "ssl.truststore.location": "x"})},
     "token endpoint"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER"}, "one source of tokens"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER",
      "sasl__oauthbearer__token__endpoint__url": "http://x"}, "needs an id and a secret"),
    ({"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER",
      "sasl__oauthbearer__token__callback": "x"}, "module:function"),
    ({"sasl__mechanism": "PLAIN"}, "no effect with kafka.security.protocol=plaintext"),
    ({"ssl__key__password": SECRET}, "no effect with kafka.security.protocol=plaintext"),
    ({"security__protocol": "SSL", "sasl__username": "u"}, "no effect with kafka.security.protocol=ssl"),
    ({"security__protocol": "SSL", "ssl__truststore__type": "BCFKS"}, "one of PEM, JKS, PKCS12"),
    ({"security__protocol": "SSL", "ssl__keystore__key": SECRET}, "go together"),
    ({"security__protocol": "SSL", "ssl__enabled__protocols": "SSLv3"}, "TLSv1.2 or TLSv1.3"),
]  # fmt: skip


@pytest.mark.parametrize(("jaas", "settings"), [
    (KEYTAB, KerberosSettings("kafka", "alice@REALM", "/k")),
    (KEYTAB.replace('"/k"', '"file:/k"').replace("use", "storeKey=true debug=false use", 1),
     KerberosSettings("kafka", "alice@REALM", "/k")),
    (KEYTAB.replace("use", "useTicketCache=false use", 1), KerberosSettings("kafka", "alice@REALM", "/k")),
    (f"{LOGIN} useTicketCache=true ticketCache=/c principal=alice@REALM;",
     KerberosSettings("kafka", "alice@REALM", ticket_cache="/c")),
    (f"{LOGIN} useTicketCache=true principal=alice@REALM;", KerberosSettings("kafka", "alice@REALM")),
    (None, KerberosSettings("kafka")),
])  # fmt: skip
def test_kerberos_as_java_clients_write_it(jaas: str | None, settings: KerberosSettings) -> None:
    """The mechanism is Kafka's default, so people leave it out."""
    given = {"security__protocol": "SASL_PLAINTEXT", "sasl__kerberos__service__name": "kafka"}
    sasl = options(**given | ({"sasl__jaas__config": jaas} if jaas else {})).client.security.sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.kerberos) == ("GSSAPI", settings)


@pytest.mark.parametrize(("given", "says"), REFUSED)
def test_what_does_not_fit_is_refused_without_its_secrets(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as raised:
        options(**given)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("protocol", [p for p in PROTOCOLS if p.startswith("sasl")])
@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_a_secret_is_in_no_text_but_travels(protocol: str, mechanism: str) -> None:
    module = (
        PLAIN_LOGIN if mechanism == "PLAIN" else "org.apache.kafka.common.security.scram.ScramLoginModule"
    )
    found = options(
        security__protocol=protocol.upper(),
        sasl__mechanism=mechanism,
        sasl__jaas__config=jaas(module, username="alice", password=SECRET),
    )
    assert SECRET not in repr(found) and SECRET not in str(found.client) and "alice" in repr(found)
    sasl = pickle.loads(pickle.dumps(found)).client.security.sasl
    assert (sasl.mechanism, sasl.user, sasl.password) == (mechanism, "alice", SECRET)
    short = options(
        security__protocol=protocol,
        sasl__mechanism=mechanism.lower(),
        sasl__username="alice",
        sasl__password=SECRET,
    )
    assert short.client == found.client and hash(short.client) == hash(found.client)


def test_a_delegation_token_is_said_to_be_one() -> None:
    """As Java's client says it: test_token_endpoint.py asks Apache Kafka."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    for delegated, said in ((True, b"n,,n=id,r=nonce,tokenauth=true"), (False, b"n,,n=id,r=nonce")):
        login = jaas(module, username="id", password=SECRET, tokenauth=str(delegated).lower())
        found = options(
            security__protocol="SASL_SSL", sasl__mechanism="SCRAM-SHA-256", sasl__jaas__config=login
        ).client.security.sasl
        assert found is not None and found.delegated is delegated
        exchange = ClientExchange("SCRAM-SHA-256", "id", SECRET, "nonce", delegated=found.delegated)
        assert exchange.first() == said


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """PEM files: ours, the broker's, one of another authority."""
    directory = tmp_path_factory.mktemp("pem")
    pems = {
        "ca": authority.cert_pem,
        "other": trustme.CA().cert_pem,
        "broker": authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem,
        "client": authority.issue_cert(
            "alice@example.org", common_name="alice"
        ).private_key_and_cert_chain_pem,
    }
    for name, pem in pems.items():
        pem.write_to_path(str(directory / name))
    return {name: str(directory / name) for name in pems}


@pytest.fixture(scope="module")
def tls_broker(files: dict[str, str]) -> Iterator[EmbeddedBroker]:
    config = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": files["broker"]}
    with EmbeddedBroker(config=config) as broker:
        yield broker


def topics(found: SourceOptions) -> list[str]:
    with Cluster(found.client) as cluster:
        return sorted(cluster.metadata(None).topics)


def tls(broker: EmbeddedBroker, ca: str, **more: str) -> SourceOptions:
    bootstrap = more.pop("bootstrap", broker.bootstrap)
    return options(
        bootstrap, security__protocol="SSL", ssl__truststore__location=ca, request__timeout__ms="6000", **more
    )


def test_stores_by_librdkafkas_names_too(files: dict[str, str]) -> None:
    found = options(
        security__protocol="SSL", ssl__ca__location=files["ca"], ssl__certificate__location=files["client"],
        ssl__key__location=files["client"], ssl__keystore__type="pem",
    )  # fmt: skip
    tls = found.client.security.tls
    assert tls is not None
    assert (tls.ca_file, tls.certificate_file) == (files["ca"], files["client"])
    assert tls.key_file == files["client"]


def test_tls(tls_broker: EmbeddedBroker, files: dict[str, str]) -> None:
    assert topics(tls(tls_broker, files["ca"])) == []
    text = Path(files["ca"]).read_text()
    found = options(tls_broker.bootstrap, security__protocol="SSL", ssl__truststore__certificates=text)
    assert topics(found) == []


def test_plain_text_on_a_port_of_tls_is_guessed(tls_broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerUnreachable, match=r"TLS.*set kafka\.security\.protocol to SSL or SASL_SSL"):
        topics(options(tls_broker.bootstrap, request__timeout__ms="2000"))


def test_a_peer_that_answers_in_tls_is_named() -> None:
    """As Java's brokers may: an alert, and the connection stays."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with suppress(OSError):  # the end
                while True:
                    listener.accept()[0].sendall(bytes.fromhex("15030300020250"))

        threading.Thread(target=run, daemon=True).start()
        with pytest.raises(BrokerUnreachable, match="answers in TLS: set kafka"):
            topics(options(f"127.0.0.1:{listener.getsockname()[1]}", request__timeout__ms="500"))


def test_a_certificate_of_an_unknown_authority_is_refused_at_once(
    tls_broker: EmbeddedBroker, files: dict[str, str]
) -> None:
    with pytest.raises(AuthenticationRefused, match=r"not trusted.*truststore"):
        topics(tls(tls_broker, files["other"]))


def test_a_certificate_for_another_name_is_refused_unless_told(
    tls_broker: EmbeddedBroker, files: dict[str, str]
) -> None:
    elsewhere = f"127.0.0.2:{tls_broker.port}"
    with EmbeddedBroker(
        config={"listeners": "SSL://127.0.0.2:0", "ssl.keystore.location": files["broker"]}
    ) as other:
        elsewhere = f"127.0.0.2:{other.port}"
        with pytest.raises(AuthenticationRefused, match=r"not valid for|mismatch"):
            topics(tls(other, files["ca"], bootstrap=elsewhere))
        unchecked = {"ssl__endpoint__identification__algorithm": "none"}
        assert topics(tls(other, files["ca"], bootstrap=elsewhere, **unchecked)) == []


def test_plain_and_tls_do_not_meet(
    broker: EmbeddedBroker, tls_broker: EmbeddedBroker, files: dict[str, str]
) -> None:
    with pytest.raises(BrokerUnreachable, match=r"does this port speak TLS \(kafka\.security\.protocol\)"):
        topics(tls(broker, files["ca"]))
    with pytest.raises(BrokerUnreachable):
        topics(options(tls_broker.bootstrap, request__timeout__ms="1500"))


@pytest.fixture(scope="module")
def ports(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Those of a broker that has a listener of each protocol."""
    found = dict(zip(map(str.upper, PROTOCOLS), free_ports(len(PROTOCOLS)), strict=True))
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text(f"alice={SECRET}\n")
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in found.items()),
        "ssl.keystore.location": files["broker"],
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.users.file": str(users),
    }
    with EmbeddedBroker(config=config):
        yield found


@pytest.mark.parametrize("theirs", PROTOCOLS)
@pytest.mark.parametrize("ours", PROTOCOLS)
def test_a_wrong_protocol_is_told_soon(
    ports: dict[str, int], files: dict[str, str], ours: str, theirs: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert retry.HINT_S == 3.0
    monkeypatch.setattr(retry, "HINT_S", 0.2)
    more = {"ssl__truststore__location": files["ca"]} if "ssl" in ours else {}
    if ours.startswith("sasl"):
        more |= {"sasl__mechanism": "PLAIN", "sasl__username": "alice", "sasl__password": SECRET}
    given = options(
        f"127.0.0.1:{ports[theirs.upper()]}", security__protocol=ours, request__timeout__ms="1500",
        default__api__timeout__ms="1500", **more,
    )  # fmt: skip
    if ours == theirs:
        assert topics(given) == []
        assert not caplog.records
        return
    with (
        Cluster(given.client) as cluster,
        pytest.raises((BrokerUnreachable, AuthenticationRefused, RetriesExhausted)) as raised,
    ):
        retrying(cluster, "Metadata", lambda: cluster.metadata([]))
    assert "kafka.security.protocol" in str(raised.value)
    warned = [one.getMessage() for one in caplog.records if "It is tried again for" in one.getMessage()]
    assert len(warned) == (not isinstance(raised.value, AuthenticationRefused)), "once, or it is over"
    assert all("kafka.security.protocol" in one for one in warned)


def test_a_file_that_is_not_there_names_its_option(tls_broker: EmbeddedBroker) -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\.truststore\.location.*No such file"):
        topics(tls(tls_broker, "/nowhere/ca.pem"))


def test_a_clients_certificate(files: dict[str, str]) -> None:
    config = {
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": files["broker"],
        "ssl.truststore.location": files["ca"], "ssl.client.auth": "required",
    }  # fmt: skip
    with EmbeddedBroker(config=config) as broker:
        assert topics(tls(broker, files["ca"], ssl__keystore__location=files["client"])) == []
        pem = Path(files["client"]).read_text()
        key, rest = pem[: pem.index("-----BEGIN CERT")], pem[pem.index("-----BEGIN CERT") :]
        texts = {"ssl__keystore__certificate__chain": rest, "ssl__keystore__key": key}
        assert topics(tls(broker, files["ca"], **texts)) == []
        with pytest.raises((AuthenticationRefused, BrokerUnreachable)):
            topics(tls(broker, files["ca"]))


def test_defaults_are_plain() -> None:
    assert ClientConfig((("a", 1),)).security.tls is None is ClientConfig((("a", 1),)).security.sasl


# SASL, on a broker that offers all mechanisms

USERS = {ALICE: ALICE_SECRET}


def scram_jaas() -> str:
    return plain_jaas(**USERS).replace("plain.PlainLoginModule", "scram.ScramLoginModule")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("jwks") / "keys.json")


@pytest.fixture(scope="module")
def sasl_broker(issuer: Issuer) -> Iterator[EmbeddedBroker]:
    own = "listener.name.sasl_plaintext."
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join((*WITH_PASSWORD, "OAUTHBEARER")),
        f"{own}plain.sasl.jaas.config": plain_jaas(**USERS),
        f"{own}scram-sha-256.sasl.jaas.config": scram_jaas(),
        f"{own}scram-sha-512.sasl.jaas.config": scram_jaas(),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "connections.max.reauth.ms": "1500",
    }
    with EmbeddedBroker(config=config) as broker:
        yield broker


def login(broker: EmbeddedBroker, mechanism: str, **more: str) -> SourceOptions:
    return options(
        broker.bootstrap, security__protocol="SASL_PLAINTEXT", sasl__mechanism=mechanism,
        request__timeout__ms="60000", **more,
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_a_password(sasl_broker: EmbeddedBroker, mechanism: str) -> None:
    assert topics(login(sasl_broker, mechanism, sasl__username=ALICE, sasl__password=ALICE_SECRET)) == []


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
@pytest.mark.parametrize("user", [ALICE, "nobody"])
def test_a_wrong_password_is_refused_at_once_and_not_shown(
    sasl_broker: EmbeddedBroker, mechanism: str, user: str
) -> None:
    started = time.monotonic()
    with pytest.raises(
        AuthenticationRefused, match=f"{mechanism} as {user}.*check the credentials"
    ) as raised:
        topics(login(sasl_broker, mechanism, sasl__username=user, sasl__password=SECRET))
    assert SECRET not in str(raised.value) and time.monotonic() - started < 40, "no time-out is waited for"


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_a_password_in_a_file_is_read_for_each_login(
    sasl_broker: EmbeddedBroker, mechanism: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    given = login(sasl_broker, mechanism, sasl__username=ALICE, sasl__password__file=str(file))
    with pytest.raises(AuthenticationRefused, match=r"password cannot be read: No such file"):
        topics(given)
    file.write_text(f"{ALICE_SECRET}\n")
    assert topics(given) == topics(given)
    file.write_text("of-yesterday")
    change = threading.Timer(1.0, lambda: file.write_text(ALICE_SECRET))
    change.start()
    assert topics(given) is not None, "it is waited for another one"
    change.join()


def test_a_password_in_a_file_that_stays_wrong_is_tried_once(
    sasl_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text(f"not-{ALICE_SECRET}")
    given = login(sasl_broker, "PLAIN", sasl__username=ALICE, sasl__password__file=str(file))
    tries: list[float] = []
    real = BrokerConnection._authenticate

    def counted(connection: BrokerConnection, deadline: float) -> None:
        tries.append(deadline)
        real(connection, deadline)

    monkeypatch.setattr(BrokerConnection, "_authenticate", counted)
    with (
        pytest.raises(AuthenticationRefused, match=r"starts with the right ones goes on where") as raised,
        Cluster(replace(given.client, request_timeout_ms=1500)) as cluster,
    ):
        cluster.metadata([])
    assert len(tries) == 1 and ALICE_SECRET not in str(raised.value)


def test_a_mechanism_that_is_not_offered() -> None:
    own = "listener.name.sasl_plaintext."
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{own}plain.sasl.jaas.config": plain_jaas(**USERS),
    }
    with (
        EmbeddedBroker(config=config) as broker,
        pytest.raises(
            AuthenticationRefused, match=r"does not accept kafka\.sasl\.mechanism=SCRAM.*offers PLAIN"
        ),
    ):
        topics(login(broker, "SCRAM-SHA-256", sasl__username=ALICE, sasl__password=ALICE_SECRET))


def test_a_session_is_renewed_before_it_ends(sasl_broker: EmbeddedBroker) -> None:
    found = login(sasl_broker, "SCRAM-SHA-512", sasl__username=ALICE, sasl__password=ALICE_SECRET)
    with closing(BrokerConnection(sasl_broker.host, sasl_broker.port, found.client)) as connection:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            connection.call(APIS[ApiKey.METADATA], {"topics": []}, max_version=9)
            time.sleep(0.1)


_now: list[Issuer] = []


def callback() -> tuple[str, float]:
    return _now[0].token(seconds=60), 60.0


def stale() -> str:
    return _now[0].token(seconds=-60)


def failing() -> str:
    raise RuntimeError(SECRET)


def bearer(broker: EmbeddedBroker, function: str) -> SourceOptions:
    return login(broker, "OAUTHBEARER", sasl__oauthbearer__token__callback=f"{__name__}:{function}")


def test_a_token_by_callback(sasl_broker: EmbeddedBroker, issuer: Issuer) -> None:
    _now[:] = [issuer]
    assert topics(bearer(sasl_broker, "callback")) == []


@pytest.mark.parametrize(
    ("function", "says"), [("stale", "the token is not valid: Expired"), ("failing", "failed: RuntimeError")]
)
def test_no_good_token(sasl_broker: EmbeddedBroker, issuer: Issuer, function: str, says: str) -> None:
    _now[:] = [issuer]
    with pytest.raises(AuthenticationRefused, match=says) as raised:
        topics(bearer(sasl_broker, function))
    assert SECRET not in str(raised.value)


_result: list[Any] = []


def whatever() -> Any:
    return _result[0]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (lambda token: None, "no token but a value of type NoneType"),
        (lambda token: "", "no token but an empty text"),
        (lambda token: {"token": token}, "no token but a value of type dict"),
        (lambda token: (token, None), "a time of type NoneType"),
        (lambda token: (token, "60"), "a time of type str"),
        (lambda token: (token, 0), r"a time in the past \(0 s\)"),
        (lambda token: (token, -60), r"a time in the past \(-60 s\)"),
        (
            lambda token: (token, time.time() + 60),
            r"\d+ s, which is over a year .a time since 1970, or milliseconds",
        ),
        (lambda token: (token, (time.time() + 60) * 1000), r"\d+ s, which is over a year"),
        (lambda token: (token, 60_000), r"60000 s for a token that ends in \d+ s \(milliseconds\?\)"),
    ],
)
def test_a_result_of_the_callback_that_cannot_be_right(
    issuer: Issuer, result: Callable[[str], Any], says: str
) -> None:
    token = issuer.token(seconds=60)
    _result[:] = [result(token)]
    settings = TokenSettings(Flow.CALLBACK, callback=f"{__name__}:whatever")
    with pytest.raises(AuthenticationRefused, match=f"whatever returned {says}.*make it return") as raised:
        Tokens().token(settings)
    assert token not in str(raised.value)


def test_a_token_is_renewed_before_it_ends() -> None:
    """Minutes pass on a clock of the test's own."""
    settings, clock = TokenSettings(Flow.CALLBACK, callback=f"{__name__}:whatever"), [0.0]
    tokens = Tokens(lambda: clock[0])
    for second, current, expected in (
        (0, "first", "first"),
        (470, "second", "first"),
        (490, "second", "second"),
    ):
        clock[0], _result[:] = second, [(current, 600)]
        assert tokens.token(settings) == expected
    clock[0], _result[:] = 500, ["for once"]
    assert tokens.token(settings) == "second"
    clock[0] = 1_000
    assert tokens.token(settings) == "for once"
    _result[:] = ["for once again"]
    assert tokens.token(settings) == "for once again", "nothing says how long it is good"


def test_kerberos_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "eoslog.client.wire.kerberos", raising=False)
    sasl = SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka"))
    with pytest.raises(OptionError, match=r"pip install 'eoslog\[kerberos\]'"):
        authenticate(lambda api, body: {"error_code": 0}, sasl, "b")  # type: ignore[arg-type]


# -- without the extras' libraries ---------------------------------------------------------------
# Without any of the extras' libraries everything else works: TLS with PEM, passwords, tokens.

LIBRARIES = ("cryptography", "botocore", "jwt", "fastavro", "aiohttp", "prometheus_client")
PROGRAM = """
import sys
for library in {libraries!r}:
    sys.modules[library] = None  # an import of it fails as if it were not installed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.options.source_options import source_options
for options in {options!r}:
    with Cluster(source_options(options, stream=False).client) as cluster:
        print(sorted(cluster.metadata(None).topics))
"""


def test_logins_without_the_extras(tmp_path: Path) -> None:
    pki, issuer = Pki(tmp_path), Issuer(tmp_path / "keys.json")
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0", "ssl.keystore.location": str(pki.broker),
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain_jaas(**{ALICE: ALICE_SECRET}),
        "ssl.truststore.location": str(pki.ca), "ssl.client.auth": "required",
    }  # fmt: skip
    token = tmp_path / "token"
    token.write_text(issuer.token(seconds=600))
    with EmbeddedBroker(config=config) as broker:
        common = {
            "kafka.bootstrap.servers": broker.bootstrap, "kafka.security.protocol": "SASL_SSL",
            "subscribe": "t",
            "kafka.ssl.truststore.location": str(pki.ca), "kafka.ssl.keystore.location": str(pki.client),
        }  # fmt: skip
        plain = {
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": ALICE,
            "kafka.sasl.password": ALICE_SECRET,
        }
        bearer = {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
        program = PROGRAM.format(libraries=LIBRARIES, options=[common | plain, common | bearer])
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n[]\n", done.stdout + done.stderr
