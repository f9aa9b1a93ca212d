"""Where a shadow's batches end: at the decisions of the query that it shadows.

The running query goes on meanwhile, and is not disturbed: this only reads. Three things have to belong
together: the source offsets of a decision, its rows and those of all before it in the topic that the running
query writes, and no row of a later one. That is so where a reader of whole batches ends (whole_batches.py).

If the running query is too fast to be met there, its next decision is tried, and a batch of the shadow is
several of the running query's together.

A shadow that has taken over while it ran reads on here, to the log's end. The decision that it took over with
has the plan of its last batch. So the decision that follows a batch's own says whose place this query has.
"""

import time

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin.topics import list_offsets
from eoslog.client.wire.cluster import TopicInfo
from eoslog.client.wire.retry import retrying
from eoslog.connector.checkpoint.shadow_check import (
    ANEW,
    decided_in,
    ends_at,
    forgotten,
    is_before,
    is_later,
    of_before,
)
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.commit.decision import Decision
from eoslog.connector.offsets.group_notes import read_note
from eoslog.connector.offsets.offsets import LATEST, SHADOW, Offsets, ShadowCut, SourcePosition
from eoslog.connector.options.source_options import ShadowOptions, SourceOptions
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import decided, last_decisions
from eoslog.errors import OptionError, ShadowLost

_PAUSE_SECONDS = 0.05
"""Between two looks at a query that is in the middle of a batch."""

Cut = tuple[Offsets, ShadowCut]


