"""The rules of consumer groups (KIP-848), told as stories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eoslog.broker.rules.consumer.events import Beat, Settings, Timer
from eoslog.broker.rules.consumer.facts import CurrentFact, OldMetadataFact, apply
from eoslog.broker.rules.consumer.offsets import check_commit, check_fetch
from eoslog.broker.rules.consumer.state import Current, GroupState, MemberState
from eoslog.broker.rules.offsets import Committer
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from tests.broker.groups.consumer_world import Client, Topics, World, settle


def joined(world: World, name: str = "m1", **more: object) -> Client:
    client = Client(world, name, **more)  # type: ignore[arg-type]
    assert client.beat() is E.NONE
    return client


def alone() -> tuple[World, Client]:
    """A group with one settled member that reads topic a."""
    world = World()
    client = joined(world)
    settle([client])
    assert client.reading == world.everything("a") and world.group.state is GroupState.STABLE
    return world, client


def test_the_first_member_gets_everything_at_once() -> None:
    world = World()
    answer = world.beat(Client(world, "m1").request())
    assert (answer.epoch, answer.heartbeat_interval_ms) == (2, 5_000)
    assert answer.assignment == frozenset(world.everything("a"))
    assert world.group.state is GroupState.STABLE


def test_a_partition_waits_until_it_is_given_back() -> None:
    world, first = alone()
    second = joined(world, "m2")
    assert second.told == frozenset(), "the first one still reads everything"
    assert world.group.members["m2"].current.state is MemberState.UNRELEASED_PARTITIONS
    assert world.group.state is GroupState.RECONCILING

    first.beat()
    assert len(first.told) == 2 and first.epoch == 2, "asked to give back, still in its epoch"
    assert world.group.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    first.beat()
    second.beat()
    second.obey()
    assert second.reading == set(), "not given back yet"

    first.obey()
    second.beat()
    assert second.told == frozenset(), "given back, but nobody has heard of it"
    first.beat()
    assert first.epoch == 3
    second.beat()
    second.obey()
    assert first.reading | second.reading == world.everything("a")
    assert first.reading.isdisjoint(second.reading)
    assert world.state() is GroupState.STABLE
    world.check()


def test_the_states_of_a_group() -> None:
    world = World()
    assert world.state() is GroupState.EMPTY
    first = joined(world)
    world.group.epoch += 1
    assert world.state() is GroupState.ASSIGNING
    world.group.epoch -= 1
    settle([first])
    assert world.state() is GroupState.STABLE
    second = joined(world, "m2")
    assert world.state() is GroupState.RECONCILING
    settle([first, second])
    first.leave()
    second.leave()
    assert world.state() is GroupState.EMPTY and world.group.epoch == world.group.target_epoch


def test_epochs_fence() -> None:
    world, first = alone()
    second = joined(world, "m2")
    settle([first, second])
    ahead = Beat("m1", first.epoch + 1)
    assert world.refused(ahead) is E.FENCED_MEMBER_EPOCH
    assert world.refused(Beat("m1", first.epoch - 1)) is E.FENCED_MEMBER_EPOCH, (
        "it does not say what it reads"
    )
    assert world.refused(Beat("nobody", 1)) is E.UNKNOWN_MEMBER_ID
    assert world.refused(Beat("nobody", -1)) is E.UNKNOWN_MEMBER_ID
    told = world.beat(replace(first.request(), epoch=first.epoch - 1, owned=frozenset(first.reading)))
    assert told.epoch == first.epoch, "the answer with the new epoch was lost; it may say the old one"


def test_a_fenced_member_comes_back_under_its_id() -> None:
    world, first = alone()
    assert world.refused(Beat("m1", 9)) is E.FENCED_MEMBER_EPOCH
    first.epoch, first.reading, first.said = 0, set(), None
    settle([first])
    assert first.reading == world.everything("a")


def test_a_session_ends() -> None:
    world, first = alone()
    second = joined(world, "m2")
    settle([first, second])
    world.advance(44_999)
    second.beat()
    assert world.advance(1) == ["m1"]
    settle([second])
    assert second.reading == world.everything("a")
    assert first.beat() is E.UNKNOWN_MEMBER_ID
    world.check()


def test_who_does_not_give_back_in_time_is_out() -> None:
    world = World()
    first = joined(world, rebalance_timeout_ms=10_000)
    settle([first])
    second = joined(world, "m2")
    first.beat()
    world.advance(9_999)
    first.beat()
    second.beat()
    assert (Timer.REBALANCE, "m1") in world.deadlines
    assert world.advance(1) == ["m1"]
    second.beat()
    assert second.told == world.everything("a")


def test_giving_back_in_time_stops_the_clock() -> None:
    world = World()
    first = joined(world, rebalance_timeout_ms=10_000)
    settle([first])
    second = joined(world, "m2")
    settle([first, second])
    assert world.advance(20_000) == []


def test_static_members() -> None:
    world = World()
    first = joined(world, "m1", instance_id="i")
    settle([first])
    again = Client(world, "m2", instance_id="i")
    assert again.beat() is E.UNRELEASED_INSTANCE_ID
    epoch = world.group.epoch
    first.leave(-2)
    assert world.group.members["m1"].current.epoch == -2
    assert again.beat() is E.NONE
    assert again.told == world.everything("a") and world.group.epoch == epoch, "no rebalance"
    assert set(world.group.members) == {"m2"}
    assert world.refused(Beat("m1", 1, instance_id="i")) is E.FENCED_INSTANCE_ID
    assert world.refused(Beat("m1", 1)) is E.UNKNOWN_MEMBER_ID
    assert world.refused(Beat("m9", 1, instance_id="j")) is E.UNKNOWN_MEMBER_ID
    assert world.refused(Beat("m1", -1, instance_id="i")) is E.FENCED_INSTANCE_ID
    world.check()


def test_a_static_member_that_leaves_for_a_while_owes_nothing() -> None:
    """What it had to give back is free, and the time it had for that does not end its stay."""
    world = World()
    first = joined(world, "m1", instance_id="i", rebalance_timeout_ms=10_000)
    settle([first])
    second = joined(world, "m2")
    first.beat()
    assert world.group.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    first.leave(-2)
    second.beat()
    assert len(second.told) == 2
    assert world.advance(20_000) == []
    assert set(world.group.members) == {"m1", "m2"}
    world.check()


def test_a_static_member_that_stays_away_is_out_with_its_session() -> None:
    world = World()
    first, second = joined(world, "m1", instance_id="i"), joined(world, "m2")
    settle([first, second])
    first.leave(-2)
    world.advance(44_000)
    second.beat()
    assert len(second.told) == 2, "its place is kept"
    assert world.advance(2_000) == ["m1"]
    settle([second])
    assert second.reading == world.everything("a")


def test_room_for_so_many() -> None:
    world = World(settings=Settings(max_size=2))
    joined(world, "m1", instance_id="i")
    joined(world, "m2")
    assert Client(world, "m3").beat() is E.GROUP_MAX_SIZE_REACHED
    assert Client(world, "m4", instance_id="i").beat() is E.UNRELEASED_INSTANCE_ID, "no one more"


def test_a_change_of_subscription() -> None:
    world, first = alone()
    first.topics, first.news = frozenset({"b"}), True
    first.beat()
    assert first.told == frozenset(), "a is to be given back first"
    settle([first])
    assert first.reading == world.everything("b")


def test_partitions_and_topics_that_appear() -> None:
    world = World(topics=Topics(a=2))
    client = joined(world, topics=frozenset({"a", "later"}))
    settle([client])
    world.topics.set("a", 5)
    settle([client])
    assert client.reading == world.everything("a") and len(client.reading) == 5
    world.topics.set("later", 1)
    settle([client])
    assert client.reading == world.everything("a", "later")
    world.topics.set("a", None)
    settle([client])
    assert client.reading == world.everything("later")


def test_regular_expressions() -> None:
    world = World(topics=Topics(web=1, weblog=1, other=1))
    client = joined(world, topics=None, regex="web.*")
    settle([client])
    assert client.reading == world.everything("web", "weblog")
    world.topics.set("web2", 2)
    settle([client])
    assert client.reading == world.everything("web", "weblog", "web2")
    second = joined(world, "m2", topics=frozenset({"other"}), regex="web")
    settle([client, second])
    assert client.reading | second.reading == world.everything("web", "weblog", "web2", "other")
    bad = Client(world, "m3", topics=None, regex="we(b")
    assert bad.beat() is E.INVALID_REGULAR_EXPRESSION
    client.leave()
    assert set(world.group.regexes) == {"web"}, "nobody asks for the other one any more"
    world.check()


def test_a_new_rule_is_seen_with_the_next_heartbeat() -> None:
    world = World(topics=Topics(web=1, weblog=1))
    world.topics.hide("weblog")
    client = joined(world, topics=None, regex="web.*")
    settle([client])
    assert client.reading == world.everything("web")
    world.topics.hide(rules_changed=True)
    settle([client])
    assert client.reading == world.everything("web", "weblog")
    world.topics.hide("web", rules_changed=True)
    settle([client])
    assert client.reading == world.everything("weblog")
    world.check()


def test_members_with_other_rights_take_nothing_away_by_joining() -> None:
    """What an expression stands for is kept till topics or rules change, whoever joins."""
    world = World(topics=Topics(web=1, weblog=1))
    world.topics.hide("weblog")
    first = joined(world, topics=None, regex="web.*")
    settle([first])
    world.topics.hide("web")
    second, third = (
        joined(world, "m2", topics=None, regex="web.*"),
        joined(world, "m3", topics=None, regex="w.*"),
    )
    settle([first, second, third])
    assert world.group.regexes["web.*"].topics == {"web"}
    assert world.group.regexes["w.*"].topics == {"weblog"}
    assert third.reading == world.everything("weblog")
    world.check()


def test_the_assignor_that_most_want() -> None:
    world = World(topics=Topics(a=4, b=4))
    both = frozenset({"a", "b"})
    clients = [
        joined(world, f"m{n}", topics=both, assignor=wanted) for n, wanted in enumerate(("range", None))
    ]
    settle(clients)
    assert clients[0].reading == {world.part(topic, index) for topic in "ab" for index in (0, 1)}
    epoch = world.group.epoch
    clients.append(joined(world, "m2", topics=both, assignor="uniform"))
    clients[0].assignor, clients[0].news = "uniform", True
    settle(clients)
    assert world.group.epoch > epoch + 1, "another assignor begins an epoch"


def test_heartbeats_without_news_write_nothing() -> None:
    world, first = alone()
    written = len(world.log)
    for _ in range(10):
        first.beat()
    second = joined(world, "m2")
    settle([first, second])
    written = len(world.log)
    for client in (first, second) * 5:
        client.beat()
    assert len(world.log) == written


def test_records_of_an_older_broker_are_taken_away() -> None:
    world, first = alone()
    apply(world.group, OldMetadataFact(present=True))
    world.group.seen_version = -1
    first.beat()
    assert not world.group.old_metadata


def commit(world: World, who: Committer, *indexes: int, transactional: bool = False, version: int = 9) -> E:
    parts = [world.part("a", index) for index in indexes]
    try:
        check_commit(world.group, who, parts, transactional=transactional, version=version)
    except KafkaError as error:
        return error.code
    return E.NONE


def test_who_may_commit() -> None:
    world, _ = alone()
    epochs = {world.part("a", 0): 3, world.part("a", 1): 5}
    apply(world.group, CurrentFact("m1", Current(6, 5, MemberState.STABLE, epochs)))
    assert commit(world, Committer("g", "m1", None, 6), 0, 1, 2) is E.NONE
    assert commit(world, Committer("g", "m1", None, 7), 0) is E.STALE_MEMBER_EPOCH
    assert commit(world, Committer("g", "m1", None, 5), 0, 1) is E.NONE, "it has had both since then"
    assert commit(world, Committer("g", "m1", None, 4), 0) is E.NONE
    assert commit(world, Committer("g", "m1", None, 4), 0, 1) is E.STALE_MEMBER_EPOCH
    assert commit(world, Committer("g", "m1", None, 5), 3) is E.STALE_MEMBER_EPOCH, "not its own"
    assert commit(world, Committer("g", "m1", None, 6), 0, version=8) is E.UNSUPPORTED_VERSION
    assert commit(world, Committer("g", "m9", None, 6), 0) is E.UNKNOWN_MEMBER_ID
    for transactional in (False, True):
        nobody = commit(world, Committer("g", "", None, 6), 0, transactional=transactional)
        assert nobody is E.UNKNOWN_MEMBER_ID, "an epoch alone says nothing of who commits"
    assert commit(world, Committer("g"), 0) is E.UNKNOWN_MEMBER_ID, "an administrator, but there are members"
    assert commit(world, Committer("g"), 0, transactional=True) is E.NONE, "clients before KIP-447"
    assert commit(world, Committer("g", "m1", None, 7), 0, transactional=True) is E.ILLEGAL_GENERATION
    assert commit(World(), Committer("g"), 0) is E.NONE, "nobody is in the group"


@pytest.mark.parametrize(
    ("who", "refusal"),
    [
        ((None, -1), None),
        (("m1", 2), None),
        (("m1", 1), E.STALE_MEMBER_EPOCH),
        (("m9", 1), E.UNKNOWN_MEMBER_ID),
        (("", -1), E.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_fetch(who: tuple[str | None, int], refusal: E | None) -> None:
    world, _ = alone()
    if refusal is None:
        check_fetch(world.group, *who)
        return
    with pytest.raises(KafkaError) as refused:
        check_fetch(world.group, *who)
    assert refused.value.code is refusal
