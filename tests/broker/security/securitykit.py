"""What tests of security share: certificates, stores, tokens, users with ACLs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Self

import jwt
import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from eoslog.protocol.apis import ApiKey
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire

# -- certificates, tokens, clients ---------------------------------------------------------------
# Certificates, tokens, ports and clients for tests of security.

ADMIN, SECRET = "admin", "admin-secret-7Qx"
ALICE, ALICE_SECRET = "alice", "alice,secret=9Zk"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Pki:
    """A certificate authority with a broker's and a client's certificate, as PEM files."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.broker = directory / "broker.pem"
        self.renew()
        client = self.authority.issue_cert("alice@example.org", common_name="alice", organization_name="Eos")
        self.client = directory / "client.pem"
        client.private_key_and_cert_chain_pem.write_to_path(str(self.client))

    def renew(self) -> None:
        """A new certificate for the broker, in place of the old one."""
        made = self.authority.issue_cert("127.0.0.1", "localhost", common_name="broker")
        made.private_key_and_cert_chain_pem.write_to_path(str(self.broker))


class Issuer:
    """Signs tokens, and tells its keys in a JWKS file."""

    def __init__(self, path: Path, algorithm: str = "RS256") -> None:
        self.algorithm = algorithm
        self.path = path
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        """A new key in place of the old one."""
        self.key_id = key_id
        self._key: Any = (
            rsa.generate_private_key(65537, 2048)
            if self.algorithm.startswith("R")
            else ec.generate_private_key(ec.SECP256R1())
        )
        public = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self._key.public_key(), as_dict=True)
        entry = public | {"kid": key_id, "alg": self.algorithm, "use": "sig"}
        self.path.write_text(json.dumps({"keys": [entry]}))

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def token(self, user: str = ALICE, seconds: float = 600, **claims: Any) -> str:
        """A token good for so many seconds."""
        now = int(time.time())
        content = {"sub": user, "iat": now, "exp": now + int(seconds)} | claims
        return jwt.encode(content, self._key, self.algorithm, {"kid": self.key_id})


