"""TLS of a listener: from Kafka's options to an `ssl.SSLContext`.

Certificates and keys are in files, PEM or Java's stores (`ssl.keystore.location`: private key and chain in
one file; `ssl.truststore.location`), or PEM texts in the options (KIP-651). If options or files change while
the broker runs, a new context takes the place of the old one: new connections use the renewed certificate,
and trust only the authorities that are trusted now.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile

from eoslog.broker.config import BrokerConfig, option_table
from eoslog.broker.config.config_def import ConfigError
from eoslog.broker.config.options import STORES
from eoslog.broker.security.listeners import Listener, own_options
from eoslog.broker.security.session import parse_rules
from eoslog.protocol.stores import StoreError, StoreFile, is_pem, own_pem, trusted_pem

logger = logging.getLogger(__name__)

_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TEXTS = {
    "ssl.keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
    "ssl.truststore": ("ssl.truststore.certificates",),
}
"""The options that stand in place of a store's file."""
_TYPES = ("JKS", "PKCS12", "PEM")

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
        key, trusted = (self._store(store) for store in _TEXTS)
        if auth != "none" and not self._files()[1:] and not self._option("ssl.truststore.certificates"):
            raise self._wrong("ssl.client.auth", f"{auth} needs ssl.truststore.location")
        self._load_key(key)
        self._load_trusted(trusted)

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
            logger.error("the new certificate is not taken: %s", error)
        else:
            logger.info("%s: certificates read anew", self._listener)

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

    def _store(self, store: str) -> StoreFile | None:
        """The file of a store, None if there is none."""
        kind = _kind(self._listener, self._config, store)
        if kind not in (None, *_TYPES):
            raise self._wrong(
                f"{store}.type",
                f"{kind} cannot be read, only {', '.join(_TYPES)}. keytool -importkeystore -srckeystore FILE"
                " -destkeystore store.p12 -deststoretype PKCS12 converts it",
            )
        path = self._option(f"{store}.location")
        for text in filter(self._option, _TEXTS[store]):
            if path:  # as in Kafka: one of them would have no effect
                raise self._wrong(text, f"give it or {store}.location, not both")
            if kind not in (None, "PEM"):
                raise self._wrong(
                    f"{store}.type", f"{kind}: {text} is PEM: correct the type, or leave it out"
                )
        if not path:
            if self._option(f"{store}.password"):  # as in Kafka
                raise self._wrong(
                    f"{store}.password", f"name its store in {store}.location, or leave the password out"
                )
            return None
        try:
            with open(path, "rb") as file:
                return StoreFile(store, path, kind, self._option(f"{store}.password") or None, file.read())
        except OSError as error:
            raise self._wrong(f"{store}.location", f"{path} cannot be read: {error.strerror}") from error

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

    def _load_trusted(self, store: StoreFile | None) -> None:
        text = _lines(self._option("ssl.truststore.certificates"))
        if store is None and not text:
            return
        try:
            if store is None or not is_pem(store):
                self.context.load_verify_locations(cadata=text if store is None else trusted_pem(store))
            else:
                self.context.load_verify_locations(store.path)
        except (ssl.SSLError, OSError) as error:
            name = "ssl.truststore.location" if store else "ssl.truststore.certificates"
            raise self._wrong(name, f"no certificates could be read ({_reason(error)})") from error
        except StoreError as error:
            raise self._unusable(error) from None

    def _load_key(self, store: StoreFile | None) -> None:
        password = self._option("ssl.key.password")
        if store is None:
            self._load_key_texts(password)
            return
        try:
            if is_pem(store):
                self._load_chain("ssl.keystore.location", store.path, password)
            else:
                pem = own_pem(store, password or None)
                self._load_chain_text("ssl.keystore.location", pem, store.password or "")
        except StoreError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: StoreError) -> ConfigError:
        return ConfigError(f"listener {self._listener.name}: {error}")

    def _load_key_texts(self, password: str) -> None:
        key, chain = self._option("ssl.keystore.key"), self._option("ssl.keystore.certificate.chain")
        if not key or not chain:
            raise self._wrong(
                "ssl.keystore.location",
                "give a file with the private key and its certificate chain"
                " (or ssl.keystore.key and ssl.keystore.certificate.chain)",
            )
        self._load_chain_text("ssl.keystore.key", _lines(key) + "\n" + _lines(chain) + "\n", password)

    def _load_chain_text(self, option: str, pem: str, password: str) -> None:
        # OpenSSL reads a chain from a file only. This file is private and deleted at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(pem)
            file.flush()
            self._load_chain(option, file.name, password)

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


def _kind(listener: Listener, config: BrokerConfig, store: str) -> str | None:
    """The type that a store was said to have; None: what its file is, as for Kafka's default."""
    name = f"{store}.type"
    own, base = own_options(config, listener.name).get(name), config.value(name)
    given = own if own is not None or base == option_table()[name].default else base
    return given.strip().upper() if given else None


def _stores(listener: Listener, config: BrokerConfig) -> list[str]:
    return [_option(listener, config, name) for name in STORES]


def _lines(pem: str) -> str:
    """A PEM text in which an option had line ends as the two characters \\n."""
    return pem.replace("\\n", "\n")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
