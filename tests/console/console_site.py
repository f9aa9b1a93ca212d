"""A broker with a console, and something in it to look at."""

from __future__ import annotations

import email.message
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.kit.program import until

PATIENCE = 100.0
"""Seconds to wait for what has to come: generous, as the machine may stand still for a while."""

TIMEOUT_MS = 800_000
"""Of transactions that stay open: the broker must not end them before the test does."""

HANGING, HANGING_ID = "ledger", 7_000_000
"""A topic with a transaction of this producer that no transactional id knows of, from offset 0."""

SCRIPT = "<script>document.title='hurt'</script><img src=x onerror=\"document.title='hurt'\">"
"""A value that would do something if it were taken for markup."""

PLACE = re.compile(r"console at (https?)://(\S+):(\d+), ")


class Answer(NamedTuple):
    status: int
    headers: email.message.Message[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """A broker with its console at a free port."""

    def __init__(self, data: Path | None = None, /, **config: str) -> None:
        self.broker = EmbeddedBroker(
            data, config={"console.listen": "127.0.0.1:0"} | config, log_level="info", timeout=PATIENCE
        )
        self.address = ""
        self.trusted: ssl.SSLContext | None = None

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **given: Any) -> Answer:
        query = f"?{urlencode(given)}" if given else ""
        return self._open(urllib.request.Request(f"{self.address}{path}{query}", headers=dict(headers or {})))

    def look(self, what: str, **given: Any) -> Any:
        """What /api/`what` shows; it must."""
        answer = self.get(f"/api/{what}", **given)
        assert answer.status == 200, answer
        return answer.json

    def post(self, what: str, given: object, headers: Mapping[str, str] | None = None) -> Answer:
        """A change, as the console's own page asks for it unless `headers` say otherwise."""
        sent = {"X-Eoslog-Console": "1", "Origin": self.address} if headers is None else headers
        request = urllib.request.Request(
            f"{self.address}/api/{what}", json.dumps(given).encode(),
            {"Content-Type": "application/json", **sent}, method="POST",
        )  # fmt: skip
        return self._open(request)

    def _open(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE, context=self.trusted) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def client(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.broker.bootstrap, **more}

    def __enter__(self) -> Self:
        self.broker.__enter__()
        found = PLACE.search(self.broker.output())
        assert found, self.broker.output()
        self.address = f"{found[1]}://{found[2]}:{found[3]}"
        return self

    def __exit__(self, *error: Any) -> None:
        self.broker.__exit__(*error)


def create(
    client: Mapping[str, Any], *names: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient(dict(client))
    topics = [NewTopic(name, num_partitions=partitions, config=dict(config or {})) for name in names]
    for done in admin.create_topics(topics).values():
        done.result(PATIENCE)


def seed_hanging(directory: Path, *names: str) -> None:
    """Leave a transaction that nobody will end on partition 0 of each topic, and one record after it."""
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), str(directory), BrokerConfig(), clock, GroupFlush())
    now = clock.now_ms()
    for name in names:
        partition = topics.create(name, 1).partitions[0]
        lost = [(b"lost", b"of a producer that is gone")]
        partition.append(
            encode_records(
                lost, now, producer_id=HANGING_ID, producer_epoch=3, base_sequence=0, transactional=True
            ),
            now_ms=now,
        )
        partition.append(encode_records([(b"behind", b"waits for it")], now), now_ms=now)
    topics.close()


def transactional(client: Mapping[str, Any], name: str) -> Producer:
    settings = {"transactional.id": name, "transaction.timeout.ms": TIMEOUT_MS}
    producer = Producer({**client, **settings})
    producer.init_transactions(PATIENCE)
    return producer


def write(producer: Producer, topic: str, *values: str | bytes, partition: int = 0, **more: Any) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(PATIENCE) == 0


def history(client: Mapping[str, Any], topic: str) -> Producer:
    """Records outside of transactions, of one that committed, one that aborted, and one that is open.

    Offsets: 0-1 none, 2 committed, 3 its marker, 4 aborted, 5 its marker, 6 open, 7 committed by another
    producer, 8 its marker. Answers the producer whose transaction is open.
    """
    plain = Producer(dict(client))
    write(plain, topic, "first", key="k0", headers=[("trace", b"abc"), ("raw", b"\xff\x00")])
    write(plain, topic, SCRIPT, key="<b>k1</b>")
    ours = transactional(client, f"{topic}-job")
    for value, end in (("kept", ours.commit_transaction), ("dropped", ours.abort_transaction)):
        ours.begin_transaction()
        write(ours, topic, value)
        end(PATIENCE)
    ours.begin_transaction()
    write(ours, topic, json.dumps({"order": 17, "tags": ["a", "<b>"]}))
    other = transactional(client, f"{topic}-other")
    other.begin_transaction()
    write(other, topic, "after")
    other.commit_transaction(PATIENCE)
    return ours


def member(client: Mapping[str, Any], group: str, topic: str, committed: int) -> Consumer:
    """A consumer that has joined a group and committed an offset of partition 0."""
    consumer = Consumer(
        {**client, "group.id": group, "client.id": "reader-1", "enable.auto.commit": False,
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.2) is None and consumer.assignment(), "an assignment", PATIENCE)
    consumer.commit(offsets=[TopicPartition(topic, 0, committed)], asynchronous=False)
    return consumer