def plain_jaas(**users: str) -> str:
    """A JAAS text of PLAIN users."""
    text = "".join(f' user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required{text};"


class ScramClient:
    """The client's side of SCRAM, written from RFC 5802 alone; checks the server's signature."""

    def __init__(self, algorithm: str, user: str, password: str) -> None:
        self._algorithm, self._password = algorithm, password.encode()
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=a-client-nonce"
        self._verifier = b""

    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def final(self, challenge: bytes) -> bytes:
        found = re.fullmatch(r"r=(a-client-nonce.{8,}),s=([^,]+),i=(\d+)", challenge.decode())
        assert found, challenge
        salt, rounds = base64.b64decode(found[2]), int(found[3])
        salted = hashlib.pbkdf2_hmac(self._algorithm, self._password, salt, rounds)
        key = hmac.digest(salted, b"Client Key", self._algorithm)
        without = f"c=biws,r={found[1]}"
        signed = f"{self._bare},{challenge.decode()},{without}".encode()
        signature = hmac.digest(hashlib.new(self._algorithm, key).digest(), signed, self._algorithm)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        server_key = hmac.digest(salted, b"Server Key", self._algorithm)
        self._verifier = b"v=" + base64.b64encode(hmac.digest(server_key, signed, self._algorithm))
        return f"{without},p={proof}".encode()

    def is_servers(self, token: bytes) -> bool:
        """Whether the server knows the password too."""
        return token == self._verifier


# -- key stores and trust stores -----------------------------------------------------------------
# Key stores and trust stores for tests, good and bad, and clients that connect by them.

STORE_WORD = "store-word-7Pq"
"""The password of the stores that are PKCS12."""
WAITS = 3.0
"""Seconds; a connection without an answer by then is not served."""


class Stores:
    """PEM files in a directory: keys and chains of the broker, trusted authorities, clients. Two have a copy
    in PKCS12, `renewed.p12` and `both.p12`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        first, second = trustme.CA(), trustme.CA()
        names = ("127.0.0.1", "localhost")
        broker = _issued(first, *names)
        self._put("broker", broker)
        self._put("renewed", _issued(first, *names))
        self._put("renamed", _issued(first, *names, name="other"))
        self._put("fewer", _issued(first, names[0]))
        self._write("mixed", _key(broker) + _issued(first, *names).cert_chain_pems[0].bytes())
        self._write("garbage", b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
        self._write("first", first.cert_pem.bytes())
        self._write("second", second.cert_pem.bytes())
        self._write("both", first.cert_pem.bytes() + second.cert_pem.bytes())
        self._put_java_stores()
        for user, authority in (("alice", first), ("bob", second)):
            self._put(user, authority.issue_cert(f"{user}@example.org", common_name=user))

    def _put_java_stores(self) -> None:
        how = serialization.BestAvailableEncryption(STORE_WORD.encode())
        pem = Path(self("renewed")).read_bytes()
        key: Any = serialization.load_pem_private_key(pem, None)
        own, *others = x509.load_pem_x509_certificates(pem)
        store = pkcs12.serialize_key_and_certificates(b"broker", key, own, others, how)
        (self.directory / "renewed.p12").write_bytes(store)
        trusted = x509.load_pem_x509_certificates(Path(self("both")).read_bytes())
        named = [pkcs12.PKCS12Certificate(one, b"%d" % at) for at, one in enumerate(trusted)]
        (self.directory / "both.p12").write_bytes(pkcs12.serialize_java_truststore(named, how))

    def _put(self, name: str, made: trustme.LeafCert) -> None:
        self._write(name, _key(made) + b"".join(one.bytes() for one in made.cert_chain_pems))

    def _write(self, name: str, data: bytes) -> None:
        (self.directory / f"{name}.pem").write_bytes(data)

    def __call__(self, name: str) -> str:
        return str(self.directory / (name if "." in name else f"{name}.pem"))

    def put(self, name: str, source: str) -> None:
        """Replace one file by the content of another."""
        self._write(name, Path(self(source)).read_bytes())

    def client(self, user: str) -> ssl.SSLContext:
        """TLS of a client with this user's certificate."""
        context = ssl.create_default_context(cafile=self("first"))
        context.load_cert_chain(self(user))
        return context

    def connection(
        self, port: int, user: str = "alice", context: ssl.SSLContext | None = None, **how: Any
    ) -> Wire:
        """A new connection that has been served a request. OSError if it is not; `how`: for wrap_socket."""
        wire = Wire("127.0.0.1", port, WAITS)
        try:
            client = context or self.client(user)
            wire.socket = client.wrap_socket(wire.socket, server_hostname="127.0.0.1", **how)
            wire.call(ApiKey.METADATA, 9, topics=[])
        except BaseException:
            wire.socket.close()
            raise
        return wire

    def lets_in(self, port: int, user: str = "alice") -> bool:
        """Whether a new connection of this user is served."""
        try:
            self.connection(port, user).socket.close()
        except OSError:
            return False
        return True


def serial(wire: Wire) -> str:
    """The number of the certificate that the broker showed to this connection."""
    assert isinstance(wire.socket, ssl.SSLSocket)
    return str((wire.socket.getpeercert() or {})["serialNumber"])


def lives(wire: Wire) -> bool:
    """Whether a connection is served another request."""
    return bool(wire.call(ApiKey.METADATA, 9, topics=[])["brokers"])


def _issued(authority: trustme.CA, *hosts: str, name: str = "broker") -> trustme.LeafCert:
    """A certificate whose distinguished name has nothing random in it."""
    return authority.issue_cert(*hosts, common_name=name, organization_unit_name="eoslog")


def _key(made: trustme.LeafCert) -> bytes:
    """The private key as Kafka reads it, PKCS #8."""
    key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# -- a broker with ACLs --------------------------------------------------------------------------
# A broker with ACLs on, users with passwords, and its administrator.

USERS = ("alice", "bob", "carol")


class Site:
    """A broker with ACLs on, users with passwords, and its administrator."""

    in_thread = False

    def __init__(self, data: Path | None = None, /, log_level: str = "error", **config: str) -> None:
        (self.port,) = free_ports(1)
        passwords = {name: f"{name}-password" for name in USERS} | {ADMIN: SECRET}
        self.broker = EmbeddedBroker(
            data,
            config={
                "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{self.port}",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(**passwords),
                "authorizer.class.name": STANDARD,
                "super.users": f"User:{ADMIN};User:nobody-else",
            }
            | config,
            log_level=log_level,
            in_thread=self.in_thread,
        )

    def client(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": SECRET if user == ADMIN else f"{user}-password",
            **more,
        }

    def wire(self, user: str) -> Wire:
        """A raw connection of a user."""
        wire = Wire("127.0.0.1", self.port)
        wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        token = f"\0{user}\0{SECRET if user == ADMIN else user + '-password'}".encode()
        assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)["error_code"] == 0
        return wire

    def admin(self) -> AdminClient:
        return AdminClient(self.client(ADMIN))

    def create(self, *topics: str) -> None:
        admin = self.admin()
        for done in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
            done.result(10)

    def change(self, user: str, *rules: str, deny: bool = False, prefixed: bool = False) -> None:
        """Add rules as "WRITE TOPIC name"."""
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        bindings = []
        for rule in rules:
            operation, kind, name = rule.split()
            bindings.append(
                AclBinding(
                    ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind],
                    name,
                    pattern,
                    f"User:{user}",
                    "*",
                    AclOperation[operation],
                    permission,
                )
            )
        admin = self.admin()
        for done in admin.create_acls(bindings).values():
            done.result(10)

    def forget(self) -> None:
        """Remove all rules."""
        whatever: Any = None  # confluent-kafka's types leave out that a filter may have no name
        everything = AclBindingFilter(
            ResourceType.ANY,
            whatever,
            ResourcePatternType.ANY,
            whatever,
            whatever,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = self.admin()
        for done in admin.delete_acls([everything]).values():
            done.result(10)

    def __enter__(self) -> Self:
        self.broker.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.broker.__exit__(*error)
