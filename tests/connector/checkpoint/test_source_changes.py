"""Sources that come, go, are renamed or are missing, pure: where rows would be lost or doubled."""

import json
from collections import Counter
from collections.abc import Mapping

import pytest

from eoslog.connector.checkpoint.source_changes import (
    Change,
    Removed,
    RemovedSources,
    SourcesChanged,
    added_offsets,
    canonical,
    check_added,
    check_exchanged,
    check_grown,
    check_present,
    check_remade,
    grown,
)
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.offsets.group_notes import Note, NotedOffset
from eoslog.connector.offsets.offsets import Left, TakenFrom, to_json
from eoslog.protocol.topic_partitions import TopicPartition

NONE = RemovedSources({})


def line(topic: str, at: int, *taken: TakenFrom, began: int | None = None) -> str:
    began_at = None if began is None else {(topic, 0): began}
    return json.dumps(to_json({(topic, 0): at}, cluster="c", taken=taken, began=began_at))


def planned(batch: int, **sources: str) -> Planned:
    return Planned(batch, tuple(sources.values()), tuple(sources))


def check(
    before: Planned,
    now: Planned,
    committed: Mapping[TopicPartition, NotedOffset] | None = None,
    removed: RemovedSources = NONE,
    *accepted: str,
) -> None:
    check_added(Change("sink", before, now, removed.after(before, now), committed or {}, accepted))


def by(sink: str, at: int) -> Mapping[TopicPartition, NotedOffset]:
    return {("t", 0): NotedOffset(at, Note(sink, "query", 4))}


BEFORE = planned(4, a=line("u", 3), b=line("t", 10))


def test_a_renamed_source_has_to_begin_where_the_former_ended() -> None:
    check(BEFORE, planned(5, a=line("u", 3), c=line("t", 10)))
    for at in (9, 11):
        with pytest.raises(SourcesChanged, match=f"t-0 ends its first batch at {at}, a former .* at 10"):
            check(BEFORE, planned(5, a=line("u", 3), c=line("t", at)))


def test_where_a_new_source_began_counts_and_not_where_its_first_batch_ends() -> None:
    check(BEFORE, planned(5, a=line("u", 3), c=line("t", 15, began=10)))
    with pytest.raises(SourcesChanged, match="t-0 begins at 0, a former source ended at 10"):
        check(BEFORE, planned(5, a=line("u", 3), c=line("t", 10, began=0)))
    before = planned(4, a=line("u", 3))
    now = planned(5, a=line("u", 3), b=line("t", 12, began=10))
    check(before, now, by("sink", 10))
    with pytest.raises(SourcesChanged, match="t-0 begins at 10, the group is at 12"):
        check(before, now, by("sink", 12))
    with pytest.raises(SourcesChanged, match="committed by the sink other"):
        check(before, now, by("other", 10))


def test_a_source_reads_for_the_first_time_what_nobody_has_read() -> None:
    before, left = {("u", 0): 3}, Left({("v", 0): 2}, {}, {}, frozenset())
    grows = json.dumps(to_json({**before, ("t", 0): 9, ("v", 0): 2}, cluster="c"))
    stood = json.dumps(to_json(before, cluster="c", left=left))
    then, now = planned(4, a=stood), planned(5, a=grows, b=line("w", 1))
    assert grown(then, now) == {"a": [("t", 0)]}, "what a source has left it knows, and b is new"
    assert grown(now, planned(6, a=grows, b=line("w", 5))) == {}
    check_grown(then, now, lambda _: 0, ())
    with pytest.raises(SourcesChanged) as stopped:
        check_grown(then, now, {("t", 0): 7}.get, ("new-source:a:4",))  # type: ignore[arg-type]
    assert "the source a reads what was read before (t-0 up to 7)" in str(stopped.value)
    assert 'under another name, with startingOffsets={"t": {"0": 7}, "u": {"0": 3}}.' in str(stopped.value)
    assert str(stopped.value).endswith("set start.accepted=new-source:a:4,new-source:a:5")
    check_grown(then, now, lambda _: 7, ("new-source:a:5",))
    with pytest.raises(
        SourcesChanged, match=r"Give eoslog checkpoint add-topic CHECKPOINT t --start '.*7}}'"
    ):
        check_grown(Planned(4, (stood,)), Planned(5, (grows,)), lambda _: 7, ())
    with pytest.raises(SourcesChanged, match="Start with a new checkpoint, the same names and"):
        check_grown(Planned(4, (stood, "{}")), Planned(5, (grows, "{}")), lambda _: 7, ())


