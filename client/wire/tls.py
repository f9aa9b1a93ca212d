"""TLS of a connection: the context made from the settings, and a socket wrapped in it.

Imported only if TLS is configured: Python's ssl is slow to import.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from eoslog.client.wire.security_settings import TlsSettings
from eoslog.errors import AuthenticationRefused, OptionError
from eoslog.protocol.stores import StoreError, StoreFile, is_pem, own_pem, trusted_pem

T = TypeVar("T")


def secured(plain: socket.socket, host: str, port: int, tls: TlsSettings) -> ssl.SSLSocket:
    """The socket with TLS. Raises OSError; OptionError, AuthenticationRefused if a retry would not help."""
    try:
        return context(tls).wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationRefused(
            f"{host}:{port}: the broker's certificate is not trusted: {error.verify_message}; see "
            "kafka.ssl.truststore.location and kafka.ssl.endpoint.identification.algorithm"
        ) from error
    except ssl.SSLError as error:
        raise ConnectionError(
            f"no TLS with it ({error.reason}); does this port speak TLS (kafka.security.protocol)?"
        ) from error


@lru_cache(maxsize=16)
def context(tls: TlsSettings) -> ssl.SSLContext:
    """The TLS context for these settings. Raises OptionError naming the option whose file is wrong."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = tls.check_name
    versions = [ssl.TLSVersion[name.replace(".", "_")] for name in tls.versions]
    made.minimum_version, made.maximum_version = min(versions), max(versions)
    _load_trusted(made, tls)
    _load_own(made, tls)
    return made


def _load_trusted(made: ssl.SSLContext, tls: TlsSettings) -> None:
    """Load what the client trusts: as in Java, each certificate of the store by itself."""
    if tls.ca_file is None and tls.ca_text is None:
        made.load_default_certs()
        return
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    file, text = tls.ca_file, tls.ca_text
    if file is not None:
        store = _store("kafka.ssl.truststore", file, tls.ca_type, tls.ca_password)
        if not _read(lambda: is_pem(store)):
            file, text = None, _read(lambda: trusted_pem(store)) + (text or "")
    _load(
        "kafka.ssl.truststore.location or .certificates",
        lambda: made.load_verify_locations(cafile=file, cadata=text),
    )


def _load_own(made: ssl.SSLContext, tls: TlsSettings) -> None:
    """Load the client's own key and certificates, if there are any."""
    if tls.certificate_file is not None:
        certificate, key = tls.certificate_file, tls.key_file
        store = _store("kafka.ssl.keystore", certificate, tls.certificate_type, tls.certificate_password)
        if _read(lambda: is_pem(store)):
            _load(
                "kafka.ssl.keystore.location",
                lambda: made.load_cert_chain(certificate, key, lambda: tls.key_password or ""),
            )
        else:
            pem = _read(lambda: own_pem(store, tls.key_password))
            _load("kafka.ssl.keystore.location", lambda: _load_text(made, pem, store.password or ""))
    elif tls.certificate_text is not None:
        pem = f"{tls.key_text}\n{tls.certificate_text}\n"
        _load(
            "kafka.ssl.keystore.certificate.chain or .key",
            lambda: _load_text(made, pem, tls.key_password or ""),
        )


def _store(option: str, path: str, kind: str | None, password: str | None) -> StoreFile:
    try:
        with open(path, "rb") as file:
            return StoreFile(option, path, kind, password, file.read())
    except OSError as error:
        raise OptionError(
            f"option {option}.location cannot be used: {path}: {error.strerror}; give a file that exists on "
            "every machine that runs the query's tasks"
        ) from error


def _read(action: Callable[[], T]) -> T:
    """What a store holds. Raises OptionError."""
    try:
        return action()
    except StoreError as error:
        raise OptionError(f"option {error}") from None


def _load_text(made: ssl.SSLContext, pem: str, password: str) -> None:
    with _private_file(pem) as path:
        made.load_cert_chain(path, None, lambda: password)


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    """A file, as the ssl module reads nothing else: on Linux in memory alone, elsewhere with mode 0600, and
    removed at once."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("eoslog"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as named:
            named.write(text)
            named.flush()
            yield named.name


def _load(option: str, action: Any) -> None:
    try:
        action()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
        raise OptionError(
            f"option {option} cannot be used: {reason}; give PEM that exists on every machine that "
            "runs the query's tasks"
        ) from error
