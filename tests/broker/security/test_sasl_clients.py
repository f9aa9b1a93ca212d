"""Stock clients log in by every mechanism, with TLS and without; what is wrong is refused."""

import asyncio
import base64
import hmac
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eoslog.protocol.apis import ApiKey
from eoslog.testing import BrokerFailed, EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import (
    ADMIN,
    ALICE,
    ALICE_SECRET,
    SECRET,
    Issuer,
    Pki,
    ScramClient,
    free_ports,
    plain_jaas,
)

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Site:
    """A broker with all kinds of listeners, and what a client needs to log in."""

    def __init__(self, directory: Path) -> None:
        self.pki, self.issuer = Pki(directory), Issuer(directory / "jwks.json")
        self.plain_port, self.tls_port = free_ports(2)
        users = directory / "users"
        users.write_text(f"# those who are there from the start\n{ADMIN}={SECRET}\n")
        jaas = plain_jaas(**{ADMIN: SECRET, ALICE: ALICE_SECRET})
        self.config = {
            "listeners": "PLAINTEXT://127.0.0.1:0"
            f",SASL_PLAINTEXT://127.0.0.1:{self.plain_port},SASL_SSL://127.0.0.1:{self.tls_port}",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
            "sasl.users.file": str(users),
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.url,
            "sasl.oauthbearer.expected.audience": "eoslog,kafka",
            "ssl.keystore.location": str(self.pki.broker),
            "connection.failed.authentication.delay.ms": "50",
        }

    def bootstrap(self, tls: bool) -> str:
        return f"127.0.0.1:{self.tls_port if tls else self.plain_port}"

    def token(self, seconds: float = 600, **claims: Any) -> str:
        return self.issuer.token(ALICE, seconds, **({"aud": "kafka"} | claims))

    def confluent(
        self, mechanism: str, tls: bool, user: str = ALICE, password: str = ALICE_SECRET
    ) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap(tls),
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "ssl.ca.location": str(self.pki.ca),
            "socket.timeout.ms": 5000,
            "message.timeout.ms": 8000,
        }
        if mechanism == "OAUTHBEARER":
            config["oauth_cb"] = lambda _: (self.token(), time.time() + 600)
        else:
            config |= {"sasl.username": user, "sasl.password": password}
        return config


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("security"))


@pytest.fixture(scope="module")
def broker(site: Site) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=site.config, log_level="info") as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        upsertions = [
            UserScramCredentialUpsertion(
                ALICE, ScramCredentialInfo(mechanism, 4096), ALICE_SECRET.encode(), b"a salt of 16 byt"
            )
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for done in admin.alter_user_scram_credentials([*upsertions]).values():
            done.result(10)
        yield started


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(broker: EmbeddedBroker, site: Site, mechanism: str, tls: bool) -> None:
    producer = Producer(site.confluent(mechanism, tls))
    failures: list[Any] = []
    producer.produce("t", mechanism.encode(), on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(10) == 0
    assert failures == [None]


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: EmbeddedBroker, site: Site, mechanism: str, tls: bool) -> None:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return site.token()

    config: dict[str, Any] = {"sasl_plain_username": ALICE, "sasl_plain_password": ALICE_SECRET}
    if mechanism == "OAUTHBEARER":
        config = {"sasl_oauth_token_provider": Provider()}
    producer = KafkaProducer(
        bootstrap_servers=site.bootstrap(tls), sasl_mechanism=mechanism,
        security_protocol="SASL_SSL" if tls else "SASL_PLAINTEXT", ssl_cafile=str(site.pki.ca), **config,
    )  # fmt: skip
    try:
        assert producer.send("t", mechanism.encode()).get(10).offset >= 0
    finally:
        producer.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: EmbeddedBroker, site: Site, mechanism: str, tls: bool) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return site.token()

    async def send() -> None:
        config: dict[str, Any] = {"sasl_plain_username": ALICE, "sasl_plain_password": ALICE_SECRET}
        if mechanism == "OAUTHBEARER":
            config = {"sasl_oauth_token_provider": Provider()}
        producer = AIOKafkaProducer(
            bootstrap_servers=site.bootstrap(tls), sasl_mechanism=mechanism,
            security_protocol="SASL_SSL" if tls else "SASL_PLAINTEXT",
            ssl_context=ssl.create_default_context(cafile=str(site.pki.ca)), **config,
        )  # fmt: skip
        await producer.start()
        try:
            assert (await producer.send_and_wait("t", mechanism.encode())).offset >= 0
        finally:
            await producer.stop()

    asyncio.run(send())