def named(topic: str, number: str, *ends: int, cluster: str = "c") -> str:
    """A line of eoslog's that names the topic's id."""
    return json.dumps(to_json({(topic, n): at for n, at in enumerate(ends)}, {topic: number}, cluster))


PLAIN = '{"t":{"0":4,"1":0}}'
"""A line of Spark's connector, which names no id."""


def test_a_topic_made_anew_behind_another_connectors_batches_stops() -> None:
    before = [planned(6, a=PLAIN), planned(5, a=PLAIN), planned(4, a=named("t", "old", 4, 0))]
    now = planned(7, a=named("t", "new", 9, 1))
    with pytest.raises(SourcesChanged, match=r"its id was old, and it is new now. Batch 6,") as stopped:
        check_remade(now, before, ())
    assert """rewind --to '{"t": {"0": -2, "1": -2}}'. If""" in str(stopped.value)
    assert "(t-0 at 4, t-1 at 0)" in str(stopped.value)
    assert str(stopped.value).endswith("set start.accepted=topic-anew:new")
    check_remade(now, before, {"topic-anew:new"})
    second = [planned(6, b=line("u", 3), a=PLAIN), planned(5, b=line("u", 3), a=named("t", "old", 4))]
    with pytest.raises(SourcesChanged):
        check_remade(planned(7, b=line("u", 3), a=named("t", "new", 9)), second, ())


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param([], named("t", "new", 9), id="the first batch"),
        pytest.param([PLAIN], named("t", "new", 9), id="no batch of eoslog's before"),
        pytest.param([PLAIN, named("t", "new", 4)], named("t", "new", 9), id="the same topic"),
        pytest.param([named("t", "new", 4), named("t", "old", 4)], named("t", "new", 9), id="said before"),
        pytest.param(['{"t":{"0":0}}', named("t", "old", 4)], named("t", "new", 9), id="set back to 0"),
        pytest.param(
            ['{"t":{"0":0},"u":{"0":3}}', named("t", "old", 4)], named("t", "new", 9), id="the topic alone"
        ),
        pytest.param([PLAIN, named("t", "old", 4)], named("t", "new", 9, cluster="d"), id="elsewhere"),
        pytest.param([PLAIN, named("u", "old", 4)], named("t", "new", 9), id="a topic that is new"),
    ],
)
def test_other_batches_of_another_connector_go_on(before: list[str], now: str) -> None:
    check_remade(planned(9, a=now), [planned(8 - n, a=one) for n, one in enumerate(before)], ())


def unnamed(batch: int, *lines: str) -> Planned:
    return Planned(batch, lines)


@pytest.mark.parametrize("names", [("a", "b"), ()], ids=["named", "by their order"])
def test_sources_that_are_exchanged_stop(names: tuple[str, ...]) -> None:
    """Also with failOnDataLoss=false: each would read the other's topic again."""
    before, now = (
        Planned(4, (line("u", 3), line("t", 10)), names),
        Planned(5, (line("t", 9), line("u", 4)), names),
    )
    first = names[0] if names else "0"
    with pytest.raises(
        SourcesChanged, match=rf"source {first} read t-0, which source .* has read.*former order"
    ):
        check_exchanged(before, now, ())
    both = [f"new-source:{name}:5" for name in (names or ("0", "1"))]
    with pytest.raises(SourcesChanged, match="u-0"):
        check_exchanged(before, now, both[:1])
    check_exchanged(before, now, both)


