"""A fork of the warm process is the process that Spark wanted; without one, everything runs as it would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from eoslog.warm import ask
from eoslog.warm.request import DAEMON, SOURCE_RUNNER, Request, begun_with, decode, differences, for_imports
from tests.kit.program import until

# -- the stand-in for the JVM --------------------------------------------------------------------
# Drives the stand-in for Spark's JVM, and speaks to what it starts as the JVM does.

_HERE = Path(__file__).parent
_PATH = f"{_HERE.parents[1]}:{_HERE}"
PYTHON = (sys.executable,)
LAUNCHER = (*PYTHON, "-c", "from eoslog.spark_python import main; main()")
"""What the command eoslog-python becomes, with the sources of this checkout."""
SECRET = "open sesame"


class Jvm:
    """A process named java, in whose name Python is started."""

    def __init__(self, folder: Path, **environment: str) -> None:
        java = folder / "java"
        if not java.exists():
            java.symlink_to(os.path.realpath(sys.executable))
        self.log = folder / "log"
        given = {
            "PWD": str(folder),
            "PYTHONPATH": _PATH,
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            **environment,
        }
        self._process = subprocess.Popen(
            [java, _HERE / "stand_in.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log.open("a"), text=True, cwd=folder,
            env={**os.environ, **given},
        )  # fmt: skip
        self.pid = self._process.pid

    def start(
        self, *arguments: str, python: tuple[str, ...] = LAUNCHER, ignoring: bool = False, **environment: str
    ) -> Started:
        return self.run(arguments, python, environment, ignoring)

    def run(
        self,
        arguments: Sequence[str],
        python: Sequence[str],
        environment: Mapping[str, str],
        ignoring: bool = False,
    ) -> Started:
        return Started(self, self.ask("start", [*python, *arguments], environment, ignoring))

    def daemon(self, worker: str = "pyspark_probe", **environment: str) -> Started:
        return self.run(["-m", "pyspark.daemon", worker], LAUNCHER, environment)

    def ask(self, *command: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def warm(self) -> list[psutil.Process]:
        """Its warm processes, without their forks."""
        found = {}
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = one.cmdline()
                if command[1:3] == ["-m", "eoslog.warm"] and command[-1] == str(self.pid):
                    found[one.pid] = one, one.ppid()
        return [one for one, parent in found.values() if parent not in found]


class Started:
    """What it started, by the process that stands for it."""

    def __init__(self, jvm: Jvm, pid: int) -> None:
        self.jvm, self.pid = jvm, pid

    def worker(self) -> dict[str, Any]:
        """What a worker of this daemon says of itself."""
        port = getattr(self, "_port", None) or struct.unpack("!i", bytes.fromhex(self.read(4)))[0]
        self._port = port
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            stream = connection.makefile("rwb")
            (pid,) = struct.unpack("!i", stream.read(4))
            stream.write(struct.pack("!i", len(SECRET)) + SECRET.encode())
            stream.flush()
            assert stream.read(6)[4:] == b"ok"
            told = json.loads(stream.readline())
        return {**told, "pid": pid}

    def read(self, size: int = 0) -> str:
        return str(self.jvm.ask("read", self.pid, size))

    def end(self) -> int:
        """Ask a daemon to end, as Spark does; its exit status."""
        self.jvm.ask("close", self.pid)
        return self.wait()

    def wait(self) -> int:
        return int(self.jvm.ask("wait", self.pid))


@contextlib.contextmanager
def running(folder: Path, **environment: str) -> Iterator[Jvm]:
    jvm = Jvm(folder, **environment)
    try:
        yield jvm
    finally:
        jvm.kill()


def state(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in ("_", "SHLVL", "LC_CTYPE")}


# -- when a fork may stand for a process ---------------------------------------------------------
# When a fork may stand for the process that Spark wanted.

SPARKS = {"PATH": "/bin", "PYTHONHASHSEED": "0", "PYTHONPATH": "/spark/pyspark.zip:/spark/py4j.zip"}


def request(module: str = DAEMON, *arguments: str, folder: str = "/work", **environment: str) -> Request:
    return Request(module, list(arguments), SPARKS | environment, folder, 0o22, False)


@pytest.mark.parametrize(
    "wanted",
    [
        request(),
        request(SOURCE_RUNNER),
        request(SPARK_LOCAL_DIRS="/tmp/other", PYTHON_WORKER_FACTORY_SECRET="other"),
        request(OMP_NUM_THREADS="1"),
        request(PYTHONPATH="/spark/pyspark.zip:/spark/py4j.zip:/spark/pyspark.zip"),
    ],
)
def test_it_may(wanted: Request) -> None:
    assert differences(request(), wanted) == []


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (request("my.daemon"), ["it would run my.daemon"]),
        (request(folder="/elsewhere"), ["its working directory"]),
        (request(OMP_NUM_THREADS="2"), ["OMP_NUM_THREADS=2"]),
        (request(PYTHONPATH="/spark/py4j.zip:/spark/pyspark.zip"), ["PYTHONPATH"]),
        (request(PYTHONHASHSEED="1", MINE="1"), ["MINE", "PYTHONHASHSEED"]),
        (request(SPARK_TESTING="1"), ["SPARK_TESTING"]),
    ],
)
def test_it_may_not(wanted: Request, why: list[str]) -> None:
    assert differences(request(), wanted) == why


def test_what_it_imports_with_is_no_difference() -> None:
    warm = request()._replace(environment=begun_with(for_imports(SPARKS)))
    assert differences(warm, request()) == []
    assert differences(warm, request(JE_ARROW_MALLOC_CONF="narenas:1")) == ["JE_ARROW_MALLOC_CONF"]


def test_it_is_told_whole() -> None:
    wanted = request(SOURCE_RUNNER, "a b", NAME="\udcff\n")
    assert decode(wanted.encode()) == wanted


@pytest.mark.parametrize(
    ("wanted", "worker", "name"),
    [
        (request(), "pyspark.worker", "pyspark.worker"),
        (request(DAEMON, "pyspark.sql.worker.look"), "pyspark.sql.worker.look", "look"),
        (request(SOURCE_RUNNER), SOURCE_RUNNER, "streaming_sourc"),
    ],
)
def test_whose_imports_it_needs_and_what_it_is_called(wanted: Request, worker: str, name: str) -> None:
    assert (wanted.worker(), wanted.name()) == (worker, name)


# -- forks ---------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
STARTS = int(os.environ.get("EOSLOG_WARM_STARTS", "50"))
ENDED = 1
"""A daemon's exit status when Spark closes its standard input (shutdown of pyspark.daemon)."""


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    with running(tmp_path_factory.mktemp("jvm")) as one:
        yield one


