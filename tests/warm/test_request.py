"""When a fork may stand for the process that Spark wanted."""

import pytest

from eoslog.warm.request import DAEMON, SOURCE_RUNNER, Request, begun_with, decode, differences, for_imports

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
