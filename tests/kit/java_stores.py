"""Key and trust stores as people have them: made by the JDK's keytool."""

import datetime
import subprocess
from pathlib import Path

import trustme

WORD, KEY_WORD = "store-secret-5517", "key-secret-5518"
LONG_AGO = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)


def keytool(*arguments: str) -> None:
    done = subprocess.run(["keytool", *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


class Stores:
    """One authority; a store of each format with a client's key, and one with the authority's certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.keys = {kind: self.key_store(kind, "client") for kind in ("JKS", "PKCS12")}
        self.trust = {kind: self._trust_store(kind, self.ca) for kind in ("JKS", "PKCS12")}

    def _trust_store(self, kind: str, pem: Path, *, name: str = "trust") -> str:
        store = str(self.folder / f"{name}.{kind.lower()}")
        keytool(
            "-importcert", "-noprompt", "-alias", "ca", "-file", str(pem), "-keystore", store,
            "-storetype", kind, "-storepass", WORD,
        )  # fmt: skip
        return store

    def key_store(self, kind: str, name: str, *, expires: datetime.datetime | None = None) -> str:
        """The certificate comes as PKCS12 of openssl, and keytool imports it."""
        pem, store = self.pem(name, expires=expires), str(self.folder / f"{name}.{kind.lower()}")
        plain = str(self.folder / f"{name}.openssl.p12")
        command = ["openssl", "pkcs12", "-export", "-in", pem, "-out", plain, "-name", name, "-passout"]
        subprocess.run([*command, f"pass:{WORD}"], check=True, capture_output=True, timeout=100)
        keytool(
            "-importkeystore", "-srckeystore", plain, "-srcstoretype", "PKCS12", "-srcstorepass", WORD,
            "-destkeystore", store, "-deststoretype", kind, "-deststorepass", WORD,
            *(["-destkeypass", KEY_WORD, "-srcalias", name] if kind == "JKS" else []),
        )  # fmt: skip
        return store

    def expired_keys(self, kind: str) -> str:
        return self.key_store(kind, f"late-{kind.lower()}", expires=LONG_AGO)

    def expired_trust(self, kind: str) -> str:
        """A trust store whose only certificate is no longer good."""
        both = Path(self.pem("late-too", expires=LONG_AGO)).read_text()
        pem = self.folder / "late-certificate.pem"
        pem.write_text(both[both.index("-----BEGIN CERT") :])
        return self._trust_store(kind, pem, name="late-trust")

    def two_keys(self, kind: str) -> str:
        """A store in which somebody made a second key."""
        store = self.key_store(kind, f"two-{kind.lower()}")
        self._generate(store, kind, "second")
        return store

    def self_signed(self, name: str) -> tuple[str, str]:
        """A broker's key store, and a trust store with its certificate: usual without an authority."""
        store = str(self.folder / f"{name}.p12")
        self._generate(store, "PKCS12", name)
        pem = self.folder / f"{name}-certificate.pem"
        keytool(
            "-exportcert",
            "-rfc",
            "-alias",
            name,
            "-file",
            str(pem),
            "-keystore",
            store,
            "-storepass",
            WORD,
        )
        return store, self._trust_store("JKS", pem, name=f"{name}-trust")

    def _generate(self, store: str, kind: str, alias: str) -> None:
        keytool(
            "-genkeypair", "-alias", alias, "-keyalg", "EC", "-dname", f"CN={alias}",
            "-ext", "SAN=dns:localhost,ip:127.0.0.1", "-keystore", store, "-storetype", kind,
            "-storepass", WORD, "-keypass", WORD,
        )  # fmt: skip

    def pem(self, name: str, *, expires: datetime.datetime | None = None) -> str:
        """Key and certificates in one PEM file."""
        made = self.authority.issue_cert(
            "127.0.0.1", "localhost", common_name=name, organization_name="Eos",
            not_before=expires and expires - datetime.timedelta(days=9), not_after=expires,
        )  # fmt: skip
        path = self.folder / f"{name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)
