"""Java's key and trust stores, JKS and PKCS12: what they hold as PEM, or what is wrong. Pure."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

# -- JKS -------------------------------------------------------------------------------------------
# Java's JKS stores: what a file says, and how the password opens it. Pure.
#
# The format is that of sun.security.provider.JavaKeyStore. Aliases, certificates and the encrypted keys are
# followed by a SHA-1 digest of all of it and the password. A key is encrypted by a stream of such digests.
# The library for it, pyjks, has had no release since 2020, and needs a C compiler to be installed.


MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_DIGEST = 20  # bytes of SHA-1
_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1 in DER
_OCTET_STRING = 0x04


class JksError(ValueError):
    """The file is damaged, or the password is another one."""


class JksKey(NamedTuple):
    """A private key, still encrypted, and its certificates in DER, its own first."""

    alias: str
    encrypted: bytes
    chain: tuple[bytes, ...]


class Jks(NamedTuple):
    """What a store holds. `certificates`: the trusted ones, in DER."""

    keys: tuple[JksKey, ...]
    certificates: tuple[bytes, ...]


def parse(data: bytes, password: str | None) -> Jks:
    """Read a store. Without a password nothing checks that it is whole, as in Java. Raises JksError."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if password is not None:
        expected = hashlib.sha1(_bytes(password) + b"Mighty Aphrodite" + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the digest does not fit")
    try:
        return _Reader(body).store()
    except (struct.error, UnicodeDecodeError) as error:
        raise JksError("the file ends too early, or is damaged") from error


def decrypted(key: JksKey, password: str) -> bytes:
    """The key as PKCS #8 in DER. Raises JksError."""
    at = key.encrypted.find(_KEY_PROTECTOR)
    if at < 0:
        raise JksError("the key is not encrypted as in JKS")
    protected = _octets(key.encrypted, at + len(_KEY_PROTECTOR))
    salt, hidden, digest = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    secret, block = _bytes(password), salt
    stream = bytearray()
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), digest):
        raise JksError("the digest does not fit")
    return plain


def _bytes(password: str) -> bytes:
    return password.encode("utf-16-be")


def _octets(der: bytes, after: int) -> bytes:
    """The octet string that follows the algorithm, whose parameters may be NULL. Raises JksError."""
    if der[after : after + 2] == b"\x05\x00":
        after += 2
    if der[after : after + 1] != bytes([_OCTET_STRING]):
        raise JksError("the key is not encrypted as in JKS")
    first = int.from_bytes(der[after + 1 : after + 2])
    if first < 0x80:
        return der[after + 2 : after + 2 + first]
    start = after + 2 + (first & 0x7F)
    return der[start : start + int.from_bytes(der[after + 2 : start])]


class _Reader:
    """Reads Java's DataOutput from the begin of a store."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def store(self) -> Jks:
        magic, version, count = struct.unpack(">4sii", self._take(12))
        if magic != MAGIC or version not in (1, 2):
            raise JksError(f"no JKS store of version 1 or 2, but of {version}")
        keys, certificates = [], []
        for _ in range(count):
            kind, alias, _time = self._int(), self._text(), self._take(8)
            if kind == _KEY:
                encrypted = self._take(self._int())
                chain = tuple(self._certificate(version) for _ in range(self._int()))
                keys.append(JksKey(alias, encrypted, chain))
            elif kind == _CERTIFICATE:
                certificates.append(self._certificate(version))
            else:
                raise JksError(f"an entry of kind {kind}")
        return Jks(tuple(keys), tuple(certificates))

    def _certificate(self, version: int) -> bytes:
        if version == 2:
            self._text()  # its type, always X.509
        return self._take(self._int())

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if size < 0 or len(taken) < size:
            raise JksError("the file ends too early, or is damaged")
        self._at += size
        return taken

    def _int(self) -> int:
        value: int = struct.unpack(">i", self._take(4))[0]
        return value

    def _text(self) -> str:
        return self._take(struct.unpack(">H", self._take(2))[0]).decode("utf-8", "replace")


# -- stores of both formats ------------------------------------------------------------------------
# The types JKS and PKCS12 each read files of both formats, as in Java. `cryptography` (extra `keystores`)
# opens PKCS12 and reads the certificates' dates.


_KEY_BAG = bytes.fromhex("060b2a864886f70d010c0a0102")  # pkcs8ShroudedKeyBag (RFC 7292) in DER
_MAGIC = {
    MAGIC: "JKS",
    b"\xce\xce\xce\xce": "JCEKS",
}
_PEM_HEAD = b"-----BEGIN "
_SEQUENCE = b"\x30"  # how a PKCS12 file begins


class StoreError(ValueError):
    """A store cannot be used. The text begins with the option that is wrong, and says what to do."""


class _Key(NamedTuple):
    alias: str
    key: bytes  # PKCS #8 in DER
    chain: tuple[bytes, ...]


@dataclass(frozen=True)
class StoreFile:
    """A store that options name. `option`: ssl.keystore or ssl.truststore, with what stands before it where
    the option is given. `kind` None: what the file is. `data`: the whole file."""

    option: str
    path: str
    kind: str | None
    password: str | None = field(repr=False)
    data: bytes = field(repr=False)

    @property
    def key_password(self) -> str:
        """The name of the option with the key's password."""
        return self.option.replace("keystore", "key").replace("truststore", "key") + ".password"


