"""`eoslog.testing`: brokers in a process and in a thread, faults of requests, and the pytest plugin."""

from __future__ import annotations

import logging
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TypedDict

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import BrokerFailed, EmbeddedBroker, FaultTimeout
from tests.broker.broker_clients import Wire, create, numbers, read_all

# -- brokers ---------------------------------------------------------------------------------------
# A broker in a process or a thread through its lives: ready soon, killed, without power, on a bad disk.


PATIENCE = 60
"""Seconds that anything may take which is bound to happen."""


class Mode(TypedDict, total=False):
    """How a broker is run: with faults in a process, or in a thread."""

    faults: bool
    in_thread: bool


MODES: dict[str, Mode] = {"process": {"faults": True}, "thread": {"in_thread": True}}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    return MODES[request.param]


def write(broker: EmbeddedBroker, *values: int) -> int:
    """Answers how many were not acknowledged."""
    failed: list[object] = []
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "linger.ms": 0, "retry.backoff.ms": 10,
        "message.timeout.ms": 1500,
    })  # fmt: skip

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce("t", str(value), partition=0, on_delivery=told)
    return producer.flush(20) + len(failed)


def test_it_starts_in_a_process_that_has_many_files_open() -> None:
    """select() knows 1,024 of them."""
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, highest), highest))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < 1024:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        with EmbeddedBroker(faults=True) as broker:
            assert write(broker, 1) == 0
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, highest))


def test_ready_soon(mode: Mode) -> None:
    """The promise is 0.3 s. Of the processor's time: what else the machine does is not the broker's."""
    times = []
    for _ in range(3):
        before = time.process_time()
        with EmbeddedBroker(**mode) as broker:
            its_own = sum(psutil.Process(broker.pid).cpu_times()[:2]) if broker.pid != os.getpid() else 0.0
            times.append(its_own + time.process_time() - before)
            assert broker.ready_after > 0
    print(f"{mode}: ready on an empty directory after {', '.join(f'{t:.3f}' for t in times)} s")
    assert min(times) < 1.5


def test_lives(mode: Mode, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "d", **mode) as broker:
        port = broker.port
        create(broker.bootstrap, "t")
        assert write(broker, 1, 2) == 0
        broker.kill()
        with pytest.raises(BrokerFailed, match="no broker runs"):
            broker.kill()
        with pytest.raises(ConnectionRefusedError):
            Wire(broker.host, port)
        if sys.platform == "linux":
            assert port < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
            with socket.socket() as another, pytest.raises(OSError, match="in use"):
                another.bind((broker.host, port))  # as a connection of any other program would
        broker.start()
        assert write(broker, 3) == 0
        broker.restart()
        assert broker.port == port
        assert write(broker, 4) == 0
        assert broker.stop() == 0
        broker.start()
        assert numbers(read_all(broker.bootstrap, "t")) == {0: [1, 2, 3, 4]}
    assert (tmp_path / "d").is_dir()


def test_a_temporary_directory_goes(mode: Mode) -> None:
    with EmbeddedBroker(**mode) as broker:
        data = broker.data
        assert data.is_dir()
    assert not data.exists()
    assert not Path(f"{data}.unsynced").exists()


@pytest.mark.parametrize(("flush", "left"), [("fsync", [1, 2, 3]), ("os", [])])
@pytest.mark.parametrize("keep", ["nothing", "some"])
def test_a_power_loss(mode: Mode, flush: str, left: list[int], keep: str) -> None:
    """With fsync what was acknowledged is there; with flush=os, as with Kafka, it may be gone."""
    with EmbeddedBroker(flush=flush, **mode) as broker:
        create(broker.bootstrap, "t")
        assert write(broker, 1, 2, 3) == 0
        broker.lose_unsynced(keep=keep, seed=1)  # type: ignore[arg-type]
        broker.start()
        found = numbers(read_all(broker.bootstrap, "t")).get(0, [])
        if keep == "nothing" or flush == "fsync":
            assert found == left
        assert found == [1, 2, 3][: len(found)]


