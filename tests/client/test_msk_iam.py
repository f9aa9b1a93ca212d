"""SASL AWS_MSK_IAM: a broker of Amazon MSK as far as a login goes, AWS's STS, and the logins."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import pytest

from eoslog.client.wire import msk_iam
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.security_settings import AwsSettings
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.errors import AuthenticationRefused, OptionError
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.schema import Message
from tests.client.fake_broker import FakeBroker, Handler

# -- the broker and STS ----------------------------------------------------------------------------
# A broker of Amazon MSK as far as a login goes, and AWS's STS: written from the README of aws-msk-iam-auth
# and AWS's rules for signatures (SigV4), without eoslog's or botocore's code.


KEYS = {
    "version", "host", "user-agent", "action", "x-amz-algorithm", "x-amz-credential", "x-amz-date",
    "x-amz-signedheaders", "x-amz-expires", "x-amz-signature",
}  # fmt: skip
UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
MINUTES_APART = 15


class Secret(NamedTuple):
    """What AWS knows of an access key id. `token`: the session's, if it is of one."""

    key: str
    token: str | None = None


def uri_encoded(text: str) -> str:
    return "".join(chr(b) if chr(b) in UNRESERVED else f"%{b:02X}" for b in text.encode())


def signature(payload: dict[str, str], secret: str) -> str:
    """The signature that the payload should have, step by step as the README has it."""
    day, region, service, end = payload["x-amz-credential"].split("/")[1:]
    values = {
        "Action": "action", "X-Amz-Algorithm": "x-amz-algorithm", "X-Amz-Credential": "x-amz-credential",
        "X-Amz-Date": "x-amz-date", "X-Amz-Expires": "x-amz-expires",
        "X-Amz-Security-Token": "x-amz-security-token", "X-Amz-SignedHeaders": "x-amz-signedheaders",
    }  # fmt: skip
    pairs = sorted(
        (uri_encoded(name), uri_encoded(payload[key])) for name, key in values.items() if key in payload
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    nothing = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n/\n{query}\nhost:{payload['host']}\n\nhost\n{nothing}"
    scope = f"{day}/{region}/{service}/{end}"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{payload['x-amz-date']}\n{scope}\n{hashed}"
    key = f"AWS4{secret}".encode()
    for step in (day, region, service, end):
        key = hmac.digest(key, step.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


class MskBroker(FakeBroker):
    """Accepts whoever signs with one of the `secrets` for its region and name."""

    def __init__(
        self, secrets: dict[str, Secret], region: str, *, session_ms: int = 0, sasl: str = "AWS_MSK_IAM"
    ) -> None:
        self.secrets, self.region, self.session_ms, self.sasl = secrets, region, session_ms, sasl
        self.host = "127.0.0.1"
        self.payloads: list[dict[str, str]] = []
        self.refusals: list[str] = []
        handlers: dict[ApiKey, Handler] = {
            ApiKey.SASL_HANDSHAKE: self._handshake,
            ApiKey.SASL_AUTHENTICATE: self._login,
        }
        super().__init__(handlers)

    def _handshake(self, version: int, body: Message) -> Message:
        return {"error_code": 0 if body["mechanism"] == self.sasl else 33, "mechanisms": [self.sasl]}

    def _login(self, version: int, body: Message) -> Message:
        payload = json.loads(bytes(body["auth_bytes"]))
        self.payloads.append(payload)
        wrong = self._wrong(payload)
        if wrong:
            self.refusals.append(wrong)
            return {"error_code": 58, "error_message": f"Access denied: {wrong}", "auth_bytes": b"",
                    "session_lifetime_ms": 0}  # fmt: skip
        answer = {"version": "2020_10_22", "request-id": "5b2d"}
        return {"error_code": 0, "error_message": None, "auth_bytes": json.dumps(answer).encode(),
                "session_lifetime_ms": self.session_ms}  # fmt: skip

    def _wrong(self, payload: dict[str, str]) -> str:
        """Why the payload is refused; nothing if it is accepted."""
        if not KEYS <= payload.keys() <= KEYS | {"x-amz-security-token"}:
            return f"keys {sorted(payload)}"
        fixed = {
            "version": "2020_10_22", "host": self.host, "action": "kafka-cluster:Connect",
            "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-signedheaders": "host", "x-amz-expires": "900",
        }  # fmt: skip
        for name, value in fixed.items():
            if payload[name] != value:
                return f"{name} is {payload[name]}"
        access, day, region, *rest = payload["x-amz-credential"].split("/")
        signed_at = datetime.datetime.strptime(payload["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(
            tzinfo=datetime.UTC
        )
        if abs(datetime.datetime.now(datetime.UTC) - signed_at) > datetime.timedelta(minutes=MINUTES_APART):
            return "signed long ago"
        if rest != ["kafka-cluster", "aws4_request"] or region != self.region or day != f"{signed_at:%Y%m%d}":
            return f"scope {payload['x-amz-credential']}"
        secret = self.secrets.get(access)
        if secret is None:
            return "access key not known"
        if payload.get("x-amz-security-token") != secret.token:
            return "session not known"
        return "" if payload["x-amz-signature"] == signature(payload, secret.key) else "signature"


Assume = Callable[[dict[str, str]], tuple[str, Secret, datetime.datetime] | None]


@contextmanager
def sts(assume: Assume) -> Iterator[str]:
    """AWS's STS; `assume` says what AssumeRole gives: access key id, secret and end, or None: denied."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = assume({name: values[0] for name, values in parse_qs(form).items()})
            self.send_response(403 if given is None else 200)
            self.send_header("Content-Type", "text/xml")
            self.end_headers()
            self.wfile.write((DENIED if given is None else accepted(*given)).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


DENIED = (
    '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
    "<Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>"
)


def accepted(access: str, secret: Secret, ends: datetime.datetime) -> str:
    return (
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
        f"<AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret.key}</SecretAccessKey>"
        f"<SessionToken>{secret.token}</SessionToken><Expiration>{ends:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
        "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )


# -- logins ----------------------------------------------------------------------------------------
# AWS_MSK_IAM: what is signed is checked by a verifier of its own; profiles, roles, regions, and credentials
# that end.


ACCESS, SECRET = "AKIAEXAMPLE", Secret("secret/of+aws-5519")
SESSION = Secret("secret-of-a-session-5520", "token/of+a-session==5521")
OTHER = Secret("secret-of-another-5522")
ALL = (SECRET.key, SESSION.key, str(SESSION.token), OTHER.key)
REGION = "eu-west-1"
ROLE = "arn:aws:iam::123456789012:role/streams"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A machine where nothing is configured; the folder of its AWS files."""
    for name in (
        "PROFILE",
        "ACCESS_KEY_ID",
        "SECRET_ACCESS_KEY",
        "SESSION_TOKEN",
        "REGION",
        "DEFAULT_REGION",
    ):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    msk_iam._credentials.clear()
    yield tmp_path
    msk_iam._credentials.clear()


def keys(monkeypatch: pytest.MonkeyPatch, access: str, secret: Secret) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret.key)
    if secret.token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", secret.token)


def login(port: int, region: str | None = REGION, **module: str) -> SourceOptions:
    """As users of Java's client write it."""
    named = ({"awsRegion": region} if region else {}) | module
    said = "".join(f' {name}="{value}"' for name, value in named.items())
    given = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"software.amazon.msk.auth.iam.IAMLoginModule required{said};",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    options = {f"kafka.{name}": value for name, value in given.items()}
    return source_options(options | {"subscribe": "t"}, stream=False)


def topics(found: SourceOptions) -> list[str]:
    with Cluster(found.client) as cluster:
        return sorted(cluster.metadata(None).topics)


@pytest.mark.parametrize("secret", [SECRET, SESSION], ids=["key", "session"])
def test_a_login(monkeypatch: pytest.MonkeyPatch, secret: Secret) -> None:
    keys(monkeypatch, ACCESS, secret)
    with MskBroker({ACCESS: secret}, REGION) as broker:
        assert topics(login(broker.port)) == []
        assert broker.payloads and not broker.refusals
        assert broker.payloads[0]["user-agent"].startswith("eoslog/")


def test_a_login_by_its_mechanism_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch, ACCESS, SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with MskBroker({ACCESS: SECRET}, REGION) as broker:
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "kafka.sasl.mechanism": "aws_msk_iam",
            "kafka.security.protocol": "SASL_PLAINTEXT", "subscribe": "t",
        }  # fmt: skip
        assert topics(source_options(options, stream=False)) == []


def test_the_verifier_refuses_what_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another secret, another region, another session: each is a loud end, without a secret in it."""
    keys(monkeypatch, ACCESS, SESSION)
    for known, region, says in (
        ({ACCESS: Secret(OTHER.key, SESSION.token)}, REGION, "signature"),
        ({ACCESS: SESSION}, "us-east-1", "scope"),
        ({ACCESS: Secret(SESSION.key, "another")}, REGION, "session not known"),
        ({"AKIAOTHER": SESSION}, REGION, "access key not known"),
    ):
        with (
            MskBroker(known, region) as broker,
            pytest.raises(
                AuthenticationRefused, match=f"AWS_MSK_IAM as the AWS credentials: .*{says}"
            ) as raised,
        ):
            topics(login(broker.port))
        assert not any(secret in str(raised.value) for secret in ALL)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.streams.abc123.c2.kafka.us-east-2.amazonaws.com", "us-east-2"),
        ("boot-abc.c1.kafka-serverless.eu-north-1.amazonaws.com", "eu-north-1"),
        ("b-3.streams.abc123.c4.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("kafka.example.org", REGION),
    ],
)
def test_the_region_of_a_brokers_name(monkeypatch: pytest.MonkeyPatch, host: str, region: str) -> None:
    keys(monkeypatch, ACCESS, SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    assert f"/{region}/kafka-cluster/".encode() in msk_iam.payload(AwsSettings(), host)
    assert b"/ap-south-1/kafka-cluster/" in msk_iam.payload(AwsSettings(region="ap-south-1"), host)


def test_a_region_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch, ACCESS, SECRET)
    with MskBroker({ACCESS: SECRET}, REGION) as broker, pytest.raises(OptionError, match="give awsRegion in"):
        topics(login(broker.port, region=None))


def test_no_credentials_on_this_machine() -> None:
    with (
        MskBroker({ACCESS: SECRET}, REGION) as broker,
        pytest.raises(
            AuthenticationRefused, match="no AWS credentials are found on this machine: set AWS_ACCESS"
        ),
    ):
        topics(login(broker.port))


def test_a_profile(machine: Path) -> None:
    (machine / "credentials").write_text(
        f"[default]\naws_access_key_id=AKIAOTHER\naws_secret_access_key={OTHER.key}\n"
        f"[streams]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET.key}\n"
    )
    (machine / "config").write_text(f"[profile streams]\nregion={REGION}\n")
    with MskBroker({ACCESS: SECRET}, REGION) as broker:
        assert topics(login(broker.port, region=None, awsProfileName="streams")) == []
        with pytest.raises(AuthenticationRefused, match="access key not known"):
            topics(login(broker.port))
        with pytest.raises(AuthenticationRefused, match="no AWS credentials: ProfileNotFound; check profile"):
            topics(login(broker.port, awsProfileName="nobody"))


def test_credentials_that_are_exchanged_are_used_after_a_refusal(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tool writes the file anew: the login after a refused one has the new ones."""
    keys(monkeypatch, ACCESS, SESSION)
    with MskBroker({"AKIANEW": SECRET}, REGION) as broker:
        with pytest.raises(AuthenticationRefused, match="access key not known"):
            topics(login(broker.port))
        monkeypatch.delenv("AWS_SESSION_TOKEN")
        keys(monkeypatch, "AKIANEW", SECRET)
        assert topics(login(broker.port)) == []


def test_a_role_and_its_next_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a role that end within minutes are replaced at the next login, before the session ends."""
    keys(monkeypatch, ACCESS, SECRET)
    asked: list[dict[str, str]] = []
    known: dict[str, Secret] = {}

    def assume(form: dict[str, str]) -> tuple[str, Secret, datetime.datetime]:
        asked.append(form)
        access = f"ASIAROLE{len(asked)}"
        known.clear()  # the ones before are no longer good
        known[access] = Secret(f"{SESSION.key}-{len(asked)}", f"{SESSION.token}{len(asked)}")
        return access, known[access], datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)

    with sts(assume) as url, MskBroker(known, REGION, session_ms=1_000) as broker:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        found = login(broker.port, awsRoleArn=ROLE, awsRoleSessionName="nightly", awsRoleExternalId="42")
        with closing(BrokerConnection("127.0.0.1", broker.port, found.client)) as connection:
            until = time.monotonic() + 60
            while len(broker.payloads) < 3 and time.monotonic() < until:
                connection.call(APIS[ApiKey.METADATA], {"topics": []}, max_version=9)
                time.sleep(0.1)
    assert len(broker.payloads) >= 3 and not broker.refusals
    assert len({payload["x-amz-credential"] for payload in broker.payloads}) >= 3
    assert asked[0]["RoleArn"] == ROLE
    assert (asked[0]["RoleSessionName"], asked[0]["ExternalId"]) == ("nightly", "42")


def test_a_role_that_is_denied(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with sts(lambda form: None) as url, MskBroker({}, REGION) as broker:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        found = login(
            broker.port, awsRoleArn=ROLE, awsRoleAccessKeyId=ACCESS, awsRoleSecretAccessKey=SECRET.key
        )
        with pytest.raises(AuthenticationRefused, match="no AWS credentials: AccessDenied; check") as raised:
            topics(found)
    said = "".join(traceback.format_exception(raised.value)) + caplog.text + repr(found)
    assert not any(secret in said for secret in ALL)


def test_a_broker_without_iam(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch, ACCESS, SECRET)
    with (
        MskBroker({ACCESS: SECRET}, REGION, sasl="SCRAM-SHA-512") as broker,
        pytest.raises(AuthenticationRefused, match="AWS_MSK_IAM; it offers SCRAM-SHA-512"),
    ):
        topics(login(broker.port))


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"version":"1"}', b"welcome"])
def test_an_answer_that_accepts_nothing(answer: bytes) -> None:
    with pytest.raises(AuthenticationRefused, match="did not accept the signature"):
        msk_iam.check_accepted(answer)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ({"awsProfile": "x"}, "IAMLoginModule has no option awsProfile: give some of awsProfileName"),
        ({"awsProfileName": "x", "awsRoleArn": ROLE}, "give awsProfileName or awsRoleArn, not both"),
        ({"awsRoleSessionName": "x"}, "awsRoleSessionName has no effect without awsRoleArn"),
        ({"awsRoleArn": ROLE, "awsRoleAccessKeyId": "x"}, "go together: give both"),
    ],
)
def test_what_does_not_fit_is_refused(module: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        login(9092, **module)


def test_what_does_nothing_here_is_taken() -> None:
    assert login(9092, awsDebugCreds="true", awsMaxRetries="3").client.security.sasl is not None


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(OptionError, match=r"pip install 'eoslog\[msk-iam\]', also where the tasks run"):
        msk_iam.payload(AwsSettings(), "b-1.kafka.eu-west-1.amazonaws.com")
