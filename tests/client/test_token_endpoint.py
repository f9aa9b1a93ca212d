"""Tokens: of an endpoint, of the functions in docs/logins.md, and delegation tokens."""

import datetime
import json
import re
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.security_settings import Flow, TokenSettings
from eoslog.client.wire.tokens import Tokens, _claims
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.errors import AuthenticationRefused, OptionError
from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import Issuer
from tests.docs.reader import ROOT, blocks_of
from tests.kit.program import until
from tests.scenarios.apache_kafka import JARS, ApacheKafka

# -- an endpoint ---------------------------------------------------------------------------------
# Tokens of an endpoint: by Kafka 4's option names and the older ones, by secret, assertion, grant and file.
#
# A bundled broker judges the tokens, an endpoint of the test's own the requests.

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CLASSES = "org.apache.kafka.common.security.oauthbearer."
SECRET, PASSPHRASE = "s/ecret of+5523", "passphrase-5524"
ID = "client.credentials.client.id"


class Endpoint:
    """Keeps what it is asked, and answers what it is told; by default with a token for a minute."""

    def __init__(self, issuer: Issuer) -> None:
        self.asked: list[dict[str, str]] = []
        self.basic: list[str] = []
        self.status = 200
        self.answer: Any = {"access_token": issuer.token(), "expires_in": 60}
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append(dict(parse_qsl(body)))
                coded = self.headers.get("Authorization", "").removeprefix("Basic ")
                endpoint.basic.append(b64decode(coded).decode())
                self.send_response(endpoint.status)
                self.end_headers()
                self.wfile.write(json.dumps(endpoint.answer).encode())

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/token"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("jwks") / "keys.json")


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[EmbeddedBroker]:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
    }
    with EmbeddedBroker(config=config) as running:
        yield running


@pytest.fixture
def endpoint(issuer: Issuer) -> Iterator[Endpoint]:
    made = Endpoint(issuer)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def login(bootstrap: str, url: str, module: str = "", **more: str) -> SourceOptions:
    """`more`: options below sasl.oauthbearer, with __ for a dot; `module`: options of the login module."""
    options = {
        "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url, "request.timeout.ms": "60000",
        "sasl.jaas.config": f"{MODULE} required {module};",
    } | {f"sasl.oauthbearer.{name.replace('__', '.')}": value for name, value in more.items()}  # fmt: skip
    given = {f"kafka.{name}": value for name, value in options.items()}
    return source_options(given | {"subscribe": "t"}, stream=False)


def topics(found: SourceOptions) -> list[str]:
    with Cluster(found.client) as cluster:
        return sorted(cluster.metadata(None).topics)


NEW = {
    "client__credentials__client__id": "app",
    "client__credentials__client__secret": SECRET,
    "scope": "kafka",
}
OLD = f'clientId="app" clientSecret="{SECRET}" scope="kafka"'


@pytest.mark.parametrize("names", ["new", "old", "both"])
def test_the_names_of_kafka_4_and_the_older_ones(
    broker: EmbeddedBroker, endpoint: Endpoint, names: str
) -> None:
    """Of both the new ones count, as in Kafka. A token is fetched once."""
    other = 'clientId="other" clientSecret="x" scope="y"'
    module = {"new": "", "old": OLD, "both": other}[names]
    found = login(broker.bootstrap, endpoint.url, module, **({} if names == "old" else NEW))
    assert SECRET not in repr(found)
    for _ in range(2):
        assert topics(found) == []
    assert endpoint.asked == [{"grant_type": "client_credentials", "scope": "kafka"}]
    assert endpoint.basic == [f"app:{SECRET}"]


def test_an_id_and_a_secret_can_be_url_encoded(broker: EmbeddedBroker, endpoint: Endpoint) -> None:
    assert topics(login(broker.bootstrap, endpoint.url, header__urlencode="true", **NEW)) == []
    assert endpoint.basic == ["app:s%2Fecret+of%2B5523"]


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (401, {"error": "invalid_client"}, "gave no token for app: HTTP 401"),
        (200, {"token": "x"}, "gave no token for app: KeyError"),
        (200, ["x"], "gave no token for app: AttributeError"),
    ],
)
def test_an_endpoint_without_a_token(endpoint: Endpoint, status: int, answer: Any, says: str) -> None:
    endpoint.status, endpoint.answer = status, answer
    settings = TokenSettings(Flow.CLIENT_CREDENTIALS, endpoint.url, client_id="app", client_secret=SECRET)
    with pytest.raises(AuthenticationRefused, match=f"{says}; check the address") as raised:
        Tokens().token(settings)
    assert SECRET not in str(raised.value)