def test_a_source_that_takes_another_s_topic_as_well_stops() -> None:
    before, one = unnamed(4, line("u", 3), line("t", 10)), json.loads(line("u", 4))
    now = unnamed(5, json.dumps(one | json.loads(line("t", 2))), line("t", 11))
    with pytest.raises(SourcesChanged, match="source 0 read t-0, which source 1 has read"):
        check_exchanged(before, now, ())
    check_exchanged(unnamed(4, line("u", 3), line("t", 0)), now, ())
    check_exchanged(
        unnamed(4, json.dumps(json.loads(line("u", 3)) | json.loads(line("t", 1))), line("t", 10)), now, ()
    )


def test_what_another_source_has_left_is_not_read_again_either() -> None:
    left = Left({("t", 0): 7}, {"t": "old"})
    gone = json.dumps(to_json({("v", 0): 1}, {"v": "v"}, "c", left=left))
    back = json.dumps(to_json({("u", 0): 3}, {"u": "u"}, "c", left=left))

    def taken(number: str) -> Planned:
        ends = to_json({("u", 0): 3, ("t", 0): 2}, {"u": "u", "t": number}, "c")
        return unnamed(5, json.dumps(ends), gone)

    with pytest.raises(SourcesChanged, match="source 0 read t-0, which source 1 has read"):
        check_exchanged(unnamed(4, line("u", 3), gone), taken("old"), ())
    check_exchanged(unnamed(4, line("u", 3), gone), taken("new"), ())
    check_exchanged(unnamed(4, back, gone), taken("old"), ())


def test_a_source_that_comes_back_after_one_batch_needs_another_name() -> None:
    """Spark continues it behind its own last batch, and if the batch runs again from its startingOffsets."""
    removed = RemovedSources({"b": Removed(3, line("t", 8)), "rate": Removed(3, "5")})
    before = planned(4, a=line("u", 3))
    for now in (line("t", 8), line("t", 9), line("t", 8, began=0)):
        with pytest.raises(SourcesChanged, match=r"b was read two batches before, in batch 3.*another name"):
            check(before, planned(5, a=line("u", 3), b=now), None, removed)
        check(before, planned(5, a=line("u", 3), b=now), None, removed, "new-source:b:5")
    check(before, planned(5, a=line("u", 3), rate="6"), None, removed)
    check(planned(5, a=line("u", 3)), planned(6, a=line("u", 3), b=line("t", 9, began=8)), None, removed)


def test_a_source_of_what_nobody_has_read_may_begin_anywhere() -> None:
    check(BEFORE, planned(5, a=line("u", 3), b=line("t", 12), c=line("v", 77)))
    check(BEFORE, planned(5, a=line("u", 4)))
    check(BEFORE, planned(5, a=line("u", 4), rate='{"offset":5}', late="-"))


def test_the_group_remembers_what_the_checkpoint_does_not() -> None:
    now = planned(5, a=line("u", 3), b=line("t", 12))
    before = planned(4, a=line("u", 3))
    assert added_offsets(before, now) == {("t", 0): 12}
    check(before, now, by("sink", 12))
    with pytest.raises(SourcesChanged, match="the group is at 10"):
        check(before, now, by("sink", 10))


def test_offsets_of_another_sink_are_refused_even_if_they_fit() -> None:
    before = planned(4, a=line("u", 3))
    for now, committed in (
        (planned(5, a=line("u", 3), b=line("t", 12, TakenFrom("other", "g"))), None),
        (planned(5, a=line("u", 3), b=line("t", 12)), by("other", 12)),
    ):
        with pytest.raises(SourcesChanged, match="committed by the sink other"):
            check(before, now, committed)
        check(before, now, committed, NONE, "new-source:b:5")
    check(before, planned(5, a=line("u", 3), b=line("t", 12, TakenFrom("sink", "g"))), by("sink", 12))


