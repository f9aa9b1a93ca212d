"""Any order of joins, heartbeats (some with lost answers), leaves, time-outs, new topics and restarts.

What always holds: no partition has two owners, and no two members read one at the same time; what is in the
log is what a restart brings back; a refused event changes nothing; and from anywhere, heartbeats alone bring
every member to its target, in which every partition that somebody subscribes to has one reader.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eoslog.broker.coordinator.groups.consumer_group_state import (
    ConsumerGroupSettings,
    ConsumerGroupState,
    ConsumerHeartbeat,
)
from eoslog.protocol.errors import ErrorCode as E
from tests.broker.coordinator.groups.consumer_bench import Client, ConsumerBench, settle

SESSION_MS = 45_000
NAMES = ("a", "b", "c")
SUBSCRIPTIONS = st.sets(st.sampled_from([*NAMES, "none"]), max_size=3).map(frozenset)
REGEXES = st.sampled_from([None, None, None, "[ab]", "b.*|c", "nothing"])
PICK = st.integers(0, 99)


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([3, 100]))
    def begin(self, size: int) -> None:
        self.bench = ConsumerBench(
            settings=ConsumerGroupSettings(session_timeout_ms=SESSION_MS, max_size=size)
        )
        self.clients = [Client(self.bench, f"m{number}", frozenset({"a", "b"})) for number in range(2)]
        settle(self.clients)
        self.names = 2

    def client(self, pick: int) -> Client | None:
        return self.clients[pick % len(self.clients)] if self.clients else None

    def living(self) -> list[Client]:
        """Clients that the group counts as members; others were timed out and will hear of it."""
        return [client for client in self.clients if client.member_id in self.bench.group.members]

    @rule(
        topics=SUBSCRIPTIONS,
        regex=REGEXES,
        instance=st.sampled_from([None, None, "i1", "i2"]),
        assignor=st.sampled_from([None, "range", "uniform"]),
        timeout=st.sampled_from([1_000, 60_000]),
    )
    def join(
        self,
        topics: frozenset[str],
        regex: str | None,
        instance: str | None,
        assignor: str | None,
        timeout: int,
    ) -> None:
        self.names += 1
        client = Client(self.bench, f"m{self.names}", topics, regex, instance, assignor)
        client.rebalance_timeout_ms = timeout
        if client.beat() is E.NONE:
            self.clients = [c for c in self.clients if instance is None or c.instance_id != instance]
            self.clients.append(client)

    @rule(pick=PICK, lost=st.sampled_from([False, False, True]))
    def beat(self, pick: int, lost: bool) -> None:
        client = self.client(pick)
        if client is not None:
            client.beat(answer_is_lost=lost)
            if pick % 3 == 0:
                client.obey()

    @rule(pick=PICK)
    def obey_all(self, pick: int) -> None:
        for client in self.clients:
            if client is not self.client(pick):
                client.obey()

    @rule(pick=PICK)
    def beat_all(self, pick: int) -> None:
        for client in self.clients:
            if client is not self.client(pick):
                client.beat()

    @rule(pick=PICK)
    def obey(self, pick: int) -> None:
        client = self.client(pick)
        if client is not None:
            client.obey()

    @rule(pick=PICK, topics=SUBSCRIPTIONS, regex=st.sampled_from([None, "", "[bc]"]))
    def subscribe(self, pick: int, topics: frozenset[str], regex: str | None) -> None:
        client = self.client(pick)
        if client is not None:
            client.topics, client.regex, client.news = topics, regex, True

    @rule(pick=PICK, for_a_while=st.booleans())
    def leave(self, pick: int, for_a_while: bool) -> None:
        client = self.client(pick)
        if client is None or client.member_id not in self.bench.group.members or pick > 60:
            return
        if client.epoch == 0:  # It has been fenced and does not know its epoch: it has to come back first.
            client.beat()
        self.clients.remove(client)
        client.leave(-2 if for_a_while and client.instance_id else -1)

    @rule(pick=PICK)
    def stop_without_a_word(self, pick: int) -> None:
        client = self.client(pick)
        if client is not None and pick > 80:
            self.clients.remove(client)

    @rule(epoch=st.integers(-2, 9), pick=PICK, instance=st.sampled_from([None, "i1", "nobody"]))
    def say_something_odd(self, epoch: int, pick: int, instance: str | None) -> None:
        """A heartbeat of a stranger, or with a wrong epoch or static id: refused, or without effect."""
        client = self.client(pick)
        known = client is not None and pick % 2 == 0
        name = client.member_id if client is not None and known else "stranger"
        member = self.bench.group.members.get(name)
        right = member is not None and epoch in (member.current.epoch, member.current.previous_epoch)
        if epoch <= 0 or right:
            return
        refusal = self.bench.refused(ConsumerHeartbeat(name, epoch, instance_id=instance))
        assert refusal in (
            E.UNKNOWN_MEMBER_ID,
            E.FENCED_MEMBER_EPOCH,
            E.FENCED_INSTANCE_ID,
            E.GROUP_MAX_SIZE_REACHED,
        )

    @rule(ms=st.sampled_from([500, 500, 500, 500, 5_000, 20_000, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)

    @rule(name=st.sampled_from(NAMES), grows=st.booleans())
    def topics_change(self, name: str, grows: bool) -> None:
        found = self.bench.topics.topic(name)
        if found is None:
            self.bench.topics.set(name, 2)
        elif grows:
            self.bench.topics.set(name, min(found.partitions + 2, 8))
        elif name == "c":
            self.bench.topics.set(name, None)

    @rule()
    def restart(self) -> None:
        """The broker is killed and started: what is in the log is all it knows; sessions begin anew."""
        self.bench.check_compaction()
        self.bench.group = self.bench.replayed()
        self.bench.deadlines = {
            key: self.bench.now + SESSION_MS if key[0].name == "SESSION" else deadline
            for key, deadline in self.bench.deadlines.items()
        }

    @rule()
    def heartbeats_settle_it(self) -> None:
        bench, clients = self.bench, self.clients
        gone = SESSION_MS + 1
        for client in clients:  # Whoever is silent loses its place; who speaks keeps it.
            client.beat()
        bench.advance(gone - 1)
        for client in clients:
            client.beat()
        bench.advance(gone - 1)
        settle(clients)
        inside = self.living()
        state = bench.group.state
        assert state is (ConsumerGroupState.STABLE if inside else ConsumerGroupState.EMPTY), state
        read = [part for client in inside for part in client.reading]
        wanted = {name for client in inside for name in bench.group.members[client.member_id].profile.topics}
        for client in inside:
            regex = bench.group.members[client.member_id].profile.regex
            wanted |= bench.topics.matching(regex) if regex else set()
        assert sorted(read) == sorted(bench.everything(*wanted))
        for client in inside:
            assert client.reading == bench.group.target(client.member_id)

    @invariant()
    def consistent(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    @invariant()
    def nothing_is_read_twice(self) -> None:
        if not hasattr(self, "bench"):
            return
        read = [part for client in self.living() for part in client.reading]
        assert len(read) == len(set(read)), "two members read one partition"


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