def test_a_token_in_a_file(broker: EmbeddedBroker, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token(seconds=60) + "\n")
    assert topics(login(broker.bootstrap, file.as_uri())) == []
    with pytest.raises(AuthenticationRefused, match=r"cannot be read: No such file.*every machine"):
        topics(login(broker.bootstrap, (tmp_path / "none").as_uri()))


def key_file(tmp_path: Path, algorithm: str) -> tuple[str, Any]:
    """An encrypted private key, and the public one."""
    key: Any = (
        ec.generate_private_key(ec.SECP256R1())
        if algorithm == "ES256"
        else rsa.generate_private_key(65537, 2048)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode()))
    path = tmp_path / "key.pem"
    path.write_bytes(pem)
    return str(path), key.public_key()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("grant", [False, True], ids=["client credentials", "grant"])
def test_an_assertion_signed_by_a_key(
    broker: EmbeddedBroker, endpoint: Endpoint, tmp_path: Path, algorithm: str, grant: bool
) -> None:
    path, public = key_file(tmp_path, algorithm)
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "k1"}, "payload": {"tenant": "t"}}')
    found = login(
        broker.bootstrap, endpoint.url, scope="kafka",
        assertion__private__key__file=path, assertion__private__key__passphrase=PASSPHRASE,
        assertion__algorithm=algorithm, assertion__claim__iss="app", assertion__claim__sub="app",
        assertion__claim__aud="https://idp", assertion__claim__exp__seconds="120",
        assertion__claim__jti__include="true", assertion__template__file=str(template),
        **({"jwt__retriever__class": f"{CLASSES}JwtBearerJwtRetriever"} if grant else
           {"client__credentials__client__id": "app"}),
    )  # fmt: skip
    assert PASSPHRASE not in repr(found)
    assert topics(found) == []
    [form] = endpoint.asked
    bearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assertion = form.pop("assertion" if grant else "client_assertion")
    assert form == {"scope": "kafka"} | (
        {"grant_type": bearer}
        if grant
        else {
            "grant_type": "client_credentials", "client_id": "app",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        }
    )  # fmt: skip
    claims = jwt.decode(assertion, public, [algorithm], audience="https://idp", issuer="app", subject="app")
    assert claims["exp"] - claims["iat"] == 120 and claims["iat"] - claims["nbf"] == 60
    assert claims["jti"] and claims["tenant"] == "t" and jwt.get_unverified_header(assertion)["kid"] == "k1"


def test_an_assertion_from_a_file_is_read_for_each_token(endpoint: Endpoint, tmp_path: Path) -> None:
    file, clock = tmp_path / "assertion", [0.0]
    found = login("b:1", endpoint.url, assertion__file=str(file)).client.security.sasl
    assert found is not None and found.tokens is not None
    tokens = Tokens(lambda: clock[0])
    for second, text in ((0, "first"), (50, "second")):
        clock[0] = second
        file.write_text(f"{text}\n")
        tokens.token(found.tokens)
        assert endpoint.asked[-1]["client_assertion"] == text


def test_a_key_that_does_not_open(endpoint: Endpoint, tmp_path: Path) -> None:
    path, _ = key_file(tmp_path, "RS256")
    for more, says in (
        ({}, "cannot sign with RS256: TypeError; check the key"),
        ({"assertion__private__key__passphrase": "wrong-5525"}, "cannot sign with RS256: ValueError"),
        ({"assertion__private__key__passphrase": PASSPHRASE, "assertion__algorithm": "ES256"}, "with ES256"),
    ):
        found = login("b:1", endpoint.url, assertion__private__key__file=path, **more).client.security.sasl
        assert found is not None and found.tokens is not None
        with pytest.raises(AuthenticationRefused, match=says) as raised:
            Tokens().token(found.tokens)
        assert PASSPHRASE not in str(raised.value) and "wrong-5525" not in str(raised.value)


