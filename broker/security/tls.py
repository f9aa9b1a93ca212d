"""TLS of a listener: from Kafka's options to an `ssl.SSLContext`.

Certificates and keys are PEM, in files (`ssl.keystore.location`: private key and chain in one file;
`ssl.truststore.location`) or as texts in the options (KIP-651). If the options or the files change while the
broker runs, a new context takes the place of the old one: new connections use the renewed certificate, and
trust only the authorities that are trusted now.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.config.listener_options import STORES
from eoslog.broker.security.listeners import Listener, own_options
from eoslog.broker.security.principals import parse_rules

log = logging.getLogger(__name__)

_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TEXTS = {
    "ssl.keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
    "ssl.truststore": ("ssl.truststore.certificates",),
}
"""The options that stand in place of a store's file."""
_PEM_HEAD = b"-----BEGIN "

Stamps = list[str | tuple[int, int]]


class ListenerTls:
    """A listener's TLS context; `follow` makes a new one when its options or its files have changed."""

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        """Read the files. Raises ConfigError that names the listener and the option."""
        self._listener, self._config = listener, config
        self._seen = self.stamps()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version, self.context.maximum_version = self._versions()
        auth = self._option("ssl.client.auth")
        if auth not in _AUTH:
            raise self._wrong("ssl.client.auth", f"{auth}: must be {' or '.join(_AUTH)}")
        self.context.verify_mode = _AUTH[auth]
        parse_rules(self._option("ssl.principal.mapping.rules"))
        for store in ("ssl.keystore", "ssl.truststore"):
            self._check_store(store)
        if auth != "none" and not self._files()[1:] and not self._option("ssl.truststore.certificates"):
            raise self._wrong("ssl.client.auth", f"{auth} needs ssl.truststore.location")
        self._load()

    def follow(self) -> None:
        """Make a new context if options or files have changed. An error is logged, and the old one stays.

        The old context cannot be changed in place: it would go on to trust an authority that was removed, and
        to resume the sessions of clients that it had signed for.
        """
        stamps = self.stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self.context = ListenerTls(self._listener, self._config).context
        except ConfigError as error:
            log.error("the new certificate is not taken: %s", error)
        else:
            log.info("%s: certificates read anew", self._listener)

    def check(self, wanted: BrokerConfig) -> None:
        """Raise ConfigError if `wanted` has other stores for this listener, and they cannot be used."""
        if _stores(self._listener, wanted) != _stores(self._listener, self._config):
            ListenerTls(self._listener, wanted)

    def _option(self, name: str) -> str:
        return _option(self._listener, self._config, name)

    def _wrong(self, option: str, what: str) -> ConfigError:
        return ConfigError(f"listener {self._listener.name}: {option}: {what}")

    def _versions(self) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
        text = self._option("ssl.enabled.protocols")
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names or not set(names) <= _VERSIONS.keys():
            raise self._wrong("ssl.enabled.protocols", f"{text}: give {' or '.join(_VERSIONS)}, or both")
        versions = [_VERSIONS[name] for name in names]
        return min(versions), max(versions)

    def _check_store(self, store: str) -> None:
        kind = self._option(f"{store}.type").upper()
        if kind != "PEM":
            raise self._wrong(
                f"{store}.type",
                f"{kind} cannot be read, only PEM. Convert it: keytool -importkeystore -srckeystore FILE"
                " -destkeystore store.p12 -deststoretype PKCS12, then openssl pkcs12 -in store.p12 -nodes"
                " -out store.pem",
            )
        path = self._option(f"{store}.location")
        if not path:
            return
        for text in _TEXTS[store]:
            if self._option(text):  # as in Kafka: one of them would have no effect
                raise self._wrong(text, f"give it or {store}.location, not both")
        try:
            with open(path, "rb") as file:
                head = file.read(1 << 20)
        except OSError as error:
            raise self._wrong(f"{store}.location", f"{path} cannot be read: {error.strerror}") from error
        if _PEM_HEAD not in head:
            raise self._wrong(
                f"{store}.location", f"{path} is no PEM file (a JKS or PKCS #12 store perhaps?)"
            )

    def _files(self) -> list[str]:
        """The files of the key store and the trust store, as far as they are given."""
        options = ("ssl.keystore.location", "ssl.truststore.location")
        key, trust = (self._option(option) for option in options)
        return [key, trust] if trust else [key]

    def stamps(self) -> Stamps:
        """What the context is made of: the options of its stores, and the versions of their files."""
        stamps: Stamps = [*_stores(self._listener, self._config)]
        for path in filter(None, self._files()):
            try:
                found = os.stat(path)
                stamps.append((found.st_mtime_ns, found.st_ino))
            except OSError:
                stamps.append((0, 0))
        return stamps

    def _load(self) -> None:
        self._load_key()
        trust, text = self._option("ssl.truststore.location"), self._option("ssl.truststore.certificates")
        if not trust and not text:
            return
        try:
            self.context.load_verify_locations(trust or None, cadata=_lines(text) or None)
        except (ssl.SSLError, OSError) as error:
            name = "ssl.truststore.location" if trust else "ssl.truststore.certificates"
            raise self._wrong(name, f"no certificates could be read ({_reason(error)})") from error

    def _load_key(self) -> None:
        path, password = self._option("ssl.keystore.location"), self._option("ssl.key.password")
        if path:
            self._load_chain("ssl.keystore.location", path, password)
            return
        key, chain = self._option("ssl.keystore.key"), self._option("ssl.keystore.certificate.chain")
        if not key or not chain:
            raise self._wrong(
                "ssl.keystore.location",
                "give a PEM file with the private key and its certificate chain"
                " (or ssl.keystore.key and ssl.keystore.certificate.chain)",
            )
        # OpenSSL reads a chain from a file only. This file is private and deleted at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(_lines(key) + "\n" + _lines(chain) + "\n")
            file.flush()
            self._load_chain("ssl.keystore.key", file.name, password)

    def _load_chain(self, option: str, path: str, password: str) -> None:
        try:
            self.context.load_cert_chain(path, password=lambda: password)
        except (ssl.SSLError, OSError) as error:
            raise self._wrong(
                option, f"private key and certificate could not be read, or do not fit ({_reason(error)})"
            ) from None


def _option(listener: Listener, config: BrokerConfig, name: str) -> str:
    """An option as it is now, unlike `Listener.own`, which is as at the start."""
    value: str = own_options(config, listener.name).get(name, config.value(name))
    return value.strip()


def _stores(listener: Listener, config: BrokerConfig) -> list[str]:
    return [_option(listener, config, name) for name in STORES]


def _lines(pem: str) -> str:
    """A PEM text in which an option had line ends as the two characters \\n."""
    return pem.replace("\\n", "\n")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
