"""The rules of consumer groups (KIP-848), told as stories; and the assignors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.coordinator.groups.assignors import ASSIGNORS, Subscriber, Targets, alike
from eoslog.broker.coordinator.groups.committed_offsets import Committer, check_commit, check_fetch
from eoslog.broker.coordinator.groups.consumer_group_state import (
    ConsumerGroupSettings,
    ConsumerGroupState,
    ConsumerHeartbeat,
    CurrentAssignment,
    CurrentFact,
    MemberState,
    OldMetadataFact,
    Part,
    Timer,
    apply,
)
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.errors import KafkaError
from tests.broker.coordinator.groups.consumer_bench import Client, ConsumerBench, Topics, settle


def joined(bench: ConsumerBench, name: str = "m1", **more: object) -> Client:
    client = Client(bench, name, **more)  # type: ignore[arg-type]
    assert client.beat() is E.NONE
    return client


def alone() -> tuple[ConsumerBench, Client]:
    """A group with one settled member that reads topic a."""
    bench = ConsumerBench()
    client = joined(bench)
    settle([client])
    assert client.reading == bench.everything("a") and bench.group.state is ConsumerGroupState.STABLE
    return bench, client


def test_the_first_member_gets_everything_at_once() -> None:
    bench = ConsumerBench()
    answer = bench.beat(Client(bench, "m1").request())
    assert (answer.epoch, answer.heartbeat_interval_ms) == (2, 5_000)
    assert answer.assignment == frozenset(bench.everything("a"))
    assert bench.group.state is ConsumerGroupState.STABLE


def test_a_partition_waits_until_it_is_given_back() -> None:
    bench, first = alone()
    second = joined(bench, "m2")
    assert second.told == frozenset(), "the first one still reads everything"
    assert bench.group.members["m2"].current.state is MemberState.UNRELEASED_PARTITIONS
    assert bench.group.state is ConsumerGroupState.RECONCILING

    first.beat()
    assert len(first.told) == 2 and first.epoch == 2, "asked to give back, still in its epoch"
    assert bench.group.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
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
    assert first.reading | second.reading == bench.everything("a")
    assert first.reading.isdisjoint(second.reading)
    assert bench.state() is ConsumerGroupState.STABLE
    bench.check()


def test_the_states_of_a_group() -> None:
    bench = ConsumerBench()
    assert bench.state() is ConsumerGroupState.EMPTY
    first = joined(bench)
    bench.group.epoch += 1
    assert bench.state() is ConsumerGroupState.ASSIGNING
    bench.group.epoch -= 1
    settle([first])
    assert bench.state() is ConsumerGroupState.STABLE
    second = joined(bench, "m2")
    assert bench.state() is ConsumerGroupState.RECONCILING
    settle([first, second])
    first.leave()
    second.leave()
    assert bench.state() is ConsumerGroupState.EMPTY and bench.group.epoch == bench.group.target_epoch


def test_epochs_fence() -> None:
    bench, first = alone()
    second = joined(bench, "m2")
    settle([first, second])
    ahead = ConsumerHeartbeat("m1", first.epoch + 1)
    assert bench.refused(ahead) is E.FENCED_MEMBER_EPOCH
    assert bench.refused(ConsumerHeartbeat("m1", first.epoch - 1)) is E.FENCED_MEMBER_EPOCH, (
        "it does not say what it reads"
    )
    assert bench.refused(ConsumerHeartbeat("nobody", 1)) is E.UNKNOWN_MEMBER_ID
    assert bench.refused(ConsumerHeartbeat("nobody", -1)) is E.UNKNOWN_MEMBER_ID
    told = bench.beat(replace(first.request(), epoch=first.epoch - 1, owned=frozenset(first.reading)))
    assert told.epoch == first.epoch, "the answer with the new epoch was lost; it may say the old one"


def test_a_fenced_member_comes_back_under_its_id() -> None:
    bench, first = alone()
    assert bench.refused(ConsumerHeartbeat("m1", 9)) is E.FENCED_MEMBER_EPOCH
    first.epoch, first.reading, first.said = 0, set(), None
    settle([first])
    assert first.reading == bench.everything("a")


def test_a_session_ends() -> None:
    bench, first = alone()
    second = joined(bench, "m2")
    settle([first, second])
    bench.advance(44_999)
    second.beat()
    assert bench.advance(1) == ["m1"]
    settle([second])
    assert second.reading == bench.everything("a")
    assert first.beat() is E.UNKNOWN_MEMBER_ID
    bench.check()


def test_who_does_not_give_back_in_time_is_out() -> None:
    bench = ConsumerBench()
    first = joined(bench, rebalance_timeout_ms=10_000)
    settle([first])
    second = joined(bench, "m2")
    first.beat()
    bench.advance(9_999)
    first.beat()
    second.beat()
    assert (Timer.REBALANCE, "m1") in bench.deadlines
    assert bench.advance(1) == ["m1"]
    second.beat()
    assert second.told == bench.everything("a")


def test_giving_back_in_time_stops_the_clock() -> None:
    bench = ConsumerBench()
    first = joined(bench, rebalance_timeout_ms=10_000)
    settle([first])
    second = joined(bench, "m2")
    settle([first, second])
    assert bench.advance(20_000) == []


def test_static_members() -> None:
    bench = ConsumerBench()
    first = joined(bench, "m1", instance_id="i")
    settle([first])
    again = Client(bench, "m2", instance_id="i")
    assert again.beat() is E.UNRELEASED_INSTANCE_ID
    epoch = bench.group.epoch
    first.leave(-2)
    assert bench.group.members["m1"].current.epoch == -2
    assert again.beat() is E.NONE
    assert again.told == bench.everything("a") and bench.group.epoch == epoch, "no rebalance"
    assert set(bench.group.members) == {"m2"}
    assert bench.refused(ConsumerHeartbeat("m1", 1, instance_id="i")) is E.FENCED_INSTANCE_ID
    assert bench.refused(ConsumerHeartbeat("m1", 1)) is E.UNKNOWN_MEMBER_ID
    assert bench.refused(ConsumerHeartbeat("m9", 1, instance_id="j")) is E.UNKNOWN_MEMBER_ID
    assert bench.refused(ConsumerHeartbeat("m1", -1, instance_id="i")) is E.FENCED_INSTANCE_ID
    bench.check()


def test_a_static_member_that_leaves_for_a_while_owes_nothing() -> None:
    """What it had to give back is free, and the time it had for that does not end its stay."""
    bench = ConsumerBench()
    first = joined(bench, "m1", instance_id="i", rebalance_timeout_ms=10_000)
    settle([first])
    second = joined(bench, "m2")
    first.beat()
    assert bench.group.members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    first.leave(-2)
    second.beat()
    assert len(second.told) == 2
    assert bench.advance(20_000) == []
    assert set(bench.group.members) == {"m1", "m2"}
    bench.check()


def test_a_static_member_that_stays_away_is_out_with_its_session() -> None:
    bench = ConsumerBench()
    first, second = joined(bench, "m1", instance_id="i"), joined(bench, "m2")
    settle([first, second])
    first.leave(-2)
    bench.advance(44_000)
    second.beat()
    assert len(second.told) == 2, "its place is kept"
    assert bench.advance(2_000) == ["m1"]
    settle([second])
    assert second.reading == bench.everything("a")


def test_room_for_so_many() -> None:
    bench = ConsumerBench(settings=ConsumerGroupSettings(max_size=2))
    joined(bench, "m1", instance_id="i")
    joined(bench, "m2")
    assert Client(bench, "m3").beat() is E.GROUP_MAX_SIZE_REACHED
    assert Client(bench, "m4", instance_id="i").beat() is E.UNRELEASED_INSTANCE_ID, "no one more"


def test_a_change_of_subscription() -> None:
    bench, first = alone()
    first.topics, first.news = frozenset({"b"}), True
    first.beat()
    assert first.told == frozenset(), "a is to be given back first"
    settle([first])
    assert first.reading == bench.everything("b")


def test_partitions_and_topics_that_appear() -> None:
    bench = ConsumerBench(topics=Topics(a=2))
    client = joined(bench, topics=frozenset({"a", "later"}))
    settle([client])
    bench.topics.set("a", 5)
    settle([client])
    assert client.reading == bench.everything("a") and len(client.reading) == 5
    bench.topics.set("later", 1)
    settle([client])
    assert client.reading == bench.everything("a", "later")
    bench.topics.set("a", None)
    settle([client])
    assert client.reading == bench.everything("later")


def test_regular_expressions() -> None:
    bench = ConsumerBench(topics=Topics(web=1, weblog=1, other=1))
    client = joined(bench, topics=None, regex="web.*")
    settle([client])
    assert client.reading == bench.everything("web", "weblog")
    bench.topics.set("web2", 2)
    settle([client])
    assert client.reading == bench.everything("web", "weblog", "web2")
    second = joined(bench, "m2", topics=frozenset({"other"}), regex="web")
    settle([client, second])
    assert client.reading | second.reading == bench.everything("web", "weblog", "web2", "other")
    bad = Client(bench, "m3", topics=None, regex="we(b")
    assert bad.beat() is E.INVALID_REGULAR_EXPRESSION
    client.leave()
    assert set(bench.group.regexes) == {"web"}, "nobody asks for the other one any more"
    bench.check()


def test_a_new_rule_is_seen_with_the_next_heartbeat() -> None:
    bench = ConsumerBench(topics=Topics(web=1, weblog=1))
    bench.topics.hide("weblog")
    client = joined(bench, topics=None, regex="web.*")
    settle([client])
    assert client.reading == bench.everything("web")
    bench.topics.hide(rules_changed=True)
    settle([client])
    assert client.reading == bench.everything("web", "weblog")
    bench.topics.hide("web", rules_changed=True)
    settle([client])
    assert client.reading == bench.everything("weblog")
    bench.check()


def test_members_with_other_rights_take_nothing_away_by_joining() -> None:
    """What an expression stands for is kept till topics or rules change, whoever joins."""
    bench = ConsumerBench(topics=Topics(web=1, weblog=1))
    bench.topics.hide("weblog")
    first = joined(bench, topics=None, regex="web.*")
    settle([first])
    bench.topics.hide("web")
    second, third = (
        joined(bench, "m2", topics=None, regex="web.*"),
        joined(bench, "m3", topics=None, regex="w.*"),
    )
    settle([first, second, third])
    assert bench.group.regexes["web.*"].topics == {"web"}
    assert bench.group.regexes["w.*"].topics == {"weblog"}
    assert third.reading == bench.everything("weblog")
    bench.check()


def test_the_assignor_that_most_want() -> None:
    bench = ConsumerBench(topics=Topics(a=4, b=4))
    both = frozenset({"a", "b"})
    clients = [
        joined(bench, f"m{n}", topics=both, assignor=wanted) for n, wanted in enumerate(("range", None))
    ]
    settle(clients)
    assert clients[0].reading == {bench.part(topic, index) for topic in "ab" for index in (0, 1)}
    epoch = bench.group.epoch
    clients.append(joined(bench, "m2", topics=both, assignor="uniform"))
    clients[0].assignor, clients[0].news = "uniform", True
    settle(clients)
    assert bench.group.epoch > epoch + 1, "another assignor begins an epoch"


def test_heartbeats_without_news_write_nothing() -> None:
    bench, first = alone()
    written = len(bench.log)
    for _ in range(10):
        first.beat()
    second = joined(bench, "m2")
    settle([first, second])
    written = len(bench.log)
    for client in (first, second) * 5:
        client.beat()
    assert len(bench.log) == written


def test_records_of_an_older_broker_are_taken_away() -> None:
    bench, first = alone()
    apply(bench.group, OldMetadataFact(present=True))
    bench.group.seen_version = -1
    first.beat()
    assert not bench.group.old_metadata


def commit(
    bench: ConsumerBench, who: Committer, *indexes: int, transactional: bool = False, version: int = 9
) -> E:
    parts = [bench.part("a", index) for index in indexes]
    try:
        check_commit(bench.group, who, parts, transactional=transactional, version=version)
    except KafkaError as error:
        return error.code
    return E.NONE


def test_who_may_commit() -> None:
    bench, _ = alone()
    epochs = {bench.part("a", 0): 3, bench.part("a", 1): 5}
    apply(bench.group, CurrentFact("m1", CurrentAssignment(6, 5, MemberState.STABLE, epochs)))
    assert commit(bench, Committer("g", "m1", None, 6), 0, 1, 2) is E.NONE
    assert commit(bench, Committer("g", "m1", None, 7), 0) is E.STALE_MEMBER_EPOCH
    assert commit(bench, Committer("g", "m1", None, 5), 0, 1) is E.NONE, "it has had both since then"
    assert commit(bench, Committer("g", "m1", None, 4), 0) is E.NONE
    assert commit(bench, Committer("g", "m1", None, 4), 0, 1) is E.STALE_MEMBER_EPOCH
    assert commit(bench, Committer("g", "m1", None, 5), 3) is E.STALE_MEMBER_EPOCH, "not its own"
    assert commit(bench, Committer("g", "m1", None, 6), 0, version=8) is E.UNSUPPORTED_VERSION
    assert commit(bench, Committer("g", "m9", None, 6), 0) is E.UNKNOWN_MEMBER_ID
    for transactional in (False, True):
        nobody = commit(bench, Committer("g", "", None, 6), 0, transactional=transactional)
        assert nobody is E.UNKNOWN_MEMBER_ID, "an epoch alone says nothing of who commits"
    assert commit(bench, Committer("g"), 0) is E.UNKNOWN_MEMBER_ID, "an administrator, but there are members"
    assert commit(bench, Committer("g"), 0, transactional=True) is E.NONE, "clients before KIP-447"
    assert commit(bench, Committer("g", "m1", None, 7), 0, transactional=True) is E.STALE_MEMBER_EPOCH
    assert commit(ConsumerBench(), Committer("g"), 0) is E.NONE, "nobody is in the group"


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
    bench, _ = alone()
    if refusal is None:
        check_fetch(bench.group, *who)
        return
    with pytest.raises(KafkaError) as refused:
        check_fetch(bench.group, *who)
    assert refused.value.code is refusal


# -- the assignors -------------------------------------------------------------------------------
# The assignors against Apache Kafka's: what its 4.3.1 assigned in random cases, and what holds in any case.
#
# A line of the golden file is a case: ids and sizes of topics, and for each member its instance id ("-":
# none), its topics and what it had, as (topic number, index); `golden` is what Kafka's class gave each,
# members handed over in the order of their ids. Where all members subscribe to the same several topics, Kafka
# goes through the topics in the order of a hash table; then the result must be as good, not the same.

GOLDEN = Path(__file__).with_name("kafka_4_3_1_assignments.jsonl")
CASES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def parts(case: dict[str, Any], numbers: list[list[int]]) -> frozenset[Part]:
    return frozenset((bytes.fromhex(case["ids"][topic]), index) for topic, index in numbers)


def subscribers(case: dict[str, Any]) -> dict[str, Subscriber]:
    return {
        member_id: Subscriber(
            topics=frozenset(bytes.fromhex(case["ids"][topic]) for topic in member["topics"]),
            instance_id=None if member["instance"] == "-" else member["instance"],
            has=parts(case, member["has"]),
        )
        for member_id, member in case["members"].items()
    }


def kept(members: dict[str, Subscriber], targets: Targets) -> int:
    return sum(len(member.has & targets[member_id]) for member_id, member in members.items())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['assignor']}-{len(case['members'])}")
def test_as_kafka_assigns(case: dict[str, Any]) -> None:
    members = subscribers(case)
    sizes = {bytes.fromhex(topic): size for topic, size in zip(case["ids"], case["sizes"], strict=True)}
    targets = ASSIGNORS[case["assignor"]](members, sizes)
    golden = {member_id: parts(case, numbers) for member_id, numbers in case["golden"].items()}
    if case["assignor"] == "uniform" and alike(members) and len(sizes) > 1:
        assert sorted(map(len, targets.values())) == sorted(map(len, golden.values()))
        assert kept(members, targets) == kept(members, golden)
    else:
        assert targets == golden


TOPICS = [bytes([number]) * 16 for number in range(4)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[bytes, int]]:
    sizes = {topic: draw(st.integers(1, 8)) for topic in TOPICS}
    same = draw(st.booleans())
    first = frozenset(draw(st.sets(st.sampled_from(TOPICS), min_size=1)))
    names = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    owners = {
        (topic, index): draw(st.sampled_from([*names, "nobody"]))
        for topic in TOPICS
        for index in range(sizes[topic])
    }
    members = {}
    for name in names:
        topics = first if same else frozenset(draw(st.sets(st.sampled_from(TOPICS))))
        has = frozenset(part for part, owner in owners.items() if owner == name)
        members[name] = Subscriber(topics, draw(st.sampled_from([None, f"i-{name}"])), has)
    return members, sizes


@settings(max_examples=150, deadline=None)
@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_subscriber(
    group: tuple[dict[str, Subscriber], dict[bytes, int]], name: str
) -> None:
    members, sizes = group
    targets = ASSIGNORS[name](members, sizes)
    given_out = [part for assigned in targets.values() for part in assigned]
    read = {topic for member in members.values() for topic in member.topics}
    assert sorted(given_out) == sorted((topic, index) for topic in read for index in range(sizes[topic]))
    for member_id, assigned in targets.items():
        assert {topic for topic, _ in assigned} <= members[member_id].topics
    if name == "uniform":
        again = {m: Subscriber(s.topics, s.instance_id, targets[m]) for m, s in members.items()}
        assert ASSIGNORS[name](again, sizes) == targets, "partitions move though nothing has changed"
        if alike(members):
            loads = [len(assigned) for assigned in targets.values()]
            assert max(loads) - min(loads) <= 1