def plain(jvm: Jvm, **environment: str) -> dict[str, Any]:
    """What the same worker says that Python itself has started."""
    daemon = jvm.run(["-m", "pyspark.daemon", "pyspark_probe"], PYTHON, environment)
    told = daemon.worker()
    assert daemon.end() == ENDED
    return told


def test_a_fork_is_what_spark_wanted(jvm: Jvm) -> None:
    own = {"SPARK_REUSE_WORKER": "1", "OMP_NUM_THREADS": "1", "SPARK_LOCAL_DIRS": "/a b\udcff"}
    daemon = jvm.daemon(**own)
    told, expected = daemon.worker(), plain(jvm, **own)
    (warm,) = jvm.warm()
    assert psutil.Process(told["parent"]).name() == "pyspark_probe"
    assert told["grandparent"] == warm.pid and expected["grandparent"] == jvm.pid
    assert told["driver"] == expected["driver"] == jvm.pid
    assert state(told["environment"]) == state(expected["environment"])
    alike = ("arguments", "folder", "umask", "main", "is_sparks", "interrupts", "descriptors", "pyspark")
    assert {name: told[name] for name in alike} == {name: expected[name] for name in alike}
    assert (told["threads"], told["pandas"], expected["pandas"]) == (1, True, False)
    assert daemon.end() == ENDED


def ignores_interrupts(process: int) -> bool:
    line = next(x for x in Path(f"/proc/{process}/status").read_text().splitlines() if x.startswith("SigIgn"))
    return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)