def test_a_token_must_have_the_claim_that_names_the_user(endpoint: Endpoint) -> None:
    def settings(claim: str) -> TokenSettings:
        return TokenSettings(
            Flow.CLIENT_CREDENTIALS, endpoint.url, client_id="app", client_secret="x", subject_claim=claim
        )

    with pytest.raises(AuthenticationRefused, match=r"no claim upn .*sub\.claim\.name\): correct the name"):
        Tokens().token(settings("upn"))
    assert Tokens().token(settings("sub"))


def test_an_old_token_is_used_to_its_end_if_there_is_no_next_one(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """Minutes pass on a clock of the test's own. From 48 s on a new token is asked for."""
    clock = [0.0]
    tokens = Tokens(lambda: clock[0])
    settings = TokenSettings(Flow.CLIENT_CREDENTIALS, endpoint.url, client_id="app", client_secret=SECRET)
    first = tokens.token(settings)
    clock[0] = 47
    assert tokens.token(settings) == first and len(endpoint.asked) == 1
    endpoint.status = 503
    clock[0] = 49
    assert tokens.token(settings) == first and len(endpoint.asked) == 2
    assert "used to its end" in caplog.text and SECRET not in caplog.text and first not in caplog.text
    clock[0] = 61
    with pytest.raises(AuthenticationRefused, match="HTTP 503"):
        tokens.token(settings)
    endpoint.status, endpoint.answer = 200, {"access_token": "second", "expires_in": 60}
    assert tokens.token(settings) == "second"


@pytest.mark.parametrize("more", [{}, {"expires_in": 100_000}], ids=["no time", "milliseconds"])
def test_a_token_is_good_as_long_as_it_says_itself(
    endpoint: Endpoint, issuer: Issuer, more: dict[str, int]
) -> None:
    endpoint.answer = {"access_token": issuer.token(seconds=100)} | more
    clock, started = [0.0], time.time()
    tokens = Tokens(lambda: clock[0], lambda: started)
    settings = TokenSettings(Flow.CLIENT_CREDENTIALS, endpoint.url, client_id="app", client_secret="x")
    for second, asked in ((0, 1), (75, 1), (85, 2)):
        clock[0] = second
        tokens.token(settings)
        assert len(endpoint.asked) == asked


@pytest.mark.parametrize(
    ("url", "more", "says"),
    [
        ("https://x", {}, "needs an id and a secret: give"),
        ("idp.example.org", NEW, "give a URL that begins with https:"),
        ("file:///t", {"jwt__retriever__class": f"{CLASSES}JwtBearerJwtRetriever"}, "begins with https:"),
        ("https://x", {"jwt__retriever__class": f"{CLASSES}FileJwtRetriever"}, "begins with file:"),
        ("https://x", {"jwt__retriever__class": "com.example.Own"}, "choose one of .*token.callback"),
        ("https://x", {"jwt__retriever__class": f"{CLASSES}JwtBearerJwtRetriever"}, "needs an assertion"),
        ("file:///t", {"assertion__file": "/a"}, "have no effect, as tokens come from a file"),
        ("https://x", {"assertion__file": "/a", "assertion__private__key__file": "/k"}, "from one place"),
        ("https://x", {"assertion__claim__iss": "app"}, "from one place"),
        ("https://x", {"assertion__file": "/a", "assertion__algorithm": "HS256"}, "one of rs256, es256"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(url: str, more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        login("b:1", url, **more)


# -- the functions of docs/logins.md -------------------------------------------------------------
# The functions for tokens in docs/logins.md, called as the client does, with stand-ins for the libraries.

PAGE = ROOT / "docs" / "logins.md"


def recipe(monkeypatch: pytest.MonkeyPatch, about: str, **changed: str) -> TokenSettings:
    """The one recipe of the page that has `about` in it, as a module that a callback names."""
    [code] = [one.code for one in blocks_of(PAGE) if one.language == "python" and about in one.code]
    for old, new in changed.items():
        assert old in code
        code = code.replace(old, new)
    module = ModuleType("recipe_of_the_page")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return TokenSettings(Flow.CALLBACK, callback="recipe_of_the_page:token")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module, and the packages that it is in."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules or end == len(parts):
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
        if end > 1:
            monkeypatch.setattr(
                sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[path], False
            )
    for member, value in members.items():
        setattr(sys.modules[name], member, value)


def kept_for(monkeypatch: pytest.MonkeyPatch, settings: TokenSettings, seconds: float) -> str:
    """The token, which is asked for again after four fifths of the time."""
    clock = [0.0]
    tokens = Tokens(lambda: clock[0])
    first = tokens.token(settings)
    calls: list[int] = []
    function = sys.modules["recipe_of_the_page"].token

    def counted() -> Any:
        calls.append(1)
        return function()

    monkeypatch.setattr(sys.modules["recipe_of_the_page"], "token", counted)
    for second, expected in ((seconds * 0.8 - 30, 0), (seconds * 0.8 + 1, 1)):
        clock[0] = second
        tokens.token(settings)
        assert len(calls) == expected, second
    return first


def test_entra_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class DefaultAzureCredential:
        def get_token(self, scope: str) -> Any:
            asked.append(scope)
            return SimpleNamespace(token="of azure", expires_on=int(time.time()) + 3600)

    stand_in(monkeypatch, "azure.identity", DefaultAzureCredential=DefaultAzureCredential)
    assert kept_for(monkeypatch, recipe(monkeypatch, "azure.identity"), 3600) == "of azure"
    assert asked[0] == "https://NAMESPACE.servicebus.windows.net/.default"


def test_google(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        service_account_email = "streams@example.iam"
        token, expiry = "", datetime.datetime(1970, 1, 1)

        def refresh(self, request: object) -> None:
            """Google's library has the end in UTC without saying so."""
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3600)
            self.token, self.expiry = "ya29.of-google", end.replace(tzinfo=None)

    stand_in(monkeypatch, "google.auth.transport.requests", Request=object)
    monkeypatch.setattr(sys.modules["google.auth"], "default", lambda scopes: (Found(), None), raising=False)
    token = kept_for(monkeypatch, recipe(monkeypatch, "google.auth"), 3600)
    claims = _claims(token)
    assert claims["sub"] == "streams@example.iam" and 3500 < claims["exp"] - time.time() <= 3600
    assert token.count(".") == 2 and "=" not in token


# -- delegation tokens (KIP-48) ------------------------------------------------------------------
# A login with a delegation token (KIP-48) at Apache Kafka; the token is made by Kafka's own tool.

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
ADMIN = f'{SCRAM} username="admin" password="admin-secret";'
CONFIG = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": ADMIN,
    "delegation.token.secret.key": "secret-of-the-cluster",
}


def topics_told(bootstrap: str, jaas: str) -> list[str]:
    options = {
        "kafka.bootstrap.servers": bootstrap, "kafka.security.protocol": "SASL_PLAINTEXT", "subscribe": "t",
        "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": jaas,
    }  # fmt: skip
    with Cluster(source_options(options, stream=False).client) as cluster:
        return sorted(cluster.metadata(None).topics)


def accepted(bootstrap: str, jaas: str) -> bool:
    try:
        topics_told(bootstrap, jaas)
    except AuthenticationRefused:
        return False
    return True


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_login_with_a_delegation_token(tmp_path: Path) -> None:
    properties = tmp_path / "admin.properties"
    properties.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={ADMIN}\n"
    )
    users = ("--add-scram", "SCRAM-SHA-256=[name=admin,password=admin-secret]")
    with ApacheKafka(CONFIG, users) as kafka:
        said = subprocess.run(
            ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DelegationTokenCommand", "--create",
             "--bootstrap-server", kafka.bootstrap, "--command-config", str(properties),
             "--max-life-time-period", "-1"],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        found = re.search(r"^(\S{20,})\s+(\S{40,})\s", said.stdout, re.MULTILINE)
        assert found, said.stdout + said.stderr
        token = f'{SCRAM} username="{found[1]}" password="{found[2]}"'
        until(lambda: accepted(kafka.bootstrap, f'{token} tokenauth="true";'), "the broker knows the token")
        assert topics_told(kafka.bootstrap, f'{token} tokenauth="true";') == []
        with pytest.raises(AuthenticationRefused, match="SCRAM-SHA-256 as"):
            topics_told(kafka.bootstrap, f"{token};")
