"""A topic leaves the query's options and is named again later: the query goes on where it was, or stops."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eoslog.connector.offsets.offsets import position_from_json, to_json
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss
from tests.connector.source.test_source_deleted import KINDS, of, options_of
from tests.connector.source.test_source_restored import values
from tests.connector.stock_kafka import Kafka, bare

NO_LIMIT = ReadAllAvailable()


class Story:
    """Two topics are read; then the second one is not named any more."""

    def __init__(self, kafka: Kafka, kind: str) -> None:
        self.kafka, self.kept, self.left = kafka, kafka.topic(), kafka.topic()
        self.both = options_of(kind, self.kept, self.left)
        self.one = self.both | {kind: {"assign": f'{{"{self.kept}":[0]}}'}.get(kind, self.kept)}
        self.put(5)
        made = of(kafka, **self.both)
        self.end: Any = made.latestOffset(made.initialOffset(), NO_LIMIT)

    def put(self, count: int, word: str = "row") -> None:
        for topic in (self.kept, self.left):
            self.kafka.put(topic, [word.encode()] * count)

    def go_on(self, options: dict[str, str], **more: str) -> list[bytes]:
        """A batch of a new run, as Spark stores its end; its rows."""
        made, start = of(self.kafka, **options, **more), self.end
        self.end = json.loads(json.dumps(made.latestOffset(start, NO_LIMIT)))
        return values(of(self.kafka, **options, **more), start, self.end)

    def leave(self) -> None:
        with pytest.raises(DataLoss, match=f"{self.left}-0 was read before, and subscribe"):
            self.go_on(self.one)
        self.go_on(self.one, failOnDataLoss="false")


@pytest.fixture(params=KINDS)
def story(kafka: Kafka, request: pytest.FixtureRequest) -> Story:
    return Story(kafka, request.param)


def test_it_goes_on_where_it_was(story: Story) -> None:
    story.leave()
    for _ in range(2):  # its position stays over batches and runs
        story.kafka.put(story.kept, [b"alone"])
        assert story.go_on(story.one) == [b"alone"]
    story.put(2, "back")
    assert sorted(story.go_on(story.both)) == [b"back"] * 4
    assert bare(story.end)[story.left] == {"0": 7} and not position_from_json(story.end).left.offsets


def test_a_planned_batch_with_it_runs_again_alike(story: Story) -> None:
    story.leave()
    start = story.end
    story.put(2, "back")
    assert sorted(story.go_on(story.both)) == [b"back"] * 4
    assert sorted(values(of(story.kafka, **story.both), start, story.end)) == [b"back"] * 4


def test_available_now(story: Story) -> None:
    story.leave()
    story.put(2, "back")
    for options, rows in ((story.one, [b"back"] * 2), (story.both, [b"back"] * 2)):
        made = of(story.kafka, **options)
        made.prepareForTriggerAvailableNow()
        start, story.end = story.end, made.latestOffset(story.end, NO_LIMIT)
        assert values(of(story.kafka, **options), start, story.end) == rows


def made_anew(story: Story) -> str:
    story.kafka.make_anew(story.left)
    story.kafka.put(story.left, [b"anew"] * 9)
    return f"topic {story.left} was deleted and created again"


def emptied(story: Story) -> str:
    story.put(3, "unread")
    for future in story.kafka.admin.delete_records([TopicPartition(story.left, 0, 7)]).values():
        future.result(60)
    return f"{story.left}-0 begins at 7 and ends at 8, and the query is at 5"


@pytest.mark.parametrize("happens", [made_anew, emptied])
def test_it_stops_if_its_place_is_not_there(story: Story, happens: Callable[[Story], str]) -> None:
    story.leave()
    said = happens(story)
    with pytest.raises(DataLoss, match=said):
        story.go_on(story.both)
    rows = story.go_on(story.both, failOnDataLoss="false")
    assert rows.count(b"anew") in (0, 9) and rows.count(b"row") == 0
    assert story.go_on(story.both) == [], "the way out was needed once"


def test_a_topic_that_was_deleted_is_another_one_when_it_comes_back(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """That it was gone was said when it left."""
    story.kafka.admin.delete_topics([story.left])[story.left].result(60)
    with pytest.raises(DataLoss, match=f"{story.left}-0 does not exist any more"):
        story.go_on(story.both)
    story.go_on(story.both, failOnDataLoss="false")
    story.kafka.topic(name=story.left)
    story.kafka.put(story.left, [b"anew"] * 9)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert story.go_on(story.both) == [b"anew"] * 9
    assert not caplog.text


def test_a_topic_that_could_not_be_seen_for_a_while_goes_on(story: Story) -> None:
    """Its id is the one that it had, as when a right to see it was taken away and given back."""
    position = position_from_json(story.end)
    place = (story.left, 0)
    gone = position.leaving([place], gone={story.left})
    rest = {tp: at for tp, at in position.offsets.items() if tp != place}
    story.end = to_json(*position._replace(offsets=rest, left=gone))
    story.put(2, "back")
    assert sorted(story.go_on(story.both)) == [b"back"] * 4


def test_a_line_of_the_checkpoint_as_startingoffsets(kafka: Kafka) -> None:
    """subscribe and assign refuse a line that does not name their topics."""
    story = Story(kafka, "subscribePattern")
    story.leave()
    story.put(2, "back")
    given = {**story.both, "startingOffsets": json.dumps(story.end)}
    made = of(story.kafka, **given)
    start = made.latestOffset(made.initialOffset(), NO_LIMIT)  # the first batch is empty
    assert sorted(values(made, start, made.latestOffset(start, NO_LIMIT))) == [b"back"] * 4
    alone = of(story.kafka, **{**story.one, "startingOffsets": json.dumps(story.end)})
    assert position_from_json(alone.initialOffset()).left.offsets == {(story.left, 0): 5}
