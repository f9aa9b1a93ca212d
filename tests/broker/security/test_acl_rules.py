"""ACL rules: the pure ones against a dumb model, each rule of Kafka's by an example, regular expressions."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import strategies as st

from eoslog.broker.rules.acls import Acls, Client
from eoslog.protocol.acls import SUPPORTED, Acl, AclFilter, AclOperation, Pattern, Permission, ResourceType
from tests.broker.security.securitykit import Site

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE, BOB = Client("User:alice", "10.0.0.1"), Client("User:bob", "10.0.0.2")
O = AclOperation  # noqa: E741


def rule(
    operation: AclOperation,
    name: str = "t",
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = "User:alice",
    host: str = "*",
    resource: ResourceType = TOPIC,
) -> Acl:
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    return Acl(
        resource, name, pattern, principal, host, operation, Permission.DENY if deny else Permission.ALLOW
    )


def may(
    acls: Iterable[Acl], operation: AclOperation, name: str = "t", client: Client = ALICE, **more: bool
) -> bool:
    return Acls(acls, **more).allows(client, operation, TOPIC, name)


def test_nothing_is_allowed_without_a_rule() -> None:
    assert not may([], O.READ)
    assert may([], O.READ, open_without=True)
    # a resource with any rule is open to nobody else
    assert not may([rule(O.READ)], O.READ, client=BOB, open_without=True)
    assert may([rule(O.READ)], O.READ, "other", client=BOB, open_without=True)


def test_deny_wins_whatever_its_pattern() -> None:
    for allowed, denied in product([("t", False), ("*", False), ("", True)], repeat=2):
        if "" in (allowed[0], denied[0]):
            allowed, denied = ((name or "t", prefixed) for name, prefixed in (allowed, denied))
        rules = [
            rule(O.READ, allowed[0], prefixed=allowed[1]),
            rule(O.READ, denied[0], prefixed=denied[1], deny=True),
        ]
        assert not may(rules, O.READ)


@pytest.mark.parametrize(
    ("given_", "asked", "expected"),
    [
        (O.READ, O.DESCRIBE, True),
        (O.WRITE, O.DESCRIBE, True),
        (O.DELETE, O.DESCRIBE, True),
        (O.ALTER, O.DESCRIBE, True),
        (O.ALTER_CONFIGS, O.DESCRIBE, False),
        (O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS, True),
        (O.ALTER, O.DESCRIBE_CONFIGS, False),
        (O.DESCRIBE, O.READ, False),
        (O.CREATE, O.DESCRIBE, False),
        (O.ALL, O.READ, True),
        (O.ALL, O.DESCRIBE_CONFIGS, True),
    ],
)
def test_what_an_operation_implies(given_: AclOperation, asked: AclOperation, expected: bool) -> None:
    assert may([rule(given_)], asked) is expected


def test_a_denied_read_denies_no_describe() -> None:
    rules = [rule(O.DESCRIBE), rule(O.READ, deny=True)]
    assert may(rules, O.DESCRIBE)
    assert not may([rule(O.DESCRIBE), rule(O.ALL, deny=True)], O.DESCRIBE)


def test_patterns() -> None:
    assert may([rule(O.READ, "*")], O.READ, "anything")
    assert may([rule(O.READ, "pre", prefixed=True)], O.READ, "prefix")
    assert may([rule(O.READ, "pre", prefixed=True)], O.READ, "pre")
    assert not may([rule(O.READ, "pre")], O.READ, "prefix")
    assert not may([rule(O.READ, "prefix", prefixed=True)], O.READ, "pre")
    assert not may([rule(O.READ, "*", resource=GROUP)], O.READ)


def test_principals_and_hosts() -> None:
    assert may([rule(O.READ, principal="User:*")], O.READ, client=BOB)
    assert not may([rule(O.READ)], O.READ, client=BOB)
    assert may([rule(O.READ, host="10.0.0.1")], O.READ)
    assert not may([rule(O.READ, host="10.0.0.9")], O.READ)
    assert may([rule(O.READ, host="10.0.0.0/24")], O.READ)
    assert not may([rule(O.READ, host="10.1.0.0/24")], O.READ)
    assert not may([rule(O.READ, host="*"), rule(O.READ, host="10.0.0.1", deny=True)], O.READ)


def test_some_resource() -> None:
    def some(*rules: Acl) -> bool:
        return Acls(rules).allows_some(ALICE, O.WRITE, TOPIC)

    assert not some()
    assert some(rule(O.WRITE, "a"))
    assert some(rule(O.WRITE, "a", prefixed=True), rule(O.WRITE, "ab", deny=True, prefixed=True))
    assert not some(rule(O.WRITE, "ab", prefixed=True), rule(O.WRITE, "a", deny=True, prefixed=True))
    assert not some(rule(O.WRITE, "a"), rule(O.WRITE, "a", deny=True))
    assert not some(rule(O.WRITE, "*"), rule(O.WRITE, "*", deny=True))
    assert some(rule(O.WRITE, "*"), rule(O.WRITE, "a", deny=True))
    assert not some(rule(O.READ, "a"))


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
RULES = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.0/31"]),
    st.sampled_from([O.ALL, *SUPPORTED[TOPIC]]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
IMPLIED = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER},
    O.DESCRIBE_CONFIGS: {O.ALTER_CONFIGS},
}


def dumb(rules: list[Acl], client: Client, operation: AclOperation, name: str) -> bool:
    """Every rule looked at by itself, as one reads it."""

    def about(acl: Acl) -> bool:
        named = acl.name in (name, "*") if acl.pattern is Pattern.LITERAL else name.startswith(acl.name)
        hosts = {"*": {ALICE.host, BOB.host}, "10.0.0.0/31": {ALICE.host}}.get(acl.host, {acl.host})
        who = acl.principal in ("User:*", client.principal)
        return acl.resource is TOPIC and named and who and client.host in hosts

    mine = [acl for acl in rules if about(acl)]
    enough = {operation, O.ALL} | IMPLIED.get(operation, set())
    denied = any(a.permission is Permission.DENY and a.operation in (operation, O.ALL) for a in mine)
    return not denied and any(a.permission is Permission.ALLOW and a.operation in enough for a in mine)


@given(st.lists(RULES, max_size=12), st.sampled_from([ALICE, BOB]), st.sampled_from(SUPPORTED[TOPIC]), NAMES)
def test_the_index_decides_as_a_look_at_every_rule(
    rules: list[Acl], client: Client, operation: AclOperation, name: str
) -> None:
    acls = Acls(rules)
    expected = dumb(rules, client, operation, name)
    assert acls.allows(client, operation, TOPIC, name) is expected
    if expected and operation is O.WRITE:
        assert acls.allows_some(client, operation, TOPIC)


def test_filters() -> None:
    literal, prefixed, wild = rule(O.READ, "ab"), rule(O.READ, "a", prefixed=True), rule(O.READ, "*")
    acls = Acls([literal, prefixed, wild])

    def found(**wanted: object) -> set[Acl]:
        return set(acls.matching(AclFilter(**wanted)))  # type: ignore[arg-type]

    assert found() == {literal, prefixed, wild}
    assert found(name="ab") == {literal}
    assert found(name="ab", pattern=Pattern.MATCH) == {literal, prefixed, wild}
    assert found(name="a", pattern=Pattern.MATCH) == {prefixed, wild}
    assert found(name="a", pattern=Pattern.LITERAL) == set()
    assert found(pattern=Pattern.PREFIXED) == {prefixed}
    assert found(operation=O.WRITE) == set()
    assert found(principal="User:alice", host="*", permission=Permission.ALLOW) == {literal, prefixed, wild}
    assert acls.changed(remove=[wild]).all == {literal, prefixed}


# -- regular expressions of KIP-848 --------------------------------------------------------------
# A regular expression of KIP-848 stands for topics that the member may describe, and for no other.

BEAT_MS = "200"
SOON = 30.0
"""Seconds within which a change has to be seen, on a busy machine too; a heartbeat or two are enough."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    beats = dict.fromkeys(
        ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"), BEAT_MS
    )
    with Site(**beats) as started:
        started.create("web-a", "web-b", "web-secret", "other")
        yield started