# Refusals


def refused(config: dict[str, Any]) -> set[int]:
    """The codes of the errors that a producer tells until it knows that it cannot log in."""
    codes: set[int] = set()
    producer = Producer(config | {"error_cb": lambda error: codes.add(error.code()), "log_level": 0})
    deadline = time.monotonic() + 10
    while KafkaError._AUTHENTICATION not in codes and time.monotonic() < deadline:
        producer.poll(0.1)
    return codes


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.parametrize("user", [ALICE, "nobody"])
def test_a_wrong_password_is_refused(broker: EmbeddedBroker, site: Site, mechanism: str, user: str) -> None:
    wrong = "not-the-password-5Tv"
    assert KafkaError._AUTHENTICATION in refused(site.confluent(mechanism, False, user, wrong))


@pytest.mark.parametrize(
    "bad",
    ["expired", "audience", "signature", "nothing"],
)
def test_a_bad_token_is_refused(broker: EmbeddedBroker, site: Site, tmp_path: Path, bad: str) -> None:
    stranger = Issuer(tmp_path / "other.json")
    tokens: dict[str, Callable[[], str]] = {
        "expired": lambda: site.token(-100),
        "audience": lambda: site.token(aud="somebody else"),
        "signature": lambda: stranger.token(ALICE, aud="kafka"),
        "nothing": lambda: "e30.e30.",
    }
    token = tokens[bad]()
    config = site.confluent("OAUTHBEARER", False) | {"oauth_cb": lambda _: (token, time.time() + 600)}
    assert KafkaError._AUTHENTICATION in refused(config)


def login(wire: Wire, mechanism: str, *tokens: bytes) -> dict[str, Any]:
    answer = wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
    assert answer["error_code"] == 0
    for token in tokens:
        answer = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)
    return answer


def plain(user: str = ALICE, password: str = ALICE_SECRET) -> bytes:
    return f"\0{user}\0{password}".encode()


@pytest.fixture
def raw(broker: EmbeddedBroker, site: Site) -> Iterator[Wire]:
    with Wire("127.0.0.1", site.plain_port) as opened:
        yield opened


def closed(wire: Wire) -> bool:
    try:
        return wire.socket.recv(1) == b""
    except ConnectionError:
        return True


def test_an_unknown_mechanism_is_told_the_known_ones(raw: Wire) -> None:
    answer = raw.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="CRAM-MD5")
    assert (answer["error_code"], answer["mechanisms"]) == (33, MECHANISMS)
    assert closed(raw)


def test_nothing_is_served_before_authentication(raw: Wire) -> None:
    assert raw.call(ApiKey.API_VERSIONS, 2)["error_code"] == 0
    raw.send(ApiKey.METADATA, 9, topics=[])
    assert closed(raw)


def test_nothing_is_served_between_handshake_and_token(raw: Wire) -> None:
    assert raw.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")["error_code"] == 0
    raw.send(ApiKey.METADATA, 9, topics=[])
    assert closed(raw)


def test_a_request_pipelined_behind_a_failure_is_not_served(raw: Wire) -> None:
    raw.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    raw.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain(password="wrong"))
    raw.send(ApiKey.METADATA, 9, topics=[])
    assert raw.receive(ApiKey.SASL_AUTHENTICATE, 2)["error_code"] == 58
    assert closed(raw)


