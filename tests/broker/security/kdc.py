"""A Kerberos realm of a test's own: MIT's KDC in a temporary folder, on a free port, without root."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.broker.security.securitykit import free_ports

REALM = "EOSLOG.TEST"
BROKER = f"kafka/localhost@{REALM}"
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")
_SECONDS = 30.0


def missing() -> str:
    """What a realm needs and is not there; empty: nothing."""
    lacking = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if importlib.util.find_spec("gssapi") is None:
        lacking.append("python-gssapi")
    return ", ".join(lacking)


class Kdc:
    """A running KDC. Within the context KRB5_CONFIG names its krb5.conf. `life`: of tickets, in seconds."""

    def __init__(self, life: int = 600) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="eoslog-kdc-"))
        (self.port,) = free_ports(1)
        self.config = self.folder / "krb5.conf"
        self._log = self.folder / "kdc.log"
        self._life = life
        self._process: subprocess.Popen[bytes] | None = None
        self._set: dict[str, str | None] = {}
        self.write_config(self.port)
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.folder}/principal\n"
            f"  key_stash_file = {self.folder}/stash\n  acl_file = {self.folder}/acl\n"
            f"  max_life = {life}s\n  max_renewable_life = 0s\n }}\n"
            f"[logging]\n kdc = FILE:{self._log}\n"
        )

    def write_config(self, port: int, more: str = "") -> None:
        """krb5.conf with the KDC at a port."""
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" rdns = false\n dns_canonicalize_hostname = false\n ticket_lifetime = {self._life}s\n{more}"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        """For the realm's programs and its clients."""
        return {
            **os.environ, "PATH": _PATH, "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"), "KRB5CCNAME": f"FILE:{self.folder}/cache",
            "KRB5RCACHENAME": f"dfl:{self.folder}/replays", "KRB5RCACHEDIR": str(self.folder),
        }  # fmt: skip

    def run(self, *command: str) -> str:
        """Run one of the realm's programs."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        return done.stdout

    def keytab(self, principal: str, file: str = "") -> str:
        """A keytab with a new key of a principal, which is made if it is not there."""
        path = str(self.folder / (file or principal.replace("/", "_").partition("@")[0] + ".keytab"))
        if principal not in self.run("kadmin.local", "listprincs"):
            self.run("kadmin.local", "addprinc", "+requires_preauth", "-randkey", principal)
        self.run("kadmin.local", "ktadd", "-k", path, principal)
        return path

    def start(self) -> None:
        """Start the KDC; returns when it answers."""
        self._process = subprocess.Popen(
            [str(shutil.which("krb5kdc", path=_PATH)), "-n"], env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "the KDC does not listen"
                time.sleep(0.05)

    def stop(self) -> None:
        """End the KDC."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(_SECONDS)
            self._process = None

    def __enter__(self) -> Self:
        names = ("KRB5_CONFIG", "KRB5CCNAME", "KRB5RCACHENAME", "KRB5RCACHEDIR")
        self._set = {name: os.environ.get(name) for name in names}
        os.environ.update({name: self.environment[name] for name in names})
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "only for this test")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for name, value in self._set.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(self.folder, ignore_errors=True)
