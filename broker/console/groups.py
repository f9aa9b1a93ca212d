"""Groups of both protocols: state, members, and lag."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eoslog.broker.console.broker_access import (
    END,
    MOST,
    MOST_LOOKED_AT,
    NAME,
    BrokerAccess,
    Caller,
    PageQuery,
    Row,
    arranged,
    check,
    chosen,
    matching,
    offsets,
)
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.internal_topics.coordinator_records import assigned_partitions
from eoslog.protocol.names_by_sink import is_anchor, made, sinks_of_groups
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerGroupDescribeResponseMember,
        DescribeGroupsResponseMember,
        ListGroupsResponseGroup,
        OffsetFetchRequestGroupDraft,
        OffsetFetchResponseGroup,
    )

MOST_MEMBERS = 500
MOST_OFFSETS = 2000
"""The most rows of one group in one answer, which also has their total number."""

SORTS = (NAME, "state", "type", "partitions", "lag")
_GROUPS_AT_ONCE = 50  # per request: short work for the broker's loop


async def groups(inside: BrokerAccess, caller: Caller, want: PageQuery) -> Row:
    """The wanted groups that the caller may describe, each with its lag. Raises KafkaError.

    `lag`: offsets behind the high watermarks, of the partitions that the caller may describe; None for a
    group that holds a sink's decisions: it has `sink` instead.
    """
    answer = await inside.ask(caller, LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    check(answer["error_code"], "groups")
    known = answer["groups"]
    found = matching(known, _name, want.contains)
    if len(found) > MOST_LOOKED_AT:
        want = replace(want, sort=NAME, down=False, fold=False)
    looked_at = [_name(one) for one in found[:MOST_LOOKED_AT]] if want.fold or want.sink else []
    committed = await _committed(inside, caller, looked_at)
    sinks = _sinks(committed)
    wanted = [one for one in found if want.wants(sinks.get(_name(one)))]
    listed, more = chosen(wanted, _name, want)
    new = [_name(one) for one in listed if _name(one) not in committed]
    committed |= await _committed(inside, caller, new)
    rows = arranged(await _rows(inside, caller, listed, committed), want)
    page: Row = {
        "groups": rows,
        "total": len(known),
        "matching": len(wanted),
        "sorted": want.sort,
        "next": more,
    }
    if want.fold:
        lines = [{"sink": one.sink, "groups": one.groups} for one in made({}, sinks, {})]
        page |= {"sinks": lines[:MOST], "total_sinks": len(lines)}
    return page


def _name(listed: ListGroupsResponseGroup) -> str:
    return listed["group_id"]


def _sinks(committed: dict[str, dict[TopicPartition, int]]) -> dict[str, str]:
    return sinks_of_groups({name: {topic for topic, _ in places} for name, places in committed.items()})


async def _rows(
    inside: BrokerAccess,
    caller: Caller,
    listed: list[ListGroupsResponseGroup],
    committed: dict[str, dict[TopicPartition, int]],
) -> list[Row]:
    names = [_name(one) for one in listed]
    ends = await offsets(
        inside, caller, sorted({at for name in names for at in committed.get(name, {})}), END
    )
    sinks = _sinks(committed)
    rows = []
    for one, name in zip(listed, names, strict=True):
        found, sink = committed.get(name, {}), sinks.get(name)
        behind = [lag for place, at in found.items() if (lag := _lag(at, ends.get(place))) is not None]
        rows.append({
            "group": name,
            "state": one["group_state"],
            "type": one["group_type"],
            "protocol": one["protocol_type"],
            "partitions": len(found),
            "lag": sum(behind) if sink is None else None,
            "sink": sink,
        })  # fmt: skip
    return rows


async def group(inside: BrokerAccess, caller: Caller, name: str) -> Row:
    """One group: members with their partitions, offsets with their readers. Raises KafkaError."""
    found = await _consumer(inside, caller, name) or await _classic(inside, caller, name)
    committed = (await _committed(inside, caller, [name])).get(name, {})
    readers = {place: member for member in found["members"] for place in member["partitions"]}
    places = sorted(committed.keys() | readers.keys())
    chosen = places[:MOST_OFFSETS]
    ends = await offsets(inside, caller, chosen, END)
    for place in [place for place in chosen if is_anchor(name, place[0], "")]:
        ends.pop(place, None)
    rows = [_offset(place, committed.get(place), ends.get(place), readers.get(place)) for place in chosen]
    members = [
        member | {"partitions": [f"{topic}-{index}" for topic, index in sorted(member["partitions"])[:100]],
                  "assigned": len(member["partitions"])}
        for member in found["members"][:MOST_MEMBERS]
    ]  # fmt: skip
    total = {"total_members": len(found["members"]), "total_offsets": len(places)}
    return found | {"members": members, "offsets": rows} | total


def _offset(place: TopicPartition, committed: int | None, end: int | None, reader: Row | None) -> Row:
    return {
        "topic": place[0],
        "partition": place[1],
        "committed": committed,
        "end": end,
        "lag": _lag(committed, end),
        "client": None if reader is None else reader["client"],
        "host": None if reader is None else reader["host"],
    }


def _lag(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)


async def _committed(
    inside: BrokerAccess, caller: Caller, names: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of each group, for topics that the caller may describe."""
    committed: dict[str, dict[TopicPartition, int]] = {}
    for first in range(0, len(names), _GROUPS_AT_ONCE):
        some = names[first : first + _GROUPS_AT_ONCE]
        wanted: list[OffsetFetchRequestGroupDraft] = [{"group_id": name, "topics": None} for name in some]
        answer = await inside.ask(caller, OFFSET_FETCH, 8, {"groups": wanted, "require_stable": False})
        committed |= {found["group_id"]: _offsets_of(found) for found in answer["groups"]}
    return committed


