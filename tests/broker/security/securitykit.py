"""Certificates, tokens, ports and clients for tests of security."""

import base64
import hashlib
import hmac
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa

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
