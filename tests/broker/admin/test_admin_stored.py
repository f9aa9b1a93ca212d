"""What is set while a broker runs, on a disk that fails and loses power: kept whole, or not set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from eoslog.broker.config import BrokerConfig, ConfigError
from eoslog.broker.config.topics import TopicOptions
from eoslog.broker.core.authorizer import Authorizer
from eoslog.broker.core.config_store import ConfigStore
from eoslog.broker.core.dynamic_options import DynamicOptions
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.files import BadFile
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.rules.acls import Client
from eoslog.broker.security.passwords import Credentials
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.acls import Acl, AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.scram import Credential
from tests.broker.log.logkit import FakeClock, FakeFileSystem, Outcome, PowerLoss

DATA = "/var/data"


def fresh() -> FakeFileSystem:
    """A disk with the data directory."""
    made = FakeFileSystem()
    made.make_dir(DATA)
    for directory in ("/", "/var"):
        made.sync_dir(directory)
    return made


@pytest.fixture
def fs() -> FakeFileSystem:
    return fresh()


def test_configs_are_kept_by_kind_and_name(fs: FakeFileSystem) -> None:
    store = ConfigStore(fs, DATA)
    assert (store.get("group", "g"), store.names("group")) == ({}, [])
    store.put("group", "g", {"a": "1"})
    store.put("group", "f", {"b": "2"})
    store.put("broker", "g", {"c": "3"})
    store.put("group", "f", {})
    fs.crash(Outcome.NOTHING)
    again = ConfigStore(fs, DATA)
    assert again.names("group") == again.names("broker") == ["g"]
    assert (again.get("group", "g"), again.get("broker", "g")) == ({"a": "1"}, {"c": "3"})


def test_a_crash_leaves_the_old_or_the_new() -> None:
    for steps in range(50):
        for seed, outcome in enumerate([Outcome.NOTHING, Outcome.ALL, Outcome.PREFIX, Outcome.PREFIX]):
            fs = fresh()
            store = ConfigStore(fs, DATA)
            store.put("broker", "", {"log.retention.ms": "1"})
            fs.steps_left = steps
            finished = True
            try:
                store.put("broker", "", {"log.retention.ms": "2"})
            except PowerLoss:
                finished = False
            fs.crash(outcome, Random(steps * 10 + seed))
            found = ConfigStore(fs, DATA).get("broker", "")["log.retention.ms"]
            assert found == "2" if finished else found in ("1", "2")
        if finished:
            assert steps > 2
            return
    raise AssertionError("it never ended")


def test_what_cannot_be_kept_is_not_set(fs: FakeFileSystem) -> None:
    config = BrokerConfig()
    options = DynamicOptions(config, ConfigStore(fs, DATA))
    told: list[int] = []
    options.followers.append(lambda: told.append(config.topics.retention_ms))
    options.set("", {"log.retention.ms": "5"})
    fs.capacity = 0
    with pytest.raises(KafkaError) as caught:
        options.set("", {"log.retention.ms": "6"})
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (config.topics.retention_ms, options.get(""), told) == (5, {"log.retention.ms": "5"}, [5])


def test_the_expiry_of_producer_ids_reaches_the_logs(fs: FakeFileSystem) -> None:
    config = BrokerConfig()
    options = DynamicOptions(config, ConfigStore(fs, DATA))
    topics = Topics.open(fs, DATA, config, FakeClock(), GroupFlush())
    options.followers.append(topics.configs.defaults_changed)
    partition = topics.create("t", 1).partitions[0]
    options.set("", {"producer.id.expiration.ms": "5000"})
    assert partition.settings.producer_id_expiration_ms == 5000


def test_options_that_somebody_cannot_follow_are_refused(fs: FakeFileSystem) -> None:
    config = BrokerConfig()
    options = DynamicOptions(config, ConfigStore(fs, DATA))

    def judge(wanted: BrokerConfig) -> None:
        if wanted.topics.retention_ms == 13:
            raise ConfigError("not 13")

    options.checks.append(judge)
    with pytest.raises(KafkaError, match="not 13") as caught:
        options.set("1", {"log.retention.ms": "13"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert config.topics.retention_ms != 13
    assert options.own == {}


def test_stored_options_count_from_the_start(fs: FakeFileSystem) -> None:
    ConfigStore(fs, DATA).put("broker", "", {"log.retention.ms": "5", "log.roll.ms": "7"})
    ConfigStore(fs, DATA).put("broker", "1", {"log.retention.ms": "6"})
    config = BrokerConfig(topics=TopicOptions(retention_ms=1, segment_ms=1))
    options = DynamicOptions(config, ConfigStore(fs, DATA))
    assert (config.topics.retention_ms, config.topics.segment_ms, options.static.topics.retention_ms) == (
        6,
        7,
        1,
    )
    options.set("1", {})
    options.set("", {})
    assert (config.topics.retention_ms, config.topics.segment_ms) == (1, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1, "broker": []}',
        b'{"version": 1, "broker": {"": 3}}',
        b'{"version": 1, "broker": {"": {"num.partitions": "3"}}}',
        b'{"version": 1, "broker": {"1": {"log.retention.ms": "x"}}}',
    ],
)
def test_a_file_that_makes_no_sense_stops_the_start(fs: FakeFileSystem, content: bytes) -> None:
    file = fs.open(f"{DATA}/configs.json", create=True)
    file.write([content], 0)
    with pytest.raises(BadFile, match=r"configs\.json"):
        DynamicOptions(BrokerConfig(), ConfigStore(fs, DATA))


# -- rules, users and configs --------------------------------------------------------------------
# Rules, users and configs count once they are on the disk: what it refused has changed nothing.


class Full(OsFileSystem):
    """A disk that can be full."""

    full = False

    def rename(self, old: str, new: str) -> None:
        if self.full:
            raise OSError(28, "No space left on device", new)
        super().rename(old, new)


ALICE = ("alice", "SCRAM-SHA-256")
READ = Acl(
    ResourceType.TOPIC, "t", Pattern.LITERAL, "User:alice", "*", AclOperation.READ, Permission.ALLOW
)  # fmt: skip

Subject = tuple[Callable[[], object], Callable[[], object]]
"""What changes something, and what is asked about it."""


def acls(fs: Full, place: str) -> Subject:
    store = Authorizer(fs, place)
    client = Client("User:alice", "127.0.0.1")
    return lambda: store.add([READ]), lambda: store.allows(client, AclOperation.READ, ResourceType.TOPIC, "t")


def credentials(fs: Full, place: str) -> Subject:
    store = Credentials(fs, place)
    known = Credential(b"salt", 4096, b"stored", b"server")
    return lambda: store.change([(ALICE, known)], []), lambda: store.get(*ALICE)


def configs(fs: Full, place: str) -> Subject:
    store = ConfigStore(fs, place)
    return lambda: store.put("group", "g", {"consumer.session.timeout.ms": "50000"}), lambda: store.get(
        "group", "g"
    )


@pytest.mark.parametrize("subject", [acls, credentials, configs])
def test_what_the_disk_refused_has_changed_nothing(
    subject: Callable[[Full, str], Subject], tmp_path: Path
) -> None:
    fs = Full()
    change, look = subject(fs, str(tmp_path))
    before: Any = look()
    assert not before
    fs.full = True
    with pytest.raises(KafkaError) as refused:
        change()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert look() == before
    fs.full = False
    change()
    after: Any = look()
    assert after
    _, look_again = subject(fs, str(tmp_path))
    assert look_again() == after