@pytest.mark.parametrize("ignoring", [False, True])
def test_interrupts_are_heard_or_ignored_as_spark_wanted(jvm: Jvm, ignoring: bool) -> None:
    for python in (PYTHON, LAUNCHER):
        daemon = jvm.start("-m", "pyspark.daemon", "pyspark_probe", python=python, ignoring=ignoring)
        assert ignores_interrupts(daemon.worker()["parent"]) is ignoring
        assert daemon.end() == ENDED


def test_daemons_share_one_warm_process(jvm: Jvm) -> None:
    daemons = [jvm.daemon(PYTHON_WORKER_FACTORY_SECRET=SECRET, SPARK_LOCAL_DIRS=str(one)) for one in range(4)]
    told = [one.worker() for one in daemons]
    (warm,) = {one["grandparent"] for one in told}
    assert [one["descriptors"] for one in told] == [told[0]["descriptors"]] * 4
    assert [one.pid for one in jvm.warm()] == [warm]
    assert [one.end() for one in daemons] == [ENDED] * 4


def test_workers_draw_numbers_of_their_own(jvm: Jvm) -> None:
    first, second = jvm.daemon(), jvm.daemon()
    drawn = [daemon.worker()["numbers"] for daemon in (first, first, second, second)]
    assert len({number for numbers in drawn for number in numbers}) == 8
    assert first.end() == second.end() == ENDED


