"""Every cut of a query that runs, is killed and handed over is exact: the rows below it are those of its
source rows, no more and no less. A stock client counts them."""

import threading
from pathlib import Path

import pytest

from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.shadowed import Cut, Shadowed
from eoslog.connector.source.source_topics import SourceTopics
from tests.connector.stock_kafka import Kafka
from tests.kills.kill_brokers import Bundled
from tests.kills.kill_round import PARTITIONS, TARGET_PARTITIONS
from tests.kills.soak_hand_over import Soak

pytestmark = pytest.mark.timeout(400)
STEPS, STEP_SECONDS = 12, 1.0


class Cuts:
    """A thread that looks for cuts as fast as it can."""

    def __init__(self, soak: Soak) -> None:
        job = soak.job
        options = source_options(
            {
                "kafka.bootstrap.servers": soak.brokers.bootstrap, "subscribe": job.source,
                "kafka.group.id": job.group, "shadow.of": job.options["transactional.id"],
                "shadow.topic": job.target, "shadow.into": job.source,
            },
            stream=True,
        )  # fmt: skip
        assert options.shadow is not None
        self.found: list[Cut] = []
        self.looks = 0
        self._failure: BaseException | None = None
        self._shadowed = Shadowed(options, options.shadow, SourceTopics(options, lenient=True))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        try:
            while not self._over.is_set():
                self.looks += 1
                cut = self._shadowed.cut()
                if cut is not None:
                    self.found.append(cut)
        except BaseException as error:
            self._failure = error

    def end(self) -> list[Cut]:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.found


def below(rows: list[tuple[int, int]], ends: dict[tuple[str, int], int]) -> int:
    """How many rows of a topic, by partition and offset, lie below these ends."""
    by_partition = {partition: end for (_, partition), end in ends.items()}
    return sum(offset < by_partition.get(partition, 0) for partition, offset in rows)


def test_rows_and_source_rows_belong_together(tmp_path: Path) -> None:
    brokers = Bundled(tmp_path / "broker")
    soak = Soak(brokers, tmp_path / "query", 5)
    try:
        soak.feed.start()
        soak.until(lambda: soak.post.has_noted)
        cuts = Cuts(soak)
        for step in range(STEPS):
            soak.let_pass(STEP_SECONDS)
            if step % 3 == 1:
                soak.kill_one()
            if step % 5 == 4:
                soak.post.hand_over(stop=False)
        found = cuts.end()
        soak.feed.end()
        kafka = Kafka(brokers.bootstrap)
        read = [row[:2] for row in kafka.rows(soak.job.source, PARTITIONS)]
        written = [row[:2] for row in kafka.rows(soak.job.target, TARGET_PARTITIONS)]
    finally:
        soak.end()
        soak.feed.end()
        brokers.close()
    wrong = [
        (cut.sequence, below(read, ends), below(written, cut.written))
        for ends, cut in found
        if below(read, ends) != below(written, cut.written)
    ]
    assert wrong == [], f"of {len(found)} cuts in {cuts.looks} looks"
    assert len({cut.sequence for _, cut in found}) > 4, "of several decisions"
