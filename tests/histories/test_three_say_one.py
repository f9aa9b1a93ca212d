"""`eoslog checkpoint show`, `eoslog checkpoint check` and the start never contradict each other: what happens
at every start of the kept histories is compared with what the two have said just before."""

from pathlib import Path
from typing import Any

import pytest

from eoslog.checkpoint.checks import problems, says
from eoslog.checkpoint.standing import standing
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.options.sink_options import sink_options
from eoslog.errors import EoslogError
from tests.histories.ground import SimGround
from tests.histories.query import Query, age
from tests.histories.test_kept import KEPT
from tests.histories.world import World

STARTS = ("DecisionGone", "RowsGone", "CheckpointOlder", "CheckpointMismatch", "ParticipantsLost")
"""Errors of a sink's start that depend on what is stored alone, not on its options."""
OPTIONS = (
    "transactional.id",
    "kafka.group.id",
    "processing.guarantee",
    "on.lost.transaction",
    "start.accepted",
)


class Watching(World):
    """Asks both before each start."""

    said: list[str]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SimGround(folder))
        self.said, self.compared = [], 0

    def trigger(self, query: Query, strike: Any, *, until_now: bool = False) -> bool:
        fresh = query.run is None and query.token is None and age(query.checkpoint)[1] >= 0
        before, then = self._asked(query) if fresh else None, age(query.checkpoint)
        decided = self._decided_again
        went = super().trigger(query, strike, until_now=until_now)
        began = query.error is not None or age(query.checkpoint) != then  # else there was nothing to write
        if before is not None and strike is None and began:
            self._compare(query, *before)
            again, shown = self._decided_again > decided, before[0]
            if query.error is None and shown.startswith("replay" if again else "decide again"):
                self.said.append(f"show says {shown[:80]!r}, and the start decided again: {again}")
        return went

    @property
    def _decided_again(self) -> int:
        """How many batches starts have decided again that the cluster had forgotten."""
        return sum(count for text, count in self.warned.items() if "is decided again" in text)

    def _asked(self, query: Query) -> tuple[str, list[str]] | None:
        client = sink_options({**query.sink}, stream=True).client
        try:
            with Cluster(client) as cluster:  # as a process of its own
                found = standing(cluster, Checkpoint.at(str(query.checkpoint)))
                note = found.note
                if note is None or note.sink != (query.ids[-1] or found.query_id):
                    return None  # the start gets other options than the last one
                if note.group != query.sink.get("kafka.group.id") or query.sink.get("start.accepted"):
                    return None
                return says(cluster, found), problems(cluster, found)
        except EoslogError as error:
            said = f"{type(error).__name__}: {error}"
            return f"stop: {said}", [said]

    def _compare(self, query: Query, shown: str, checked: list[str]) -> None:
        self.compared += 1
        error = query.error
        name = type(error).__name__ if error is not None else ""
        stopped = {kind for kind in STARTS if any(one.startswith(f"{kind}:") for one in checked)}
        if shown.startswith("stop: ") and shown.removeprefix("stop: ") not in checked:
            self.said.append(f"show says {shown[:80]!r}, check says {checked}")
        if stopped and not shown.startswith("stop: "):
            self.said.append(f"show says {shown[:80]!r}, check says {checked}")
        plain = query.sink.get("processing.guarantee", "exactly_once") == "exactly_once"
        replays = query.sink.get("on.lost.transaction") == "replay"
        if name in STARTS and name not in stopped:
            self.said.append(f"the start says {name}, check says {checked}")
        expected = stopped - ({"ParticipantsLost"} if replays else set())
        if expected and name not in (*STARTS, "DataLoss", "UnknownTopic", "TaskFailed") and plain:
            self.said.append(f"check says {stopped}, and the start goes on ({name or 'done'})")


@pytest.mark.parametrize("name", KEPT)
def test_the_three_say_one(name: str, tmp_path: Path) -> None:
    world = Watching(tmp_path)
    assert not world.play(KEPT[name])
    assert not world.said, (world.said, world.told)