def _offsets_of(found: OffsetFetchResponseGroup) -> dict[TopicPartition, int]:
    return {
        (topic["name"], part["partition_index"]): part["committed_offset"]
        for topic in found["topics"]
        for part in topic["partitions"]
        if part["committed_offset"] >= 0
    }


async def _consumer(inside: BrokerAccess, caller: Caller, name: str) -> Row | None:
    """The description of a KIP-848 group; None if the group is of another kind."""
    answer = await inside.ask(caller, CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [name]})
    (found,) = answer["groups"]
    if found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check(found["error_code"], f"group {name}")
    members = [
        _member(member, member["instance_id"], [
            (topic["topic_name"], index)
            for topic in member["assignment"]["topic_partitions"]
            for index in topic["partitions"]
        ])
        for member in found["members"]
    ]  # fmt: skip
    return _described(name, found["group_state"], "consumer", found["assignor_name"], members)


async def _classic(inside: BrokerAccess, caller: Caller, name: str) -> Row:
    answer = await inside.ask(caller, DESCRIBE_GROUPS, 6, {"groups": [name]})
    (found,) = answer["groups"]
    check(found["error_code"], f"group {name}")
    members = []
    for number, member in enumerate(found["members"], 1):
        assigned = assigned_partitions(found["protocol_type"], member["member_assignment"])
        members.append(_member(member, member["group_instance_id"], assigned))
        if not number % 50:
            await asyncio.sleep(0.001)  # let the broker's loop run
    return _described(name, found["group_state"], "classic", found["protocol_data"], members)


def _described(name: str, state: str, kind: str, assignor: str, members: list[Row]) -> Row:
    return {"group": name, "state": state, "type": kind, "assignor": assignor, "members": members}


def _member(
    described: ConsumerGroupDescribeResponseMember | DescribeGroupsResponseMember,
    instance: str | None,
    partitions: list[TopicPartition],
) -> Row:
    return {
        "member": described["member_id"],
        "instance": instance,
        "client": described["client_id"],
        "host": described["client_host"],
        "partitions": partitions,
    }
