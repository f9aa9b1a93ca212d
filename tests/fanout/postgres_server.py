"""A real PostgreSQL server on 127.0.0.1, with a database `shop` and its owner, who has a password and no
other rights. It is killed, started again, copied."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
import pytest

PATIENCE_S = 120.0
_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda one: int(one.parts[4]))
_ON_PATH = shutil.which("postgres")
PROGRAMS = _FOUND[-1].parent if _FOUND else Path(_ON_PATH).parent if _ON_PATH else None
NEEDS_SERVER = pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL server is installed")
_AS: dict[str, Any] = (
    {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
)
"""Servers do not run as root."""


class PostgresServer:
    """A server with a data directory of its own, which syncs to the disk as it comes."""

    def __init__(self, copied: PostgresServer | None = None) -> None:
        """`copied`: a standby's state, taken from a server that runs."""
        self.folder = Path(tempfile.mkdtemp(prefix="eoslog-postgres-"))
        self.data, self.passwords = self.folder / "data", self.folder / "passwords"
        self.passwords.write_text("*:*:*:postgres:secret\n*:*:*:writer:s3cret\n")
        self.passwords.chmod(0o600)
        secret = self.folder / "secret"
        secret.write_text("secret")
        for path in (self.folder, self.passwords, secret) if _AS else ():
            shutil.chown(path, "postgres", "postgres")
        self._log = (self.folder / "log").open("ab")
        if copied is not None:
            self._run(
                "pg_basebackup",
                "-D",
                self.data,
                "-d",
                copied.conninfo("postgres", "postgres"),
                "-X",
                "stream",
                "-c",
                "fast",
            )
            return
        self._run(
            "initdb", "-D", self.data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", secret, "-N"
        )
        with self.start().connected("postgres", "postgres") as admin:
            admin.execute("CREATE ROLE writer LOGIN PASSWORD 's3cret'")
            admin.execute("CREATE DATABASE shop OWNER writer")

    def conninfo(self, user: str = "writer", database: str = "shop") -> str:
        """Without a password."""
        who = f"user={user} dbname={database} passfile={self.passwords}"
        return f"host=127.0.0.1 port={self.port} {who} connect_timeout=60"

    def connected(self, user: str = "writer", database: str = "shop") -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo(user, database), autocommit=True)

    def rows(self, statement: str, *given: object) -> list[Any]:
        """What a reader sees."""
        with self.connected() as connection:
            return connection.execute(statement.encode(), given).fetchall()

    def do(self, *statements: str) -> None:
        """What the owner of the database does."""
        with self.connected() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def start(self) -> Self:
        """Another port each time: the last one may be another program's by now."""
        assert PROGRAMS is not None
        until = time.monotonic() + PATIENCE_S
        while True:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = int(free.getsockname()[1])
            command = [
                PROGRAMS / "postgres", "-D", self.data, "-p", self.port, "-c", "listen_addresses=127.0.0.1",
                "-c", "unix_socket_directories=", "-c", "max_connections=50",
            ]  # fmt: skip
            self._process = psutil.Popen(
                [*map(str, command)], stdout=self._log, stderr=self._log, cwd=self.folder, **_AS
            )
            while self._process.poll() is None:
                try:
                    self.connected("postgres", "postgres").close()
                    return self
                except psycopg.OperationalError:
                    assert time.monotonic() < until, self._said()
                    time.sleep(0.02)
            assert time.monotonic() < until, self._said()

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        family = [self._process, *self._process.children(recursive=True)]
        for process in family:
            if process.is_running():
                process.kill()
        self._process.wait()
        psutil.wait_procs(family, PATIENCE_S)

    def remove(self) -> None:
        """The end of it."""
        if self._process.poll() is None:
            self.kill()
        self._log.close()
        shutil.rmtree(self.folder)

    def dumped(self, *how: str) -> bytes:
        """pg_dump's."""
        return self._run("pg_dump", "-d", self.conninfo("postgres"), *how)

    def restore(self, dump: bytes) -> None:
        """A dump, by psql."""
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.conninfo("postgres"), stdin=dump)

    def _run(self, program: str, *given: object, stdin: bytes = b"") -> bytes:
        assert PROGRAMS is not None
        done = subprocess.run(
            [str(PROGRAMS / program), *map(str, given)],
            input=stdin, capture_output=True, cwd=self.folder, check=False, **_AS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return bytes(done.stdout)

    def _said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]