def test_a_token_without_a_handshake(raw: Wire) -> None:
    assert raw.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain())["error_code"] == 34


def test_sasl_where_there_is_none(broker: EmbeddedBroker) -> None:
    with Wire(broker.host, broker.port) as wire:
        assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")["error_code"] == 34
        assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain())["error_code"] == 34
        assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"]


def test_clients_are_told_the_listener_they_came_by(raw: Wire, site: Site) -> None:
    assert login(raw, "PLAIN", plain())["error_code"] == 0
    (node,) = raw.call(ApiKey.METADATA, 9, topics=[])["brokers"]
    assert (node["host"], node["port"]) == ("127.0.0.1", site.plain_port)


@pytest.mark.parametrize(
    "token",
    [b"", b"\0alice", b"\xff\0\0", b"\0\0", plain("", ""), b"admin" + plain(), b"\0" * 1000],
)
def test_a_broken_plain_token(raw: Wire, token: bytes) -> None:
    answer = login(raw, "PLAIN", token)
    assert answer["error_code"] == 58
    assert closed(raw)


@pytest.mark.parametrize(
    "tokens",
    [
        [b""],
        [b"n,,n=alice"],
        [b"p=tls-unique,,n=alice,r=abc"],
        [b"n,,n=alice,r=abc,tokenauth=true"],
        [b"n,a=admin,n=alice,r=abc"],
        [b"n,,n=alice,r=abc", b""],
        [b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"],
        [b"n,,n=alice,r=abc", b"c=biws,r=abc,p=A"],
        [b"\xff"],
    ],
)
def test_broken_scram_tokens(raw: Wire, tokens: list[bytes]) -> None:
    assert login(raw, "SCRAM-SHA-256", *tokens)["error_code"] == 58


@pytest.mark.parametrize(
    ("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
@pytest.mark.parametrize(
    ("user", "password", "code"),
    [
        (ALICE, ALICE_SECRET, 0),
        (ADMIN, SECRET, 0),
        (ALICE, "wrong", 58),
        (ALICE, SECRET, 58),
        ("nobody", "x", 58),
    ],
)
def test_the_broker_itself_checks_the_proof(
    raw: Wire, mechanism: str, algorithm: str, user: str, password: str, code: int
) -> None:
    client = ScramClient(algorithm, user, password)
    challenge = login(raw, mechanism, client.first())
    answer = raw.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=client.final(challenge["auth_bytes"]))
    assert answer["error_code"] == code
    if code:
        assert not answer["auth_bytes"]
        assert closed(raw)
    else:
        assert client.is_servers(answer["auth_bytes"])
        assert raw.call(ApiKey.METADATA, 9, topics=[])["brokers"]


@pytest.mark.parametrize(
    ("claims", "seconds"),
    [
        ({}, -100),
        ({"aud": "somebody else"}, 100),
        ({"exp": None}, 100),
        ({"sub": ""}, 100),
        ({"sub": 7}, 100),
    ],
)
def test_the_broker_itself_checks_the_token(
    raw: Wire, site: Site, claims: dict[str, Any], seconds: float
) -> None:
    token = f"n,,\x01auth=Bearer {site.token(seconds, **claims)}\x01\x01".encode()
    answer = login(raw, "OAUTHBEARER", token)
    assert (answer["error_code"], answer["auth_bytes"]) == (0, b'{"status":"invalid_token"}')
    assert raw.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")["error_code"] == 58
    assert closed(raw)


def test_a_public_key_is_no_shared_secret(raw: Wire, site: Site) -> None:
    """A token signed with the published key as if it were a secret (algorithm confusion)."""
    header, content = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in (
            {"alg": "HS256", "typ": "JWT", "kid": site.issuer.key_id},
            {"sub": ALICE, "aud": "kafka", "exp": int(time.time()) + 100},
        )
    )
    key = site.issuer.path.read_bytes()
    signature = base64.urlsafe_b64encode(hmac.digest(key, header + b"." + content, "sha256")).rstrip(b"=")
    token = b".".join((header, content, signature))
    answer = login(raw, "OAUTHBEARER", b"n,,\x01auth=Bearer " + token + b"\x01\x01")
    assert answer["auth_bytes"] == b'{"status":"invalid_token"}'


def test_a_frame_before_authentication_is_small(raw: Wire) -> None:
    raw.socket.sendall((10 << 20).to_bytes(4, "big") + b"x" * 100)
    assert closed(raw)


def test_a_failure_is_answered_later(raw: Wire) -> None:
    raw.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    begun = time.monotonic()
    raw.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain(password="wrong"))
    assert time.monotonic() - begun >= 0.05