def test_a_kill_loses_nothing_even_unsynced(mode: Mode) -> None:
    with EmbeddedBroker(flush="os", **mode) as broker:
        create(broker.bootstrap, "t")
        assert write(broker, 1, 2, 3) == 0
        broker.kill()
        broker.start()
        assert numbers(read_all(broker.bootstrap, "t")) == {0: [1, 2, 3]}


def test_a_write_fails_and_the_next_try_goes_through(mode: Mode) -> None:
    with EmbeddedBroker(**mode) as broker:
        create(broker.bootstrap, "t")
        fault = broker.faults.fail_write(path="t-0/", times=1)
        assert write(broker, 1) == 0
        assert fault.happened == 1
        assert numbers(read_all(broker.bootstrap, "t")) == {0: [1]}


def test_a_failed_fsync_takes_the_partition_offline_until_a_restart(mode: Mode) -> None:
    with EmbeddedBroker(**mode) as broker:
        create(broker.bootstrap, "t")
        assert write(broker, 1) == 0
        broker.faults.fail_fsync(path="t-0/")
        assert write(broker, 2) == 1
        broker.kill()
        broker.start()
        assert write(broker, 3) == 0
        assert numbers(read_all(broker.bootstrap, "t")) == {0: [1, 3]}


def test_a_full_disk(mode: Mode) -> None:
    with EmbeddedBroker(**mode) as broker:
        create(broker.bootstrap, "t")
        full = broker.faults.disk_full(10)
        assert write(broker, 1) == 1
        full.wait()
        full.disarm()
        assert write(broker, 2) == 0
        assert numbers(read_all(broker.bootstrap, "t")) == {0: [2]}
        again = broker.faults.disk_full()
        assert again.happened == 0
        broker.faults.disarm()
        assert write(broker, 3) == 0


def test_faults_may_wait_for_the_start(mode: Mode, tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "d", **mode)
    broker.faults.fail_fsync(path="meta.properties")
    with pytest.raises(BrokerFailed, match="cannot be used"):
        broker.start()
    with broker, Wire(broker.host, broker.port) as wire:
        assert wire.call(ApiKey.API_VERSIONS, 0)["error_code"] == 0


def test_in_a_thread_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = threading.active_count()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with EmbeddedBroker(in_thread=True) as broker:
                create(broker.bootstrap, "t")
                write(broker, 1)
                broker.kill()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    left = [
        thread.name for thread in threading.enumerate() if "eoslog" in thread.name or "flush" in thread.name
    ]
    assert not left, f"{left}, {before} threads before"


def test_an_option_that_is_none(mode: Mode) -> None:
    with pytest.raises(BrokerFailed, match=r"no\.such\.option"):
        EmbeddedBroker(config={"no.such.option": "1"}, **mode).start()


@pytest.mark.parametrize("faults", [True, False])
def test_the_end_of_the_starter_is_the_end_of_the_broker(faults: bool) -> None:
    """The channel is closed when the starter dies, by whatever: nothing of a test run stays behind."""
    with EmbeddedBroker(faults=faults) as broker:
        life = broker._running()
        life._channel.close()  # type: ignore[attr-defined]
        assert life._process.wait(PATIENCE) == 0  # type: ignore[attr-defined]
        broker._ended()