class Shadowed:
    """The query that a stream shadows."""

    def __init__(self, options: SourceOptions, shadow: ShadowOptions, log: SourceTopics) -> None:
        self._options, self._shadow, self._log = options, shadow, log
        self._last: Cut | None = None  # with availableNow: where the whole query ends
        self._decision: Decision | None = None  # the last one, as cut() has found it

    def fix_end(self) -> None:
        """End the whole query at the present last decision (availableNow). Raises OptionError,
        CommitFault."""
        self._last = self.await_cut()

    def free_end(self) -> None:
        """End the next batches at decisions that are the last ones then."""
        self._last = None

    def await_cut(self) -> Cut:
        """The last decision, waited for as long as kafka.default.api.timeout.ms says; or where the whole
        query ends. Raises OptionError, CommitFault."""
        if self._last is not None:
            return self._last
        deadline = time.monotonic() + self._options.client.api_timeout_ms / 1000
        while (found := self.cut()) is None:
            if time.monotonic() > deadline:
                raise OptionError(
                    f"shadow.of: the query with transactional.id={self._shadow.sink} has decided nothing, or "
                    f"always has a transaction open, for {self._options.client.api_timeout_ms} ms "
                    "(kafka.default.api.timeout.ms): start it first, with this transactional.id"
                )
            time.sleep(_PAUSE_SECONDS)
        return found

    def end(self, position: SourcePosition, log_ends: SourcePosition) -> SourcePosition | None:
        """The end of the shadow's next batch. `log_ends`: where the log ends. None: the running query has
        decided nothing since, or that cannot be told now. Its first batch is waited for, as Spark would run
        one without an end. It ends with the log if this query has taken over. Raises ShadowLost,
        OptionError, CommitFault."""
        before = position.shadow
        if before is not None and before.over:
            return log_ends._replace(shadow=before)
        found = self._last or (self.await_cut() if before is None else self.cut())
        if before is not None and self._has_taken(before):
            return log_ends._replace(shadow=before._replace(over=True))
        if found is None or self._decision is None:
            return None
        ends, cut = found
        known = None if before is None or before.sink != cut.sink else before
        at_last = known is not None and ends_at(known, position.offsets, self._decision, ends)
        if at_last and self._last is None:
            return None
        self._check_back(position, ends, cut.sink)
        if known is not None and not (at_last or is_later(known, self._decision)):
            raise ShadowLost(
                f"shadow.of: {forgotten(cut.sink, self._decision)}. Begin its shadow anew, {ANEW}"
            )
        there = {tp: at for tp, at in (position.offsets | ends).items() if tp in log_ends.offsets}
        return log_ends._replace(offsets=there, shadow=cut)

    def _has_taken(self, before: ShadowCut) -> bool:
        """Whether the last decision is the one with which this shadow, whose last batch ends at `before`, has
        taken over. Raises ShadowLost if it has taken over and its checkpoint is older, as far as its plans
        tell; of batches in the other query's names they do not, and the sink asks (check_not_its_own)."""
        made = None if self._decision is None else self._decision.of_query
        taken = [] if made is None else _cuts_of(made)
        if made is not None and before not in taken and any(is_before(before, one) for one in taken):
            raise ShadowLost(
                "shadow.of: bring the query's newest checkpoint back: "
                f"{of_before(before.sink, self._shadow.topic, made.batch)}"
            )
        return before in taken

    def _check_back(self, position: SourcePosition, ends: Offsets, sink: str) -> None:
        """Raise OptionError or ShadowLost if the running query has read less than its shadow."""
        back = sorted(tp for tp, at in ends.items() if at < position.offsets.get(tp, at))
        if back and position.shadow is None:
            topic, p = back[0]
            raise OptionError(
                f"startingOffsets: the shadow begins at {position.offsets[topic, p]} in {topic}-{p}, and the "
                f"query with transactional.id={sink} has read to {ends[topic, p]}: start it when that query "
                f"has read as far; or begin anew, {ANEW}, and startingOffsets=committed, or where that query "
                "began"
            )
        if back:
            where = ", ".join(f"{t}-{p} from {position.offsets[t, p]} to {ends[t, p]}" for t, p in back)
            raise ShadowLost(
                f"shadow.of: the query with transactional.id={sink} was set back ({where}): begin its shadow "
                f"anew, {ANEW}"
            )

    def cut(self) -> Cut | None:
        """The last decision: its source offsets, and how far the rows go. None: that cannot be told now.
        Raises OptionError, CommitFault."""
        sink, cluster = self._shadow.sink, self._log.cluster
        before = last_decisions(cluster, [sink], self._options.decision_topic)
        decision = None if before is None else before[sink]
        if before is None or decision is None:
            return None
        self._decision = decision
        topic = self._described(self._shadow.topic)
        ids = {} if topic.topic_id is None else {topic.name: topic.topic_id}
        needed = decided(cluster, before, [(topic.name, p) for p in topic.leaders], ids)
        written = self._ends(topic)
        committed = group_offsets.fetch_committed(cluster, self._shadow.group, sorted(self._log.partitions()))
        ends = {tp: at for tp, (at, _) in committed.items() if at >= 0}
        if not ends:
            raise OptionError(
                f"kafka.group.id: group {self._shadow.group} has no offset of this query's topics: give the "
                f"kafka.group.id of the query with transactional.id={sink}, which needs one. If it is that "
                "one, the cluster has forgotten its offsets: let that query run a batch"
            )
        notes = (read_note(text) for at, text in committed.values() if at >= 0)
        others = sorted({note.sink for note in notes if note is not None} - {sink})
        if others:
            raise OptionError(
                f"kafka.group.id: the offsets of group {self._shadow.group} are those of the query with "
                f"transactional.id={others[0]}, and shadow.of is {sink}: give the group of that one; or, if "
                f"it was renamed, set shadow.of={others[0]}"
            )
        own = self._ends(self._described(self._shadow.into))
        if last_decisions(cluster, [sink], self._options.decision_topic) != before:
            return None
        if needed.why_part(written):
            return None
        made = decided_in(decision)
        return ends, ShadowCut(sink, self._shadow.group, decision.sequence, written, own, decided=made)

    def _described(self, topic: str) -> TopicInfo:
        cluster = self._log.cluster
        return retrying(cluster, f"Metadata of {topic}", lambda: cluster.describe(topic))

    def _ends(self, topic: TopicInfo) -> Offsets:
        """Where the rows of a topic end that can be read."""
        partitions = {(topic.name, p): LATEST for p in topic.leaders}
        return list_offsets(self._log.cluster, partitions, committed=True)


def _cuts_of(made: Decision) -> list[ShadowCut]:
    """Where the batch ends that was decided, if it is a shadow's: one that has taken over."""
    if SHADOW not in made.ends:
        return []
    return Planned.parse(made.batch.batch_id, made.ends).shadows()