def test_a_partition_that_another_source_reads_on_has_to_be_accepted() -> None:
    now = planned(5, a=line("u", 3), b=line("t", 10), c=line("t", 10))
    with pytest.raises(SourcesChanged, match="also read by the source b"):
        check(BEFORE, now)
    check(BEFORE, now, None, NONE, "new-source:c:5")
    with pytest.raises(SourcesChanged, match=r"start.accepted=new-source:c:4,new-source:c:5"):
        check(BEFORE, now, None, NONE, "new-source:c:4")


def test_each_former_source_has_one_successor() -> None:
    before = planned(4, a=line("t", 5), b=line("t", 7))
    check(before, planned(5, c=line("t", 5), d=line("t", 7)))
    check(before, planned(5, c=line("t", 7), d=line("t", 5)))
    with pytest.raises(SourcesChanged, match=r"with the source d.*ends its first batch at 5"):
        check(before, planned(5, c=line("t", 5), d=line("t", 5)))


def test_the_last_reader_counts_and_spark_forgets_none() -> None:
    removed = RemovedSources({"b": Removed(4, line("t", 10)), "c": Removed(9, line("t", 20))})
    before = planned(12, a=line("u", 3))
    check(before, planned(13, a=line("u", 3), d=line("t", 20)), None, removed)
    with pytest.raises(SourcesChanged, match="a former source ended at 20"):
        check(before, planned(13, a=line("u", 3), b=line("t", 10)), None, removed)
    again = RemovedSources.parse(removed.after(planned(12, c=line("t", 25)), before).text())
    assert again.sources == {"b": Removed(4, line("t", 10)), "c": Removed(12, line("t", 25))}
    assert again.ends(("t", 0)) == [25] and again.ends(("x", 0)) == []
    with pytest.raises(ValueError, match="later version"):
        RemovedSources.parse('{"version":2}')
    assert RemovedSources.parse(None) == NONE


def test_a_checkpoint_that_moves_to_version_2_keeps_its_sources() -> None:
    before = Planned(4, (line("u", 3), line("t", 10)))
    now = Planned(5, (line("t", 12), line("u", 3)), ("1", "0"))
    assert before.by_name.keys() == now.by_name.keys()
    check(before, now)


def asked(*lines: str) -> Counter[str]:
    return Counter(canonical(json.loads(one)) for one in lines)


def test_a_batch_needs_all_sources_that_it_was_planned_with() -> None:
    now = planned(5, a=line("u", 4), b=line("t", 12))
    check_present(BEFORE, now, asked(line("u", 4), line("t", 12)), ())
    with pytest.raises(SourcesChanged, match=r"runs again without b: .*start.accepted=without-sources:5"):
        check_present(BEFORE, now, asked(line("u", 4), line("t", 10)), ())
    check_present(BEFORE, now, asked(line("u", 4)), ("without-sources:5",))
    with pytest.raises(SourcesChanged, match="without b"):
        check_present(BEFORE, now, asked(line("u", 4)), ("without-sources:4",))
    with pytest.raises(SourcesChanged, match="without a, b"):
        check_present(None, now, asked(), ())


def test_two_sources_at_one_place_are_two() -> None:
    now = planned(0, a=line("t", 4), b=line("t", 4))
    check_present(None, now, asked(line("t", 4), line("t", 4)), ())
    with pytest.raises(SourcesChanged, match="without a, b"):
        check_present(None, now, asked(line("t", 4)), ())


def test_only_sources_of_eoslog_with_new_rows_are_missed() -> None:
    spark = '{"t":{"0":12}}'
    check_present(BEFORE, planned(5, a=line("u", 3), b=spark, rate='{"offset":5}', late="-"), asked(), ())
    check_present(None, Planned(5, (line("t", 1),)), asked(), ())