@pytest.fixture
def rules(site: Site) -> Callable[..., None]:
    """Adds rules; none is there at first."""
    site.forget()
    return site.change


@contextmanager
def member(site: Site, user: str, group: str, regex: str = "^web-.*") -> Iterator[Consumer]:
    options = {"group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer(site.client(user, **options))
    consumer.subscribe([regex])
    yield consumer
    consumer.close()


def reads(consumer: Consumer, *topics: str) -> None:
    """Poll until it reads these topics; no record and no error of another one may come."""
    deadline = monotonic() + SOON
    while {part.topic for part in consumer.assignment()} != set(topics):
        assert monotonic() < deadline, f"{consumer.assignment()} instead of {topics}"
        message = consumer.poll(0.1)
        assert message is None or message.error() is None, message.error()


def test_only_what_may_be_described(site: Site, rules: Callable[..., None]) -> None:
    rules("bob", "READ GROUP g1", "READ TOPIC web-a")
    producer = Producer(site.client("admin"))
    for topic in ("web-a", "web-secret"):
        producer.produce(topic, topic.encode())
    producer.flush(10)
    with member(site, "bob", "g1") as consumer:
        found: list[Any] = []
        deadline = monotonic() + SOON
        while not found and monotonic() < deadline:
            found += [one for one in [consumer.poll(0.1)] if one is not None]
        assert [one.value() for one in found] == [b"web-a"], [one.error() for one in found]
        reads(consumer, "web-a")


def test_rules_come_and_go(site: Site, rules: Callable[..., None]) -> None:
    rules("bob", "READ GROUP g2", "READ TOPIC web-a")
    with member(site, "bob", "g2") as consumer:
        reads(consumer, "web-a")
        rules("bob", "READ TOPIC web-b")
        reads(consumer, "web-a", "web-b")
        rules("bob", "DESCRIBE TOPIC web-a", deny=True)
        reads(consumer, "web-b")
        site.create("web-new")
        rules("bob", "READ TOPIC web-n", prefixed=True)
        reads(consumer, "web-b", "web-new")