@pytest.mark.parametrize("faults", [True, False])
def test_an_interrupt_is_the_starter_s_alone(faults: bool) -> None:
    """Jupyter's stop button and Ctrl-C send SIGINT to the whole process group. A program that goes on has its
    broker still; one that ends takes it along, even without a context."""
    code = (
        "import sys, time\n"
        "from eoslog.testing import EmbeddedBroker\n"
        f"broker = EmbeddedBroker(faults={faults}).start()\n"
        "try:\n"
        "    print(broker.pid, broker.port, flush=True)\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as starter:
        assert starter.stdout is not None
        pid, port = map(int, starter.stdout.readline().split())
        broker = psutil.Process(pid)
        os.killpg(starter.pid, signal.SIGINT)
        assert starter.stdout.readline() == "interrupted\n"
        assert os.getpgid(pid) != os.getpgid(starter.pid), "the broker gets the starter's signals"
        with Wire("127.0.0.1", port) as wire:
            assert wire.call(ApiKey.METADATA, 9, topics=None)["brokers"]
        os.killpg(starter.pid, signal.SIGINT)
        assert starter.wait(PATIENCE)
        psutil.wait_procs([broker], PATIENCE)
        assert not broker.is_running()


def test_a_cell_that_is_run_twice_hears_of_its_first_broker(mode: Mode, tmp_path: Path) -> None:
    """On its port, or on its directory. Stopped, as the message says, the next one starts."""
    first = EmbeddedBroker(tmp_path / "d", **mode).start()
    again = [
        EmbeddedBroker(port=first.port, **mode),
        EmbeddedBroker(tmp_path / "d", **mode),
    ]
    said = f"an EmbeddedBroker of this process runs there already, .*process {first.pid}"
    for one in again:
        with pytest.raises(BrokerFailed, match=said):
            one.start()
    first.stop()
    for one in again:
        with one:
            assert one.bootstrap
        with pytest.raises(BrokerFailed, match="no broker runs"):
            one.stop()


def test_the_cell_of_the_page_may_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "examples.md").read_text()
    (cell,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "EmbeddedBroker" in one)
    monkeypatch.chdir(tmp_path)
    names: dict[str, EmbeddedBroker] = {}
    exec(cell, names)
    first = names["broker"]
    try:
        exec(cell, names)
        assert names["broker"] is first
    finally:
        first.stop()


# -- faults of requests ----------------------------------------------------------------------------
# Faults of requests, answers and connections, through the wire, in a process and in a thread.


def produce(value: bytes = b"x", partition: int = 0) -> dict[str, object]:
    records = encode_records([(None, value)], int(time.time() * 1000))
    topic = {"name": "t", "partition_data": [{"index": partition, "records": records}]}
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [topic]}


def end(wire: Wire, partition: int = 0) -> int:
    asked = {"partition_index": partition, "timestamp": -1}
    topics = [{"name": "t", "partitions": [asked]}]
    answer = wire.call(ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=topics)
    offset: int = answer["topics"][0]["partitions"][0]["offset"]
    return offset


def after(broker: EmbeddedBroker, partition: int = 0) -> int:
    with Wire(broker.host, broker.port) as wire:
        return end(wire, partition)


def test_a_dropped_request_is_not_carried_out(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    fault = faulty.faults.drop_request("Produce", nth=2)
    assert wire.call(ApiKey.PRODUCE, 9, **produce())["responses"]
    with pytest.raises(ConnectionError):
        wire.call(ApiKey.PRODUCE, 9, **produce())
    assert fault.happened == 1
    assert after(faulty) == before + 1


def test_a_dropped_answer_was_carried_out(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    fault = faulty.faults.drop_answer("Produce")
    with pytest.raises(ConnectionError):
        wire.call(ApiKey.PRODUCE, 9, **produce())
    fault.wait(timeout=60)
    assert after(faulty) == before + 1


@pytest.mark.parametrize(("how", "written"), [("drop_request", 0), ("drop_answer", 2)])
def test_silence(faulty: EmbeddedBroker, how: str, written: int) -> None:
    before = after(faulty)
    getattr(faulty.faults, how)("Produce", cut=False)
    with Wire(faulty.host, faulty.port, timeout=0.3) as wire:
        for _ in range(2):
            wire.send(ApiKey.PRODUCE, 9, **produce())
        with pytest.raises(TimeoutError):
            wire.receive(ApiKey.PRODUCE, 9)
    assert after(faulty) == before + written


def test_a_delayed_request_holds_up_what_comes_after(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    faulty.faults.delay_request(0.3, "Produce")
    begun = time.monotonic()
    wire.send(ApiKey.PRODUCE, 9, **produce(b"1"))
    wire.send(ApiKey.PRODUCE, 9, **produce(b"2"))
    assert after(faulty) == before
    offsets = [
        wire.receive(ApiKey.PRODUCE, 9)["responses"][0]["partition_responses"][0]["base_offset"]
        for _ in range(2)
    ]
    assert offsets == [before, before + 1]
    assert time.monotonic() - begun >= 0.3


def test_a_delayed_answer_was_carried_out_at_once(faulty: EmbeddedBroker, wire: Wire) -> None:
    before = end(wire)
    faulty.faults.delay_answer(0.4, "Produce")
    begun = time.monotonic()
    wire.send(ApiKey.PRODUCE, 9, **produce(b"1"))
    wire.send(ApiKey.PRODUCE, 9, **produce(b"2"))
    while after(faulty) < before + 2:
        assert time.monotonic() < begun + 5
    for _ in range(2):
        wire.receive(ApiKey.PRODUCE, 9)
    assert time.monotonic() - begun >= 0.4


@pytest.mark.parametrize("carried_out", [False, True])
def test_an_error_is_answered(faulty: EmbeddedBroker, wire: Wire, carried_out: bool) -> None:
    before = end(wire)
    faulty.faults.answer_error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2, carried_out=carried_out)
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0):
        answer = wire.call(ApiKey.PRODUCE, 9, **produce())
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == code
    assert end(wire) == before + 1 + 2 * carried_out


def test_a_client_of_a_name(faulty: EmbeddedBroker, wire: Wire) -> None:
    faulty.faults.answer_error("FindCoordinator", 15, client_id="somebody", times=0)
    assert wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)["error_code"] == 0
    faulty.faults.answer_error("FindCoordinator", 15, client_id="wire")
    assert wire.call(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)["error_code"] == 15