def test_bare_tokens_after_an_old_handshake(raw: Wire) -> None:
    assert raw.call(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN")["error_code"] == 0
    token = plain()
    raw.socket.sendall(len(token).to_bytes(4, "big") + token)
    assert raw.exactly(4) == bytes(4)
    assert raw.call(ApiKey.METADATA, 9, topics=[])["brokers"]


def test_a_wrong_bare_token_closes(raw: Wire) -> None:
    assert raw.call(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN")["error_code"] == 0
    token = plain(password="wrong")
    raw.socket.sendall(len(token).to_bytes(4, "big") + token)
    assert closed(raw)


def test_a_user_of_the_file_has_scram_too(broker: EmbeddedBroker, site: Site) -> None:
    producer = Producer(site.confluent("SCRAM-SHA-512", False, ADMIN, SECRET))
    producer.produce("t", b"x")
    assert producer.flush(10) == 0


def test_credentials_are_described_without_secrets(broker: EmbeddedBroker) -> None:
    with Wire(broker.host, broker.port) as wire:
        answer = wire.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        (found,) = answer["results"]
        assert found["user"] == ALICE
        assert found["credential_infos"] == [
            {"mechanism": 1, "iterations": 4096},
            {"mechanism": 2, "iterations": 4096},
        ]
        asked = [{"name": "nobody"}, {"name": ALICE}, {"name": ALICE}]
        answer = wire.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
        assert [r["error_code"] for r in answer["results"]] == [91, 92]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"deletions": [{"name": "nobody", "mechanism": 1}]}, 91),
        ({"deletions": [{"name": "", "mechanism": 1}]}, 93),
        ({"deletions": [{"name": ALICE, "mechanism": 7}]}, 33),
        ({"deletions": [{"name": ALICE, "mechanism": 1}] * 2}, 92),
        ({"upsertions": [{"iterations": 4095}]}, 93),
        ({"upsertions": [{"iterations": 16385}]}, 93),
        ({"upsertions": [{"salt": b""}]}, 93),
    ],
)
def test_wrong_changes_of_credentials(broker: EmbeddedBroker, change: dict[str, Any], code: int) -> None:
    right = {"name": ALICE, "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    body: dict[str, Any] = {"deletions": [], "upsertions": []} | change
    body["upsertions"] = [right | one for one in body["upsertions"]]
    with Wire(broker.host, broker.port) as wire:
        answer = wire.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **body)
    assert [one["error_code"] for one in answer["results"]] == [code]


def test_a_new_key_of_the_issuer_is_found(site: Site, tmp_path: Path) -> None:

    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.config.options import SecurityOptions
    from eoslog.broker.security.oauth import TokenValidator
    from eoslog.broker.security.passwords import AuthenticationFailed

    issuer = Issuer(tmp_path / "jwks.json", "ES256")

    async def use() -> None:
        tokens = TokenValidator(BrokerConfig(security=SecurityOptions(oauth_jwks_url=issuer.url)))
        assert (await tokens.user_of(issuer.token("bob")))[0] == "bob"
        issuer.rotate("second")
        with pytest.raises(AuthenticationFailed):  # not looked for again so soon
            await tokens.user_of(issuer.token("bob"))
        tokens._read_at -= 60
        assert (await tokens.user_of(issuer.token("bob")))[0] == "bob"
        issuer.path.write_text("no longer JSON")
        tokens._read_at -= 7200
        assert (await tokens.user_of(issuer.token("bob")))[0] == "bob"  # the old keys stay

    asyncio.run(use())


