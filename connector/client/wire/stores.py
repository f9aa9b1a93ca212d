"""Key and trust stores of Java's clients, JKS and PKCS12: what they hold as PEM, or what is wrong.

As in Java, a store's type may be left out, and the types JKS and PKCS12 each read files of both formats.
`cryptography` (extra `keystores`) opens PKCS12 and reads the certificates' dates.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from eoslog.connector.client.wire import jks
from eoslog.connector.errors import OptionError

_KEY_BAG = bytes.fromhex("060b2a864886f70d010c0a0102")  # pkcs8ShroudedKeyBag (RFC 7292) in DER
_MAGIC = {
    jks.MAGIC: "JKS",
    b"\xce\xce\xce\xce": "JCEKS",
}
_PEM_HEAD = b"-----BEGIN "
_SEQUENCE = b"\x30"  # how a PKCS12 file begins
_KEY_PASSWORD = "kafka.ssl.key.password"


class _Key(NamedTuple):
    alias: str
    key: bytes  # PKCS #8 in DER
    chain: tuple[bytes, ...]


class StoreFile(NamedTuple):
    """A store that options name. `option`: kafka.ssl.keystore or kafka.ssl.truststore."""

    option: str
    path: str
    kind: str | None
    password: str | None


def is_pem(store: StoreFile) -> bool:
    """Whether it is a PEM file. Raises OptionError: there is no file, or it is of another type."""
    found = _kind(_read(store))
    wanted = store.kind.upper() if store.kind else found
    if found not in ("PEM", "JKS", "PKCS12") or (wanted == "PEM") != (found == "PEM"):
        other = f", not {wanted}" if wanted != found else ""
        raise OptionError(
            f"option {store.option}.type: {store.path} is {found}{other}: correct the type or the location; "
            "keytool -importkeystore -deststoretype PKCS12 converts JCEKS and others"
        )
    if found == "PEM" and store.password is not None:
        raise OptionError(
            f"option {store.option}.password: {store.path} is PEM, which has no store password: leave it "
            f"out; {_KEY_PASSWORD} is that of an encrypted key"
        )
    return found == "PEM"


def trusted_pem(store: StoreFile) -> str:
    """The certificates of a trust store. Raises OptionError."""
    _library(store)
    data = _read(store)
    if _kind(data) == "JKS":
        found = _jks(store, data)
        certificates = [*found.certificates, *(key.chain[0] for key in found.keys if key.chain)]
    else:
        key, others = _pkcs12(store, data, store.password)
        certificates = [*([key.chain[0]] if key is not None and key.chain else []), *others]
    if not certificates:
        raise OptionError(
            f"option {store.option}.location: {store.path} has no certificate: add those of the brokers' "
            "authority with keytool -importcert"
        )
    now = datetime.now(UTC)
    ends = [_ends(one) for one in certificates]
    if max(ends) < now:
        raise OptionError(
            f"option {store.option}.location: all certificates in {store.path} have expired, the last on "
            f"{max(ends):%Y-%m-%d}: add those that replace them"
        )
    return "".join(ssl.DER_cert_to_PEM_cert(one) for one in certificates)


def own_pem(store: StoreFile, key_password: str | None) -> str:
    """The private key of a key store, not encrypted, and its certificates. Raises OptionError."""
    _library(store)
    if store.password is None:
        raise OptionError(
            f"option {store.option}.password is missing: {store.path} has an encrypted key: give it"
        )
    data = _read(store)
    key = (
        _own_jks(store, data, key_password)
        if _kind(data) == "JKS"
        else _own_pkcs12(store, data, key_password)
    )
    if not key.chain:
        raise OptionError(
            f"option {store.option}.location: the key in {store.path} has no certificate: add it"
        )
    if (end := _ends(key.chain[0])) < datetime.now(UTC):
        raise OptionError(
            f"option {store.option}.location: the certificate of the key {key.alias!r} in {store.path} "
            f"expired on {end:%Y-%m-%d}: give a renewed one"
        )
    coded = base64.encodebytes(key.key).decode()
    pem = f"-----BEGIN PRIVATE KEY-----\n{coded}-----END PRIVATE KEY-----\n"
    return pem + "".join(ssl.DER_cert_to_PEM_cert(one) for one in key.chain)


def _library(store: StoreFile) -> None:
    try:
        import cryptography  # noqa: F401 (here the error can name the option)
    except ImportError:
        raise OptionError(
            f"option {store.option}.location: {store.path} is no PEM, and JKS and PKCS12 need cryptography: "
            "install it with pip install 'eoslog[keystores]', also where the tasks run, or give PEM"
        ) from None


def _read(store: StoreFile) -> bytes:
    try:
        with open(store.path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OptionError(
            f"option {store.option}.location cannot be used: {store.path}: {error.strerror}; give a file "
            "that exists on every machine that runs the query's tasks"
        ) from error


def _kind(data: bytes) -> str:
    if _PEM_HEAD in data:
        return "PEM"
    return _MAGIC.get(data[:4]) or ("PKCS12" if data[:1] == _SEQUENCE else "neither PEM, JKS nor PKCS12")


def _own_jks(store: StoreFile, data: bytes, key_password: str | None) -> _Key:
    keys = _jks(store, data).keys
    key = keys[_only(store, [one.alias for one in keys])]
    try:
        return _Key(key.alias, jks.decrypted(key, key_password or store.password or ""), key.chain)
    except jks.JksError:
        raise OptionError(
            f"option {_KEY_PASSWORD} does not decrypt the key {key.alias!r} of {store.path}: correct it; "
            "without it the key must have the store's password"
        ) from None


def _own_pkcs12(store: StoreFile, data: bytes, key_password: str | None) -> _Key:
    if key_password is not None and key_password != store.password:
        raise OptionError(
            f"option {_KEY_PASSWORD}: {store.path} is PKCS12, where the key has the store's password: leave "
            "it out"
        )
    key, _ = _pkcs12(store, data, store.password)
    keys = data.count(_KEY_BAG)
    _only(store, [] if key is None else [key.alias, *["another"] * (keys - 1)])
    assert key is not None
    return key


def _only(store: StoreFile, aliases: Sequence[str]) -> int:
    """Which key: there must be a single one, so that nobody logs in as somebody else."""
    if len(aliases) != 1:
        found = "no private key" if not aliases else f"{len(aliases)} private keys ({', '.join(aliases)})"
        raise OptionError(
            f"option {store.option}.location: {store.path} has {found}: give a store with this client's key "
            "alone (keytool -importkeystore -srcalias)"
        )
    return 0


def _jks(store: StoreFile, data: bytes) -> jks.Jks:
    try:
        return jks.parse(data, store.password)
    except jks.JksError:
        raise _not_opened(store) from None


def _pkcs12(store: StoreFile, data: bytes, password: str | None) -> tuple[_Key | None, list[bytes]]:
    """The key with its certificates, and the other certificates."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise _not_opened(store) from None
    others = [one.certificate.public_bytes(Encoding.DER) for one in found.additional_certs]
    if found.key is None:
        first = [] if found.cert is None else [found.cert.certificate.public_bytes(Encoding.DER)]
        return None, [*first, *others]
    key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    if found.cert is None:
        return _Key("", key, ()), others
    name = (found.cert.friendly_name or b"").decode("utf-8", "replace")
    return _Key(name, key, (found.cert.certificate.public_bytes(Encoding.DER), *others)), others


def _not_opened(store: StoreFile) -> OptionError:
    if store.password is None:
        return OptionError(
            f"option {store.option}.password is missing: {store.path} cannot be read without it: give it"
        )
    return OptionError(
        f"option {store.option}.password does not open {store.path}: the password is wrong, or the file is "
        f"damaged; check both with keytool -list -keystore {store.path}"
    )


def _ends(certificate: bytes) -> datetime:
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc
