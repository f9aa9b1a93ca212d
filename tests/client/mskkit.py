"""A broker of Amazon MSK as far as a login goes, and AWS's STS: written from the README of aws-msk-iam-auth
and AWS's rules for signatures (SigV4), without eoslog's or botocore's code."""

import datetime
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.schema import Message
from tests.client.fake_broker import FakeBroker, Handler

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