def test_z_no_secret_is_told(broker: EmbeddedBroker, site: Site) -> None:
    """After all of the above: nothing secret in the log, in answers, or on the disk."""
    said = broker.output()
    assert "authentication by PLAIN" in said
    kept = "".join(p.read_text(errors="replace") for p in broker.data.glob("*") if p.is_file())
    of_tokens = site.token().split(".")[0]  # of each the first part; 3 letters of it are in random bytes, too
    for secret in (SECRET, ALICE_SECRET, "not-the-password-5Tv", of_tokens, "PlainLoginModule"):
        assert secret not in said
        assert secret not in kept
    assert json.loads((broker.data / "scram-credentials.json").read_text())["version"] == 1
    with Wire(broker.host, broker.port) as wire:
        answer = wire.call(
            ApiKey.DESCRIBE_CONFIGS, 4,
            resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}],
        )  # fmt: skip
    assert SECRET not in str(answer)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.enabled.mechanisms": "CRAM-MD5"}, "sasl.enabled.mechanisms=CRAM-MD5"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.users.file": "/does/not/exist"}, "sasl.users.file"),
        (
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": 'x required user_a="topsecret'},
            "plain.sasl.jaas.config",
        ),
        (
            {"listener.name.sasl_ssl.plain.sasl.jass.config": "topsecret"},
            "no option that a listener can have",
        ),
        ({"listener.name.other.plain.sasl.jaas.config": "topsecret"}, "no such listener"),
    ],
)
def test_wrong_options_stop_the_start(tmp_path: Path, change: dict[str, str], said: str) -> None:
    site = Site(tmp_path)
    with pytest.raises(BrokerFailed) as failed, EmbeddedBroker(config=site.config | change):
        pass
    assert said in str(failed.value)
    assert "topsecret" not in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_a_session_ends_unless_it_is_renewed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    config = site.config | {"connections.max.reauth.ms": "5000"}  # long: a busy machine must not use it up
    with EmbeddedBroker(config=config), Wire("127.0.0.1", site.plain_port) as wire:
        assert login(wire, "PLAIN", plain())["session_lifetime_ms"] == 5000
        time.sleep(2.6)
        assert login(wire, "PLAIN", plain())["error_code"] == 0
        time.sleep(2.5)
        assert wire.call(ApiKey.METADATA, 9, topics=[])["brokers"], "the first session is over by 100 ms"
        time.sleep(2.6)
        wire.send(ApiKey.METADATA, 9, topics=[])
        assert closed(wire)


def test_a_session_is_renewed_by_the_same_user_and_mechanism_only(raw: Wire) -> None:
    assert login(raw, "PLAIN", plain())["error_code"] == 0
    assert raw.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")["error_code"] == 33
    assert closed(raw)


def test_a_session_is_not_taken_over(raw: Wire) -> None:
    assert login(raw, "PLAIN", plain())["error_code"] == 0
    assert login(raw, "PLAIN", plain(ADMIN, SECRET))["error_code"] == 58
    assert closed(raw)


def test_a_tokens_end_is_the_sessions(raw: Wire, site: Site) -> None:
    message = f"n,,\x01auth=Bearer {site.token(100)}\x01\x01".encode()
    answer = login(raw, "OAUTHBEARER", message)
    assert answer["error_code"] == 0
    assert 90_000 < answer["session_lifetime_ms"] <= 100_000
