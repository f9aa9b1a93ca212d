"""A checkpoint as Spark would leave it, without Spark, and its sink on a broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from eoslog.checkpoint.rebuild import Lost
from eoslog.checkpoint.restore import Restored, restore
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import Terms, commit
from eoslog.connector.commit.decision import ANCHOR, Decision
from eoslog.connector.commit.prepare import stamp_of
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Report
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.runner import Runner
from eoslog.connector.saved.read_back import records_of
from eoslog.connector.saved.save import CheckpointSaving
from eoslog.connector.saved.state_files import Key
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka


class SavedWorld:
    """A query whose state has one partition. Each batch adds a delta: `fill` and the version."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, every: int = 1) -> None:
        self.kafka, self.folder, self.every = Kafka(broker.bootstrap), folder, every
        self.cluster = Cluster(ClientConfig((("127.0.0.1", broker.port),)))
        self.cluster.meet()
        self.runner = Runner(self.cluster, 60_000)
        self.state = self.kafka.topic(cleanup_policy="compact")
        self.sink, self.fill, self.watermark = Sink(f"s-{self.state}"), "x", 0
        self.write("metadata", '{"id":"query"}')
        self.write("state/0/_metadata/metadata", operator("stateStoreSave"))

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def plan(self, number: int) -> Batch:
        """Spark has planned a batch; the one before it is done."""
        settings = json.dumps({"batchWatermarkMs": self.watermark})
        self.write(f"offsets/{number}", "\n".join(["v1", settings, json.dumps({"in": {"0": number * 10}})]))
        if number:
            self.write(f"commits/{number - 1}", 'v1\n{"nextBatchWatermarkMs":0}')
            self.write(f"state/0/0/{number}.delta", f"{self.fill}{number}")
        planned = Checkpoint.at(str(self.folder)).planned(number)
        return Batch("query", number, planned.digest)

    def saving(self, batch: Batch, topic: str | None = None) -> CheckpointSaving:
        checkpoint = Checkpoint.at(str(self.folder))
        return CheckpointSaving(
            self.cluster, checkpoint, self.sink.id, batch, topic or self.state, self.every, 1_000_000
        )

    def decide(self, number: int, *, runner: Runner | None = None, topic: str | None = None) -> Decision:
        """Run a batch that writes nothing, and save it."""
        return self.end(*self.begin(number), runner=runner, topic=topic)

    def begin(self, number: int) -> tuple[Batch, Begun]:
        """Plan and begin a batch."""
        batch = self.plan(number)
        begun, _ = self.runner.run(begin(self.sink, batch))
        return batch, begun

    def end(
        self, batch: Batch, begun: Begun, *, runner: Runner | None = None, topic: str | None = None
    ) -> Decision:
        """Commit a batch that was begun."""
        report: Report = Empty(stamp_of(begun), 0)
        if begun.decided is not None and begun.decided.batch_id >= batch.batch_id:
            report = Decided(stamp_of(begun), 0)
        rules = commit(self.sink, [report], batch.batch_id, terms=Terms(saving=self.saving(batch, topic)))
        decision = (runner or self.runner).run(rules)
        assert decision is not None
        return decision

    def lose(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def cut(self) -> None:
        """An admin sets a policy that deletes, for a while, and all records go."""
        where = TopicPartition(self.state, 0, -1)
        for policy in ("delete", "compact"):
            entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, self.state, incremental_configs=[entry])
            for change in self.kafka.admin.incremental_alter_configs([resource]).values():
                change.result(30)
            if policy == "delete":
                self.kafka.admin.delete_records([where])[where].result(30)

    def restore(self) -> Restored | None:
        return restore(self.cluster, self.runner, Lost(self.sink, "", ANCHOR), str(self.folder))

    def live(self) -> dict[Key, bytes]:
        """The newest record of each key."""
        found: dict[Key, bytes] = {}
        for key, value in records_of(self.cluster, self.state, 0, self.sink.id):
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def files(self) -> dict[str, str]:
        """The checkpoint's files but for notes."""
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        named = {str(path.relative_to(self.folder)): path.read_text() for path in paths}
        return {name: text for name, text in named.items() if not name.startswith("eoslog/")}


def operator(name: str) -> str:
    return "v1\n" + json.dumps({"operatorInfo": {"operatorId": 0, "operatorName": name}})
