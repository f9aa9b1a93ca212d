"""Key stores and trust stores for tests, good and bad, and clients that connect by them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from eoslog.protocol.apis import ApiKey
from tests.broker.broker_clients import Wire

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
