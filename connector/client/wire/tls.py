"""TLS of a connection: the context made from the settings, and a socket wrapped in it.

Imported only if TLS is configured: Python's ssl is slow to import.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
from functools import lru_cache
from typing import Any

from eoslog.connector.client.wire.security_settings import TlsSettings
from eoslog.connector.errors import AuthenticationRefused, OptionError


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
    if tls.ca_file is None and tls.ca_text is None:
        made.load_default_certs()
    else:
        _load(
            "kafka.ssl.truststore.location or .certificates",
            lambda: made.load_verify_locations(cafile=tls.ca_file, cadata=tls.ca_text),
        )
    if tls.certificate_file is not None:
        certificate, key = tls.certificate_file, tls.key_file
        _load(
            "kafka.ssl.keystore.location",
            lambda: made.load_cert_chain(certificate, key, lambda: tls.key_password or ""),
        )
    elif tls.certificate_text is not None:
        _load("kafka.ssl.keystore.certificate.chain or .key", lambda: _load_texts(made, tls))
    return made


def _load_texts(made: ssl.SSLContext, tls: TlsSettings) -> None:
    """Load a certificate given as text. The ssl module reads only files: use a private, short-lived one."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # made with mode 0600
        file.write(f"{tls.key_text}\n{tls.certificate_text}\n")
        file.flush()
        made.load_cert_chain(file.name, None, lambda: tls.key_password or "")


def _load(option: str, action: Any) -> None:
    try:
        action()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
        raise OptionError(
            f"option {option} cannot be used: {reason}; give PEM that exists on every machine that "
            "runs the query's tasks"
        ) from error
