"""The assignors against Apache Kafka's: what its 4.3.1 assigned in random cases, and what holds in any case.

A line of the golden file is a case: ids and sizes of topics, and for each member its instance id ("-": none),
its topics and what it had, as (topic number, index); `golden` is what Kafka's class gave each, members handed
over in the order of their ids. Where all members subscribe to the same several topics, Kafka goes through
the topics in the order of a hash table; then the result must be as good, not the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.coordinator.groups.assignors import ASSIGNORS, Subscriber, Targets, alike
from eoslog.broker.coordinator.groups.consumer_group_state import Part

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
