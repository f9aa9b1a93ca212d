"""The note of where rows are: what it keeps, and what of it cannot be read."""

from pathlib import Path

import pytest

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_places import KEPT_PARTITIONS, NOTED_PLACES, NotedPlaces, Waiting
from eoslog.connector.commit.places import OpenRows, Place
from eoslog.protocol.producer_identity import ProducerIdentity


def at(offset: int, partition: int = 0, topic: str = "out", topic_id: str | None = "id") -> Place:
    return Place(topic, topic_id, partition, offset, ProducerIdentity(7, 1), 5)


def first(offset: int, partition: int = 0) -> OpenRows:
    return OpenRows(("out", partition), offset, ProducerIdentity(7, 2))


def test_it_keeps_the_newest_batch_and_the_last_one_with_rows(tmp_path: Path) -> None:
    checkpoint, noted = Checkpoint.at(str(tmp_path)), NotedPlaces()
    for batch, places in ((0, (at(3),)), (1, (at(6),)), (2, ()), (3, ())):
        noted = noted.after(batch, places)
        noted.write(checkpoint)
        noted = NotedPlaces.read(checkpoint)
    assert noted.batches == ((3, ()), (1, (at(6),)))


def test_a_batch_that_runs_again_takes_the_place_of_its_own_note() -> None:
    noted = NotedPlaces().after(0, (at(3),)).after(1, (at(6),)).after(1, (at(9),))
    assert noted.batches == ((1, (at(9),)), (0, (at(3),)))


def test_lost_rows_that_are_written_again_are_added() -> None:
    noted = NotedPlaces().after(1, (at(6),)).after(1, (at(9, 1),), more=True)
    assert noted.batches == ((1, (at(6), at(9, 1))),)


def test_the_last_place_in_each_topic_stays(tmp_path: Path) -> None:
    checkpoint, noted = Checkpoint.at(str(tmp_path)), NotedPlaces()
    bad, odd = at(1, topic="bad"), at(2, topic="odd")
    for batch, places in ((0, (at(3), bad)), (1, (at(6), odd)), (2, (at(9),)), (3, (at(12),)), (4, ())):
        noted = noted.after(batch, places)
        noted.write(checkpoint)
        noted = NotedPlaces.read(checkpoint)
    assert noted.batches == ((4, ()), (3, (at(12),))) and set(noted.older) == {bad, odd}
    assert set(noted.up_to(3)) == {bad, odd} and set(noted.up_to(5)) == {bad, odd, at(12)}
    assert noted.without({bad}).after(5, (at(15),)).older == (odd,)
    assert noted.remade((at(7), at(0, topic="new"), at(0, topic="bad", topic_id=None)), 5) == ""
    assert noted.remade((at(0, topic="odd", topic_id="2"),), 5).startswith(
        "topic odd was deleted and created"
    )
    assert noted.remade((at(0, topic_id="2"),), 4) and not NotedPlaces(((3, (at(12),)),)).remade(
        (at(0, topic_id="2"),), 3
    )


def test_until_a_batch_has_rows_it_is_noted_where_they_will_be(tmp_path: Path) -> None:
    checkpoint, began = Checkpoint.at(str(tmp_path)), Waiting("out", 9)
    noted, seen = NotedPlaces(waiting=began), []
    for batch, places in ((0, ()), (1, ()), (2, (at(3),)), (3, ())):
        noted = noted.after(batch, places)
        noted.write(checkpoint)
        noted = NotedPlaces.read(checkpoint)
        assert noted.without(()) == noted and noted.unnumbered(batch).waiting == noted.waiting
        seen.append(noted.waiting)
    assert seen == [began, began, None, None]


def test_a_batch_that_was_not_decided_hides_no_place() -> None:
    noted = NotedPlaces().after(0, (at(1), at(2, topic="bad"))).after(1, (at(3),))
    noted = noted.after(2, (at(4, topic="bad"),)).after(2, (at(5),))
    assert noted.batches == ((2, (at(5),)), (1, (at(3),))) and noted.older == (at(2, topic="bad"),)


def test_the_last_place_in_each_partition_stays() -> None:
    noted = NotedPlaces().after(0, (at(3), at(4, 1), at(9, 2))).after(1, (at(6),)).after(2, (at(12, 2),))
    noted = noted.after(3, (at(14, 2),))
    assert set(noted.older) == {at(6), at(4, 1)} and set(noted.up_to(3)) == {at(6), at(4, 1), at(12, 2)}
    noted = noted.after(4, (at(0, topic_id="2"),)).after(5, ())
    assert noted.older == (at(14, 2),) or not noted.older, "places of a topic that is gone are not kept"


def test_rows_that_begin_where_others_ended_show_that_the_log_was_cut() -> None:
    noted = NotedPlaces().after(0, (at(3), at(8, 1))).after(1, (at(6),)).after(2, ())
    assert noted.cut((first(7), first(9, 1), first(0, 2)), 3) == ""
    assert noted.cut((first(7), first(6), first(8)), 3) == (
        "it begins at offset 6 of out-0, and an earlier batch ended there at 6, so the log was cut"
    )
    assert "out-1" in noted.cut((first(7), first(2, 1)), 3)
    assert noted.cut((first(5),), 1) == "", "the batch itself, tried again"


def test_places_stay_without_their_batches() -> None:
    """An edit gives the numbers to other batches. What was never decided is not missed."""
    noted = NotedPlaces().after(0, (at(3), at(8, 1))).after(1, (at(6),)).after(2, (at(9), at(11, 1)))
    kept = noted.unnumbered(2)
    assert kept.batches == () and set(kept.older) == {at(6), at(8, 1)}
    assert set(noted.unnumbered(3).older) == {at(9), at(11, 1)}
    kept = kept.after(0, (at(12),))
    assert kept.batches == ((0, (at(12),)),) and set(kept.up_to(0)) == {at(6), at(8, 1)}
    assert "out-1" in kept.cut((first(8, 1),), 0)


def test_so_many_topics_are_kept() -> None:
    noted = NotedPlaces()
    for batch in range(KEPT_PARTITIONS + 5):
        noted = noted.after(batch, (at(batch, topic=f"topic-{batch}"),))
    assert len(noted.older) == KEPT_PARTITIONS and noted.older[0].topic == "topic-3"


@pytest.mark.parametrize("text", ["{}", '{"version":2,"batches":[]}', '{"version":1,"batches":[[1]]}'])
def test_a_note_that_makes_no_sense_stops_the_query(tmp_path: Path, text: str) -> None:
    checkpoint = Checkpoint.at(str(tmp_path))
    assert NotedPlaces.read(checkpoint) == NotedPlaces()
    checkpoint.note(NOTED_PLACES, "")  # as a power cut may leave it
    assert NotedPlaces.read(checkpoint) == NotedPlaces()
    checkpoint.note(NOTED_PLACES, text)
    with pytest.raises(CheckpointUnreadable, match="eoslog/places"):
        NotedPlaces.read(checkpoint)
