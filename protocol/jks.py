"""Java's JKS stores: what a file says, and how the password opens it. Pure.

The format is that of sun.security.provider.JavaKeyStore. Aliases, certificates and the encrypted keys are
followed by a SHA-1 digest of all of it and the password. A key is encrypted by a stream of such digests.
The library for it, pyjks, has had no release since 2020, and needs a C compiler to be installed.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

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