def test_any_api_and_disarm(faulty: EmbeddedBroker, wire: Wire) -> None:
    fault = faulty.faults.delay_answer(0.01, nth=2, times=0)
    for _ in range(3):
        end(wire)
    assert fault.happened == 2
    fault.disarm()
    end(wire)
    assert fault.happened == 0, "it is forgotten"


def test_cut_connections(faulty: EmbeddedBroker, wire: Wire) -> None:
    end(wire)
    assert faulty.faults.cut_connections() >= 1
    with pytest.raises(ConnectionError):
        end(wire)
    assert after(faulty) >= 0


def test_an_idempotent_producer_writes_once_whatever_is_lost(faulty: EmbeddedBroker) -> None:
    """The stock client at work: an answer, a request and the connections are lost under it."""
    before = after(faulty, 1)
    faulty.faults.drop_answer("Produce", nth=2, times=2)
    faulty.faults.drop_request("Produce", nth=7)
    producer = Producer({
        "bootstrap.servers": faulty.bootstrap, "enable.idempotence": True, "linger.ms": 0,
        "batch.num.messages": 1, "reconnect.backoff.ms": 10, "retry.backoff.ms": 10,
    })  # fmt: skip
    failed: list[object] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for number in range(20):
        producer.produce("t", str(number), partition=1, on_delivery=told)
    assert producer.flush(20) == 0
    assert not failed
    with Wire(faulty.host, faulty.port) as wire:
        answer = wire.call(
            ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            topics=[{"topic": "t", "partitions": [
                {"partition": 1, "fetch_offset": before, "partition_max_bytes": 1 << 20}]}],
        )  # fmt: skip
    records = answer["responses"][0]["partitions"][0]["records"]
    assert sum(header.count for _, header in iter_headers(records)) == 20


def test_what_does_not_exist_is_refused(faulty: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match=r"no API is named 'Produced': is it Produce\?$"):
        faulty.faults.drop_request("Produced")
    with pytest.raises(ValueError, match=r"no API is named 'xyz': see docs/apis\.md$"):
        faulty.faults.drop_request("xyz")
    with pytest.raises(ValueError, match="nth=0"):
        faulty.faults.drop_request("Produce", nth=0)
    with pytest.raises(FaultTimeout, match="happened 0 times"):
        faulty.faults.drop_request("EndTxn").wait(timeout=0.05)


