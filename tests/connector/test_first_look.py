"""What is said of a streaming sink when its query starts, without a batch."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from eoslog.connector.checkpoint import Checkpoint
from eoslog.connector.checkpoint_sink import GivenTo
from eoslog.connector.errors import BrokerUnreachable, OptionError, WrongCluster
from eoslog.connector.source import EoslogDataSource
from eoslog.testing import EmbeddedBroker


@pytest.fixture
def asked(broker: EmbeddedBroker, tmp_path: Path) -> Callable[..., object]:
    """Spark asks for the columns of a sink that has this checkpoint."""

    def ask(bootstrap: str = broker.bootstrap, **more: str) -> object:
        given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "checkpointLocation": str(tmp_path)}
        named = {name.replace("__", "."): value for name, value in more.items()}
        return EoslogDataSource(CaseInsensitiveDict(given | named)).schema()

    return ask


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def given_to(folder: Path, cluster: str) -> None:
    GivenTo("sink", cluster, 0).write(Checkpoint.at(str(folder)))


def test_another_cluster_is_said_without_a_batch(asked: Callable[..., object], tmp_path: Path) -> None:
    assert asked(), "a new checkpoint has been on no cluster"
    given_to(tmp_path, "elsewhere")
    with pytest.raises(WrongCluster, match="batches were written to the cluster elsewhere") as refused:
        asked()
    now = str(refused.value).partition("leads to the cluster ")[2].partition(".")[0]
    assert asked(start__accepted=f"cluster:{now}")
    given_to(tmp_path, now)
    assert asked()


def test_nobody_there_is_said_soon(asked: Callable[..., object], tmp_path: Path) -> None:
    given_to(tmp_path, "some")
    with pytest.raises(BrokerUnreachable, match=r"within 200 ms \(first\.contact"):
        asked("127.0.0.1:1", first__contact__timeout__ms="200")


def test_options_are_read_at_once(asked: Callable[..., object]) -> None:
    with pytest.raises(OptionError, match=r"processing\.guarantee cannot be 'twice'"):
        asked(processing__guarantee="twice")
    with pytest.raises(OptionError, match=r"write\.token names a batch write"):
        asked(write__token="t")


def test_a_source_and_a_batch_write_are_none_of_its_business(tmp_path: Path) -> None:
    given_to(tmp_path, "elsewhere")
    for given in ({"subscribe": "t", "checkpointLocation": str(tmp_path)}, {"topic": "t", "mode": "never"}):
        EoslogDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "127.0.0.1:1"} | given)).schema()


def test_a_checkpoint_that_cannot_be_read_is_the_first_batchs(asked: Callable[..., object]) -> None:
    assert asked(checkpointLocation="no-such-scheme://bucket/place")
