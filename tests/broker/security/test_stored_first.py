"""Rules, users and configs count once they are on the disk: what it refused has changed nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eoslog.broker.ports.ports import OsFileSystem
from eoslog.broker.rules.acls import Client
from eoslog.broker.security.credentials import Credentials
from eoslog.broker.stored.authorizer import Authorizer
from eoslog.broker.stored.config_store import ConfigStore
from eoslog.protocol.acls import Acl, AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.scram import Credential


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
