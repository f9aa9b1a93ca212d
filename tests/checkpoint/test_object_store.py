"""`eoslog checkpoint` on checkpoints in an object store, under the URIs that Spark's users write:
`make test-object-store`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eoslog.checkpoint.backups import EditState, newest_backup
from eoslog.client.admin.groups import fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import ArrowFiles, files_at
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import copy_topic, group_of, run
from tests.connector.brokers import Kafka
from tests.kit.object_stores import BUCKET, STORES, Store

pytestmark = pytest.mark.long

COUNTED = ("--accept-duplicates", "5")


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with STORES[request.param]() as started:
        yield started


@pytest.fixture
def stored(store: Store, decided: Path) -> str:
    """The decided checkpoint, in the store."""
    for path in decided.rglob("*"):
        if path.is_file():
            store.put(f"{decided.name}/{path.relative_to(decided)}", path.read_bytes())
    return f"{store.uri}/{decided.name}"


def files_of(uri: str) -> dict[str, bytes]:
    """A checkpoint's files, but for what an edit leaves there: its backup, and the word that copies lack."""
    files, left = files_at(uri), ("eoslog/edit", "eoslog/starts")
    return {name: files.read(name) for name in files.walk() if not name.startswith(left)}


def test_it_is_shown_and_checked(broker: EmbeddedBroker, stored: str, topic: str) -> None:
    said = json.loads(run(broker, "show", stored, "--json").output)
    assert (said["planned"], said["done"]) == (1, 1), said
    assert run(broker, "check", stored).exit_code == 0


@pytest.mark.parametrize("edit", ["rewind", "skip-to"])
def test_an_edit_and_its_undo(
    broker: EmbeddedBroker, stored: str, cluster: Cluster, topic: str, edit: str
) -> None:
    before = files_of(stored)
    accepted = COUNTED if edit == "rewind" else ("--accept-loss", "5")
    said = run(broker, edit, stored, "--by", "5", *accepted)
    assert said.exit_code == 0, said.output
    to = 15 if edit == "rewind" else 25
    assert fetch_committed(cluster, group_of(topic), None)[topic, 0][0] == to
    assert run(broker, "check", stored).exit_code == 0
    assert "rows" in run(broker, "diff", stored, "edit-0001").output
    assert run(broker, "undo", stored).exit_code == 0
    assert files_of(stored) == before and run(broker, "check", stored).exit_code == 0


def test_a_topic_more(broker: EmbeddedBroker, stored: str) -> None:
    kafka = Kafka(broker.bootstrap)
    more = kafka.topic()
    kafka.put(more, [b"1"])
    said = run(broker, "add-topic", stored, more, "--start", "earliest")
    assert said.exit_code == 0, said.output
    assert run(broker, "check", stored).exit_code == 0 and more.encode() in files_of(stored)["offsets/1"]


def test_a_fork(broker: EmbeddedBroker, stored: str, topic: str) -> None:
    new, names = f"{stored}-new", ("--transactional-id", f"new-{topic}", "--group", f"group-new-{topic}")
    said = run(broker, "fork", stored, new, *names, "--accept-duplicates", "10")
    assert said.exit_code == 0, said.output
    assert run(broker, "check", new).exit_code == 0
    assert "has files already" in run(broker, "fork", stored, new, *names).output


def test_another_cluster(broker: EmbeddedBroker, other: EmbeddedBroker, stored: str, topic: str) -> None:
    copy_topic(Kafka(broker.bootstrap), Kafka(other.bootstrap), topic, 1, before=3)
    said = run(broker, "move-cluster", stored, "--to-bootstrap-server", other.bootstrap)
    assert said.exit_code == 0, said.output
    assert run(other, "check", stored).exit_code == 0


def claims_of(stored: str) -> list[str]:
    """What edits leave that die in their first steps."""
    return [name for name in files_of(stored) if name.startswith("eoslog/claim-")]


Method = Callable[..., None]


class Died(Exception):
    """The command's process is dead."""


def dies_at(count: int, error: Exception) -> Callable[[Method], Method]:
    """Makes methods that change a file raise the error, in place of the change of this number and all after
    it."""
    changes = iter(range(1, 100))

    def dying(method: Method) -> Method:
        def changed(*given: Any, **named: Any) -> None:
            if next(changes) >= count:
                raise error
            method(*given, **named)

        return changed

    return dying


@pytest.mark.parametrize("error", [Died(), OSError("ACCESS_DENIED")], ids=["dead", "no right to write"])
def test_an_edit_that_ends_at_any_change_can_be_taken_back(
    broker: EmbeddedBroker, stored: str, error: Exception
) -> None:
    """An object is written as a whole, but there are several: `check` tells of an edit that is not done.
    There is none before its backup is written."""
    put, remove, before, count, whole = ArrowFiles.put, ArrowFiles.remove, files_of(stored), 0, False
    while not whole:
        count += 1
        dying = dies_at(count, error)
        with pytest.MonkeyPatch.context() as patch:
            for name, method in (("put", put), ("remove", remove)):
                patch.setattr(ArrowFiles, name, dying(method))
            said = run(broker, "rewind", stored, "--by", "5", *COUNTED)
        whole = said.exit_code == 0
        checked = run(broker, "check", stored)
        begun = newest_backup(Checkpoint.at(stored))
        if begun is None or begun.state is EditState.UNDONE:
            assert count <= 3 and files_of(stored).keys() - before.keys() <= set(claims_of(stored))
            continue
        if not whole:
            assert checked.exit_code == 1 and "was interrupted" in checked.output, checked.output
        assert run(broker, "undo", stored).exit_code == 0
        assert files_of(stored) == before and not claims_of(stored)
        assert run(broker, "check", stored).exit_code == 0
    assert count > 4, "several changes"


def test_what_is_not_there_and_what_is_not_known(broker: EmbeddedBroker, store: Store) -> None:
    for uri, says in (
        (f"{store.uri.replace(BUCKET, 'no-such-bucket')}/x", "no-such-bucket"),
        (f"{store.uri}/nothing", "nothing"),
        ("oss://bucket/x", "Unrecognized filesystem type"),
        ("hdfs://nowhere:1/x", "eoslog needs Hadoop's libhdfs"),
    ):
        said = run(broker, "show", uri)
        assert said.exit_code != 0 and says in said.output and "Traceback" not in said.output, said.output


@pytest.mark.parametrize("store", ["s3", "google"], indirect=True)
def test_without_keys_it_says_where_they_are_looked_for(
    broker: EmbeddedBroker, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not look for long."""
    for name in ("AWS_ENDPOINT_URL", "CLOUD_STORAGE_EMULATOR_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    said = run(broker, "show", stored)
    advice = "GOOGLE_APPLICATION_CREDENTIALS" if stored.startswith("gs") else "fs.s3a.* do not reach it"
    assert said.exit_code != 0 and advice in said.output, said.output