def test_a_broker_without_faults_says_so(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    with pytest.raises(BrokerFailed, match="faults=True"):
        broker.faults.cut_connections()
    with pytest.raises(BrokerFailed, match="faults=True"):
        broker.lose_unsynced()


def test_a_fault_of_an_error_reaches_a_stock_client(faulty: EmbeddedBroker) -> None:
    faulty.faults.answer_error("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=0)
    producer = Producer({"bootstrap.servers": faulty.bootstrap, "transactional.id": "x"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(10)
    assert caught.value.args[0].code() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# -- the plugin ------------------------------------------------------------------------------------
# The pytest plugin: found by its entry point, quiet when not used, set by marker, option and ini file.


pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
USE = """
    import socket

    def test_one(eoslog_broker):
        socket.create_connection((eoslog_broker.host, eoslog_broker.port)).close()
        print("THREAD" if eoslog_broker.pid == __import__("os").getpid() else "PROCESS")

    def test_two(eoslog_broker):
        assert eoslog_broker.faults.cut_connections() == 0
        eoslog_broker.kill()
        eoslog_broker.start()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytest in a process of its own that has the plugin, as an entry point gives it."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p eoslog.pytest_plugin")
    return pytester


def test_a_broker_for_each_test(run: pytest.Pytester) -> None:
    run.makepyfile(USE)
    result = run.runpytest_subprocess("-s", "-W", "error")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines("*PROCESS*")


def test_in_a_thread_by_the_command_line(run: pytest.Pytester) -> None:
    run.makepyfile(USE)
    result = run.runpytest_subprocess("-s", "--eoslog-in-thread")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines("*THREAD*")


def test_settings_of_the_ini_file_and_the_nearest_marker(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\neoslog_flush = os\neoslog_in_thread = true\n")
    run.makepyfile("""
        import pytest

        pytestmark = pytest.mark.eoslog_broker(config={"num.partitions": "3"}, log_level="error")

        def test_ini(eoslog_broker):
            assert eoslog_broker._flush == "os"
            assert eoslog_broker._config == {"num.partitions": "3"}

        @pytest.mark.eoslog_broker(config={"num.partitions": "5"}, flush="fsync")
        def test_marker(eoslog_broker):
            assert eoslog_broker._flush == "fsync"
            assert eoslog_broker._config == {"num.partitions": "5"}
            assert eoslog_broker._log_level == "error"
    """)
    run.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2)
    result = run.runpytest_subprocess("--eoslog-flush", "fsync")
    result.assert_outcomes(passed=1, failed=1)


def test_one_broker_for_all(run: pytest.Pytester) -> None:
    run.makepyfile("""
        ports = set()

        def test_one(eoslog_session_broker):
            ports.add(eoslog_session_broker.port)

        def test_two(eoslog_session_broker):
            assert ports == {eoslog_session_broker.port}
    """)
    run.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize("mark", ["parts=3", "'a'"])
def test_a_marker_that_makes_no_sense(run: pytest.Pytester, mark: str) -> None:
    run.makepyfile(f"""
        import pytest

        @pytest.mark.eoslog_broker({mark})
        def test_it(eoslog_broker): ...
    """)
    result = run.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*marker eoslog_broker of *test_it does not know*it takes data, port, flush*")


def test_unused_it_imports_nothing(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import sys

        def test_modules():
            loaded = {name for name in sys.modules if name.startswith("eoslog")}
            assert loaded <= {"eoslog", "eoslog.pytest_plugin", "eoslog.registration", "eoslog.version"}
            assert not {"numpy", "pyarrow", "click", "asyncio"} & set(sys.modules)
    """)
    run.runpytest_subprocess().assert_outcomes(passed=1)


def test_installed(tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the built package, far from the source tree, by the entry point alone."""
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("eoslog", "protocol", "broker", "client", "connector"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "pyspark_eoslog.py"):
        shutil.copy(ROOT / name, source)
    (source / "packaging").mkdir()
    shutil.copy(ROOT / "packaging" / "eoslog-python", source / "packaging")
    site.mkdir()
    setup = [sys.executable, "-c", "import setuptools; setuptools.setup()"]
    commands = ["build", "--build-lib", str(site), "egg_info", "--egg-base", str(site)]
    done = subprocess.run([*setup, *commands], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(
        USE
        + f"""
    def test_where():
        import eoslog.broker
        assert eoslog.broker.__file__.startswith({str(site)!r})
    """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
