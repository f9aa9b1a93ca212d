"""A Python with nothing in it but what a test has installed, applications in it, and a copy's judge."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.connector.brokers import Kafka
from tests.kit.program import Program, plain_python

# -- the Python ----------------------------------------------------------------------------------
# A Python with nothing in it but what a test has installed, and applications that run in it.

PATIENCE_SECONDS = 900
"""How long anything may take that is bound to happen: Spark starts, on a loaded machine, with executors."""

_APPLICATION = Path(__file__).with_name("bare_application.py")
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.app.name": "bare",
}
_KEPT = (
    "HOME",
    "JAVA_HOME",
    "LANG",
    "PIP_CACHE_DIR",
    "PIP_INDEX_URL",
    "PIP_CONFIG_FILE",
    "SSL_CERT_FILE",
    "TMPDIR",
)


class BarePython:
    """A virtual environment that sees nothing of the one that runs the tests, nor of the source tree."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        self.environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            "PATH": os.pathsep.join([str(self.bin), os.environ["PATH"]]),
            "VIRTUAL_ENV": str(folder / "venv"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def pip(self, *words: object) -> None:
        """pip with these words. Raises CalledProcessError with what pip said on standard error."""
        command = [str(self.bin / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *map(str, words)], check=True, env=self.environment, cwd=self.folder)

    def python(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A few lines of Python, somewhere else than in the source tree."""
        return subprocess.run(
            [self.bin / "python", "-c", code],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def has_eoslog(self) -> bool:
        """Whether it can import eoslog with nothing done for it."""
        return self.python("import eoslog").returncode == 0


class ThisPython:
    """The environment that runs the tests, for an application. `pyspark`: a folder with another PySpark."""

    def __init__(self, folder: Path, pyspark: Path | None = None) -> None:
        self.folder, self.bin = folder, Path(sys.executable).parent
        self.environment = plain_python()
        if pyspark is not None:
            self.environment["PYTHONPATH"] = os.pathsep.join([str(pyspark), self.environment["PYTHONPATH"]])


class Application(Program):
    """bare_application.py in a Python, by itself or as `submit` says, by a plan and Spark settings."""

    def __init__(
        self,
        bare: BarePython | ThisPython,
        folder: Path,
        plan: dict[str, Any],
        settings: dict[str, str],
        submit: list[str] | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._result = folder / "result.json"
        self._result.unlink(missing_ok=True)
        lines = [f"{name} {value}" for name, value in (_SETTINGS | settings).items()]
        lines.append(f"spark.jars.ivy {bare.folder / 'ivy'}")
        (folder / "spark-defaults.conf").write_text("\n".join(lines))
        program, *words = submit or ["python"]
        plan = plan | {"result": str(self._result)}
        super().__init__(
            [bare.bin / program, *words, _APPLICATION, json.dumps(plan)], folder / "log", folder=folder,
            environment=bare.environment | {"SPARK_CONF_DIR": str(folder)}, patience=PATIENCE_SECONDS,
        )  # fmt: skip

    def result(self) -> dict[str, Any]:
        """What it found, at its end."""
        status = self.end()
        assert status == 0, f"exit status {status}\n{self.tail()}"
        found: dict[str, Any] = json.loads(self._result.read_text())
        return found


# -- a copy and its judge ------------------------------------------------------------------------
# A topic that an application copies, and the judge of the copy.

PARTITIONS = 2


class Copy:
    """A topic of numbered rows, and the plan of an application that copies it in `batches` micro-batches."""

    def __init__(
        self, kafka: Kafka, folder: Path, master: str, rows: int = 2_000, batches: int = 4, **more: Any
    ) -> None:
        self.kafka, self.rows = kafka, list[bytes]()
        self._source = kafka.topic(PARTITIONS, f"in-{uuid.uuid4().hex[:8]}")
        self.target = kafka.topic(PARTITIONS, f"out-{uuid.uuid4().hex[:8]}")
        kafka.topic(1, f"{self.target}-batch")
        self.add(rows)
        self.settings = {"spark.master": master}
        self.plan = more | {
            "bootstrap": kafka.bootstrap,
            "source": self._source,
            "target": self.target,
            "checkpoint": str(folder / "checkpoint"),
            "limit": rows // batches,
        }

    def add(self, rows: int) -> None:
        """More rows for the source."""
        new = [b"%06d" % number for number in range(len(self.rows), len(self.rows) + rows)]
        for partition in range(PARTITIONS):
            self.kafka.put(self._source, new[partition::PARTITIONS], partition=partition)
        self.rows += new

    def check(self, result: dict[str, Any], *, origin: str, spark: str, times: int = 1) -> None:
        """Every row once, for the application itself and for a stock reader; and who has done it.
        `times`: how many applications were started that came to their end."""
        for told in result["sessions"]:
            assert (told["rows"], told["distinct"]) == (len(self.rows), len(self.rows))
            assert origin in told["eoslog"] and told["spark"].startswith(spark.rstrip("*"))
        seen = sorted(row[3] for row in self.kafka.rows(self.target, PARTITIONS))
        assert seen == self.rows, f"{len(seen)} rows, {len(set(seen))} different ones"
        assert len(self.kafka.rows(f"{self.target}-batch")) == 5 * times * len(result["sessions"])