@pytest.mark.parametrize(
    "environment",
    [
        {"OMP_NUM_THREADS": "4"},
        {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}:/elsewhere"},
        {"PYTHONHASHSEED": "7"},
        {"LD_LIBRARY_PATH": "/elsewhere"},
        {"OF_THE_USER": "1"},
        {"JE_ARROW_MALLOC_CONF": "narenas:1"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_libraries_may_have_read_is_no_fork_s_to_change(jvm: Jvm, environment: dict[str, str]) -> None:
    daemon = jvm.daemon(**environment)
    told = daemon.worker()
    assert told["grandparent"] == jvm.pid and not told["pandas"]
    assert told["environment"].items() >= environment.items()
    assert daemon.end() == ENDED


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "import os, sys; print(os.getppid(), *sys.argv[1:])", "a b"],
        ["-m", "pyspark_says", "a b"],
        ["{folder}/pyspark_says.py", "a b"],
    ],
    ids=["-c", "-m", "a file"],
)
def test_a_program_of_the_user_s_is_never_a_fork(jvm: Jvm, tmp_path: Path, arguments: list[str]) -> None:
    program = "import os, sys; print(os.getppid(), *sys.argv[1:])"
    (tmp_path / "pyspark_says.py").write_text(program)
    given = [one.format(folder=tmp_path) for one in arguments]
    before = jvm.log.read_text()
    one = jvm.start(*given, PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert bytes.fromhex(one.read()).decode() == f"{jvm.pid} a b\n" and one.wait() == 0
    assert jvm.log.read_text() == before, "no warm process was asked"


def test_who_stands_for_a_fork_ends_as_it_ends(jvm: Jvm) -> None:
    failing = jvm.start("-m", "pyspark.sql.streaming.python_streaming_source_runner")
    assert failing.wait() == 1  # nobody has said where to connect to
    daemon = jvm.daemon()
    fork = daemon.worker()["parent"]
    os.kill(fork, signal.SIGKILL)
    assert daemon.wait() == -signal.SIGKILL


@pytest.mark.parametrize("killed", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_ends_when_spark_kills_who_stands_for_it(jvm: Jvm, killed: signal.Signals) -> None:
    daemon = jvm.daemon()
    fork = daemon.worker()["parent"]
    os.kill(daemon.pid, killed)
    assert daemon.wait() == -killed
    until(lambda: not psutil.pid_exists(fork))


def test_a_killed_warm_process_takes_nobody_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as jvm:
        before = jvm.daemon()
        (warm,) = jvm.warm() or [psutil.Process(before.worker()["grandparent"])]
        warm.kill()
        assert before.worker()["pid"]
        after = jvm.daemon()
        assert after.worker()["grandparent"] not in (warm.pid, jvm.pid)
        assert after.end() == ENDED
        assert before.end() == ENDED


def test_a_stuck_warm_process_holds_one_up_and_no_second(tmp_path: Path) -> None:
    with running(tmp_path) as jvm:
        first = jvm.daemon()
        stuck = first.worker()["grandparent"]
        os.kill(stuck, signal.SIGSTOP)
        second = jvm.daemon()
        assert second.worker()["grandparent"] == jvm.pid
        assert f"the warm process {stuck} has not answered within 4 s and is killed" in jvm.log.read_text()
        third = jvm.daemon()
        assert third.worker()["grandparent"] not in (stuck, jvm.pid)
        assert first.worker()["pid"], "its fork lives"
        assert second.end() == third.end() == ENDED


@pytest.mark.parametrize(("busy", "said"), [(True, "has much to do"), (False, "is killed")])
def test_who_works_is_not_killed(
    busy: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an answer Spark's process runs by itself, long before Spark gives it up."""
    assert ask.ANSWER_SECONDS <= 5.0
    other = subprocess.Popen([sys.executable, "-c", "while True: pass", "eoslog.warm"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        until(lambda: b"eoslog.warm" in Path(f"/proc/{other.pid}/cmdline").read_bytes())
        if not busy:
            other.send_signal(signal.SIGSTOP)
            until(lambda: psutil.Process(other.pid).status() == psutil.STATUS_STOPPED)
        monkeypatch.setattr(ask, "peer", lambda connection: (other.pid, os.geteuid()))
        monkeypatch.setattr(ask, "ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(ask, "_silent", False)
        assert not ask._is_taken(ours, Request("m", [], {}, "/", 0o22, False))
        assert said in capsys.readouterr().err
        assert busy or other.wait(10) == -signal.SIGKILL
        assert not busy or other.poll() is None
    finally:
        other.kill()
        other.wait()
        theirs.close()


@pytest.mark.parametrize("worker", ["pyspark.sql.worker.lookup_data_sources", "pyspark_probe"])
def test_nothing_stays_behind_a_killed_jvm(tmp_path: Path, worker: str) -> None:
    with running(tmp_path) as jvm:
        daemon = jvm.daemon(worker)
        if worker == "pyspark_probe":
            daemon.worker()
        until(jvm.warm)
        own = psutil.Process(jvm.pid).children(recursive=True)
        jvm.kill()
        until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in own))
        assert not jvm.warm()


def test_each_jvm_has_its_own(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    with running(tmp_path / "a") as one, running(tmp_path / "b") as other:
        daemons = one.daemon(), other.daemon()
        assert [daemon.worker()["driver"] for daemon in daemons] == [one.pid, other.pid]
        assert len({daemon.worker()["grandparent"] for daemon in daemons} | {one.pid, other.pid}) == 4


def test_each_environment_of_python_has_its_own(monkeypatch: pytest.MonkeyPatch, jvm: Jvm) -> None:
    here = ask.address(jvm.pid)
    monkeypatch.setattr(sys, "executable", "/another/venv/bin/python")
    assert here is not None and ask.address(jvm.pid) not in (here, None)


def test_only_a_jvm_has_one() -> None:
    assert ask.address(os.getpid()) is None


def test_garbage_does_it_no_harm(jvm: Jvm) -> None:
    daemon = jvm.daemon()
    told = daemon.worker()
    name = ask.address(jvm.pid)
    assert name is not None

    def answer(message: bytes, streams: list[int]) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(name)
            socket.send_fds(connection, [message], streams) if streams else connection.send(message)
            return connection.recv(ask.LONGEST)

    messages = [
        b"",
        b"\x00\xff",
        b"[]",
        b'["a"]',
        b"[1, 2, 3, 4, 5, 6]",
        b'["", [], [], "", 1, true]',
        b"{}",
        b"go",
    ]
    for message in messages:
        assert answer(message, []) not in (b"", ask.WAIT, ask.YES), message
    good = Request("pyspark.daemon", ["pyspark_probe"], told["environment"], told["folder"], 0o22, False)
    for streams in ([], [0], [0, 1]):
        assert answer(good.encode(), streams) == b"standard streams are missing"
    assert answer(good.encode(), [0, 1, 2]) == ask.YES
    assert daemon.worker()["grandparent"] == told["grandparent"] and daemon.end() == ENDED


@contextlib.contextmanager
def stranger(does: Callable[[Callable[[str], object], Callable[[], object]], None]) -> Iterator[IO[str]]:
    """Another user's process, which says what it finds and may wait until the block is left."""
    said, leaves = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(60)
        with contextlib.suppress(OSError):
            os.setuid(65534)
            os.close(leaves[1])
            does(lambda word: os.write(said[1], f"{word}\n".encode()), lambda: os.read(leaves[0], 1))
        os._exit(0)
    for end in (said[1], leaves[0]):
        os.close(end)
    try:
        with os.fdopen(said[0]) as told:
            yield told
    finally:
        os.close(leaves[1])
        os.waitpid(process, 0)


somebody_else = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def test_a_fork_holds_nothing_of_others(jvm: Jvm) -> None:
    first = jvm.daemon()
    told = first.worker()
    name = ask.address(jvm.pid)
    assert name is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        waiting.connect(name)
        wanted = Request("pyspark.daemon", [], told["environment"], told["folder"], 0o22, False)
        socket.send_fds(waiting, [wanted.encode()], [0, 1, 2])
        assert waiting.recv(ask.LONGEST) == ask.YES
        second = jvm.daemon()
        assert second.worker()["descriptors"] == told["descriptors"]
    assert first.end() == second.end() == ENDED


@somebody_else
def test_nobody_else_is_answered(jvm: Jvm) -> None:
    daemon = jvm.daemon()
    warm = daemon.worker()["grandparent"]
    name = ask.address(jvm.pid)
    assert name is not None

    def asks(say: Callable[[str], object], _: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(name)
            say("connected")
            connection.send(b"[]")
            say(connection.recv(16).decode() or "closed")

    with stranger(asks) as told:
        assert told.read() in ("connected\nclosed\n", "connected\n")
    assert daemon.worker()["grandparent"] == warm and daemon.end() == ENDED


@somebody_else
def test_a_name_that_somebody_else_holds_is_not_trusted(tmp_path: Path) -> None:
    def squats(say: Callable[[str], object], wait: Callable[[], object]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            assert name is not None
            listening.bind(name)
            listening.listen()
            say("there")
            guest, _ = listening.accept()
            guest.send(ask.YES)
            wait()

    with running(tmp_path) as jvm:
        name = ask.address(jvm.pid)
        assert name is not None
        with stranger(squats) as told:
            assert told.readline() == "there\n"
            daemon = jvm.daemon()
            assert daemon.worker()["grandparent"] == jvm.pid and daemon.end() == ENDED


def test_starts_leave_nothing_behind(jvm: Jvm) -> None:
    first = jvm.daemon()
    warm = psutil.Process(first.worker()["grandparent"])
    before = warm.num_fds(), warm.memory_info().rss
    for _ in range(STARTS // 5):
        daemons = [jvm.daemon() for _ in range(5)]
        told = [one.worker() for one in daemons]
        assert warm.num_fds() <= before[0] + 2 * len(told), "a connection and an end of each"
        assert [one.end() for one in daemons] == [ENDED] * 5
    assert warm.num_fds() == before[0] and not [one for one in warm.children() if one.status() == "zombie"]
    assert warm.memory_info().rss < before[1] + 5_000_000
    assert first.worker()["grandparent"] == warm.pid and first.end() == ENDED


def test_it_writes_no_file(tmp_path: Path) -> None:
    """A home that cannot be written to, or is not there, is as good as any."""
    (tmp_path / "home").mkdir(mode=0o500)
    with running(tmp_path, HOME=str(tmp_path / "home"), TMPDIR="/nowhere") as jvm:
        daemon = jvm.daemon()
        assert daemon.worker()["grandparent"] not in (jvm.pid, 1) and daemon.end() == ENDED
        assert not list((tmp_path / "home").iterdir())


# -- the hook that pip installs ------------------------------------------------------------------
# Python itself asks, without a setting, where packaging/eoslog.pth lies beside its packages.

HOOK = ROOT / "packaging" / "eoslog.pth"
LOOK = ("-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources")


@pytest.fixture
def hooked(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that executes the hook at its start, as site does beside packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / HOOK.name).write_text(HOOK.read_text())
    text = f"import site; site.addpackage({str(folder)!r}, {HOOK.name!r}, set())"
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{folder}:{_PATH}:/spark/pyspark.zip"}


def test_a_look_for_data_sources_begins_a_warm_process(tmp_path: Path, hooked: dict[str, str]) -> None:
    with running(tmp_path, **hooked) as jvm:
        look = jvm.start(*LOOK, python=PYTHON)
        assert look.read(4) and len(jvm.warm()) == 1
        daemon = jvm.start("-m", "pyspark.daemon", "pyspark_probe", python=PYTHON)
        told = daemon.worker()
        assert told["grandparent"] == jvm.warm()[0].pid and told["driver"] == jvm.pid
        assert look.end() == daemon.end() == ENDED
        assert jvm.log.read_text() == ""


def test_without_a_look_nothing_begins_and_nothing_differs(tmp_path: Path, hooked: dict[str, str]) -> None:
    with running(tmp_path, **hooked) as jvm:
        told = []
        for off in ("1", "0"):
            daemon = jvm.start("-m", "pyspark.daemon", "pyspark_probe", python=PYTHON, EOSLOG_WARM=off)
            told.append(daemon.worker())
            assert daemon.end() == ENDED
        assert jvm.warm() == []
        assert told[0]["grandparent"] == jvm.pid and told[0]["path"] == told[1]["path"]


@pytest.mark.parametrize("environment", [{"EOSLOG_WARM": "0"}, {"OMP_NUM_THREADS": "4"}], ids=str)
def test_it_can_be_turned_off(tmp_path: Path, hooked: dict[str, str], environment: dict[str, str]) -> None:
    with running(tmp_path, **hooked, **environment) as jvm:
        look = jvm.start(*LOOK, python=PYTHON)
        assert look.read(4) and jvm.warm() == []
        assert look.end() == ENDED


def test_what_cannot_be_a_fork_starts_by_itself_without_a_word(
    tmp_path: Path, hooked: dict[str, str]
) -> None:
    with running(tmp_path, **hooked) as jvm:
        look = jvm.start(*LOOK, python=PYTHON)
        assert look.read(4) and jvm.warm()
        other = jvm.start("-m", "pyspark.daemon", "pyspark_probe", python=PYTHON, OF_THE_USER="1")
        assert other.worker()["grandparent"] == jvm.pid
        assert look.end() == other.end() == ENDED
        assert jvm.log.read_text() == ""


def test_eoslog_python_that_asked_in_vain_asks_once(tmp_path: Path, hooked: dict[str, str]) -> None:
    with running(tmp_path, **hooked) as jvm:
        first = jvm.start(*LOOK)
        assert first.read(4) and jvm.warm()
        other = jvm.daemon(OF_THE_USER="1")
        assert other.worker()["grandparent"] == jvm.pid
        assert first.end() == other.end() == ENDED
        assert jvm.log.read_text().count("is no fork") == 1


def test_other_starts_of_python_do_not_even_import_eoslog(tmp_path: Path, hooked: dict[str, str]) -> None:
    said = "import sys; print([name for name in sys.modules if name.startswith('eoslog')])"
    (tmp_path / "pysparkling.py").write_text(said)
    for arguments in (["-c", said], ["-m", "pysparkling"], [str(tmp_path / "pysparkling.py")]):
        given = {**os.environ, **hooked}
        done = subprocess.run(
            [*PYTHON, *arguments], env=given, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_hook_that_fails_leaves_the_path_as_it_was(tmp_path: Path, hooked: dict[str, str]) -> None:
    """A broken eoslog breaks no other program of this Python."""
    site = tmp_path / "site"
    for name, text in {
        "eoslog/warm/ask.py": "raise RuntimeError('broken')",
        "pyspark/says.py": "import sys; print('/spark/pyspark.zip' in sys.path)",
    }.items():
        (site / name).parent.mkdir(parents=True)
        (site / name).write_text(text)
        (site / name.split("/")[0] / "__init__.py").touch()
    command = [*PYTHON, "-m", "pyspark.says"]
    done = subprocess.run(command, env={**os.environ, **hooked}, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n" and "RuntimeError: broken" in done.stderr