def is_pem(store: StoreFile) -> bool:
    """Whether it is a PEM file. Raises StoreError: it is of another type."""
    found = _kind(store.data)
    wanted = store.kind.upper() if store.kind else found
    if found not in ("PEM", "JKS", "PKCS12") or (wanted == "PEM") != (found == "PEM"):
        other = f", not {wanted}" if wanted != found else ""
        raise StoreError(
            f"{store.option}.type: {store.path} is {found}{other}: correct the type or the location; "
            "keytool -importkeystore -deststoretype PKCS12 converts JCEKS and others"
        )
    if found == "PEM" and store.password is not None:
        raise StoreError(
            f"{store.option}.password: {store.path} is PEM, which has no store password: leave it "
            f"out; {store.key_password} is that of an encrypted key"
        )
    return found == "PEM"


def trusted_pem(store: StoreFile) -> str:
    """The certificates of a trust store. Raises StoreError."""
    _library(store)
    if _kind(store.data) == "JKS":
        found = _jks(store)
        certificates = [*found.certificates, *(key.chain[0] for key in found.keys if key.chain)]
    else:
        key, others = _pkcs12(store)
        certificates = [*([key.chain[0]] if key is not None and key.chain else []), *others]
    if not certificates:
        raise StoreError(
            f"{store.option}.location: {store.path} has no certificate: add those of the other side's "
            "authority with keytool -importcert"
        )
    now = datetime.now(UTC)
    ends = [_ends(one) for one in certificates]
    if max(ends) < now:
        raise StoreError(
            f"{store.option}.location: all certificates in {store.path} have expired, the last on "
            f"{max(ends):%Y-%m-%d}: add those that replace them"
        )
    return "".join(ssl.DER_cert_to_PEM_cert(one) for one in certificates)


def own_pem(store: StoreFile, key_password: str | None) -> str:
    """The private key of a key store, encrypted with the store's password, and its certificates. Raises
    StoreError."""
    _library(store)
    if store.password is None:
        raise StoreError(f"{store.option}.password is missing: {store.path} has an encrypted key: give it")
    key = (_own_jks if _kind(store.data) == "JKS" else _own_pkcs12)(store, key_password)
    if not key.chain:
        raise StoreError(f"{store.option}.location: the key in {store.path} has no certificate: add it")
    if (end := _ends(key.chain[0])) < datetime.now(UTC):
        raise StoreError(
            f"{store.option}.location: the certificate of the key {key.alias!r} in {store.path} "
            f"expired on {end:%Y-%m-%d}: give a renewed one"
        )
    return _encrypted(key.key, store.password) + "".join(ssl.DER_cert_to_PEM_cert(one) for one in key.chain)


def _library(store: StoreFile) -> None:
    try:
        import cryptography  # noqa: F401 (here the error can name the option)
    except ImportError:
        raise StoreError(
            f"{store.option}.location: {store.path} is no PEM, and JKS and PKCS12 need cryptography: install "
            "it with pip install 'eoslog[keystores]', for a query also where its tasks run, or give PEM"
        ) from None


def _encrypted(key: bytes, password: str) -> str:
    """The key as PEM. OpenSSL reads keys from files alone: so that none lies on a disk in clear."""
    from cryptography.hazmat.primitives import serialization as coded

    how = coded.BestAvailableEncryption(password.encode()) if password else coded.NoEncryption()
    loaded = coded.load_der_private_key(key, None)
    return loaded.private_bytes(coded.Encoding.PEM, coded.PrivateFormat.PKCS8, how).decode()


def _kind(data: bytes) -> str:
    if _PEM_HEAD in data:
        return "PEM"
    return _MAGIC.get(data[:4]) or ("PKCS12" if data[:1] == _SEQUENCE else "neither PEM, JKS nor PKCS12")


def _own_jks(store: StoreFile, key_password: str | None) -> _Key:
    keys = _jks(store).keys
    key = keys[_only(store, [one.alias for one in keys])]
    try:
        return _Key(key.alias, decrypted(key, key_password or store.password or ""), key.chain)
    except JksError:
        raise StoreError(
            f"{store.key_password} does not decrypt the key {key.alias!r} of {store.path}: correct it; "
            "without it the key must have the store's password"
        ) from None


def _own_pkcs12(store: StoreFile, key_password: str | None) -> _Key:
    if key_password is not None and key_password != store.password:
        raise StoreError(
            f"{store.key_password}: {store.path} is PKCS12, where the key has the store's password: leave "
            "it out"
        )
    key, _ = _pkcs12(store)
    keys = store.data.count(_KEY_BAG)
    _only(store, [] if key is None else [key.alias, *["another"] * (keys - 1)])
    assert key is not None
    return key


def _only(store: StoreFile, aliases: Sequence[str]) -> int:
    """Which key: there must be a single one, so that nobody logs in as somebody else."""
    if len(aliases) != 1:
        found = "no private key" if not aliases else f"{len(aliases)} private keys ({', '.join(aliases)})"
        raise StoreError(
            f"{store.option}.location: {store.path} has {found}: give a store with the one key that is meant "
            "(keytool -importkeystore -srcalias)"
        )
    return 0


def _jks(store: StoreFile) -> Jks:
    try:
        return parse(store.data, store.password)
    except JksError:
        raise _not_opened(store) from None


def _pkcs12(store: StoreFile) -> tuple[_Key | None, list[bytes]]:
    """The key with its certificates, and the other certificates."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        found = pkcs12.load_pkcs12(store.data, None if store.password is None else store.password.encode())
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


def _not_opened(store: StoreFile) -> StoreError:
    if store.password is None:
        return StoreError(
            f"{store.option}.password is missing: {store.path} cannot be read without it: give it"
        )
    return StoreError(
        f"{store.option}.password does not open {store.path}: the password is wrong, or the file is "
        f"damaged; check both with keytool -list -keystore {store.path}"
    )


def _ends(certificate: bytes) -> datetime:
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc
