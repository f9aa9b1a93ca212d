"""Offsets by topic and partition: Spark's JSON for them, and what a user may give as a bound.

The JSON is that of Spark's Kafka source, `{"topic":{"0":123}}`. In options -2 means the earliest offset and
-1 the latest, as in Kafka's ListOffsets. Pure: no sockets.

A stream's offsets have further entries, which identify their log:

- `"topic-id:<topic>:<id>": {}` for each topic, as a topic that was created again has the same name;
- `"cluster-id:<id>": {}`;
- `"leader-epoch:<topic>:<epoch>:<partitions>": {}`, the epochs in which the log reached the offsets, as a log
  that was cut or restored and has grown again has the same offsets. Partitions are as in `0,2-7`;
- `"offsets-of:<sink>:<group>": {}` in the first batch of a query that began at a group's offsets which a sink
  had committed: the sink and the group, both quoted as in a URL;
- `"began-at:<topic>:<offset>:<partitions>": {}` in the first batch of a query: where it began, for the option
  startingOffsets may change, and Spark stores ends alone;
- `"shadow-of:<sink>:<group>:<sequence>": {}` in a query that shadows another one (option shadow.of): the
  decision of that sink at which the batch ends. With it `"shadow-written:<topic>:<offset>:<partitions>": {}`,
  where the other query's rows ended, and `"shadow-own:...": {}`, where this one's ended before the batch.
  `"shadow-batch:<query>:<batch>:<digest>": {}`: which batch was decided, all quoted as in a URL, as numbers
  of decisions are counted anew once a cluster has forgotten them; earlier versions did not write it.
  `"shadow-over:<sequence>": {}`: it has taken over at that decision, and the batch ends where the log does;
- `"left-at:<topic>:<offset>:<partitions>": {}` for partitions that the query has read and reads no more:
  where it goes on if it reads them again. With it `"left-id:<topic>:<id>": {}`, or `"gone-id:...": {}` if the
  topic did not exist then, and `"left-epoch:<topic>:<epoch>:<partitions>": {}`;
- `"then:<number>:<offsets>": {}` in a checkpoint that was restored from state.topic: the ends of the next
  batches, numbered from 0, which the sink has decided already; quoted as in a URL.

No topic's name can have a colon. Spark's Kafka source takes an entry for a topic and finds no partition in
it. So each source can continue from the other's checkpoint.
"""

import difflib
import json
import re
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from eoslog.errors import OptionError
from eoslog.protocol.topic_partitions import TopicPartition

TopicIds = dict[str, str]
Offsets = dict[TopicPartition, int]
Epochs = dict[TopicPartition, int]

LATEST = -1
EARLIEST = -2
COMMITTED = -3
WORDS = {"earliest": EARLIEST, "latest": LATEST}
START_WORDS = {**WORDS, "committed": COMMITTED}


@dataclass(frozen=True)
class AtTime:
    """The first record not older than a time (ms since 1970), for every partition or for each.

    `none_is_latest`: a partition without such a record is read from its end; else that is an error.
    """

    times: int | tuple[tuple[TopicPartition, int], ...]
    none_is_latest: bool

    def of(self, partition: TopicPartition) -> int:
        """The time for a partition."""
        return self.times if isinstance(self.times, int) else dict(self.times)[partition]


Bound = int | Offsets | AtTime
"""EARLIEST, LATEST or COMMITTED for every partition, an offset (or -2, -1) for each partition, or times."""


_ID = "topic-id"
_CLUSTER = "cluster-id"
_EPOCH = "leader-epoch"
_TAKEN = "offsets-of"
_BEGAN = "began-at"
SHADOW, _WRITTEN, _OWN, _OVER = "shadow-of", "shadow-written", "shadow-own", "shadow-over"
_BATCH = "shadow-batch"
_LEFT, _LEFT_ID, _GONE_ID, _LEFT_EPOCH = "left-at", "left-id", "gone-id", "left-epoch"
_THEN = "then"


_KINDS = {_ID, _CLUSTER, _EPOCH, _TAKEN, _BEGAN, SHADOW, _WRITTEN, _OWN, _OVER, _THEN}
_KINDS |= {_LEFT, _LEFT_ID, _GONE_ID, _LEFT_EPOCH, _BATCH}


class TakenFrom(NamedTuple):
    """Where a query got the offsets at which it began: the sink that committed them, and its group."""

    sink: str
    group: str


class ShadowCut(NamedTuple):
    """A decision of the query that is shadowed, and how far the rows went then. `sequence`: the decision's.

    `written`: where the rows of that decision and of all before it end in the topic that the other query
    writes. `own`: where the rows of this query end, but for those of the batch that ends here. `over`: this
    query has taken the other one's place at the decision; the batch is one of those that came after.
    `decided`: the last batch of a query that was decided then, its query, number and digest, as sequences
    repeat once the cluster has forgotten decisions; None: an earlier version has made the cut.
    """

    sink: str
    group: str
    sequence: int
    written: Offsets
    own: Offsets
    over: bool = False
    decided: tuple[str, int, str] | None = None

    def names(self) -> list[str]:
        """The entries of it."""
        head = ":".join([SHADOW, quote(self.sink, safe=""), quote(self.group, safe=""), str(self.sequence)])
        over = [f"{_OVER}:{self.sequence}"] if self.over else []
        said = (quote(str(one), safe="") for one in self.decided or ())
        batch = [] if self.decided is None else [":".join([_BATCH, *said])]
        return [head, *batch, *over, *_names(_WRITTEN, self.written), *_names(_OWN, self.own)]


class Left(NamedTuple):
    """Where a query was in partitions that it reads no more. `gone`: topics that did not exist when they were
    left out; if one is created again, it is another topic."""

    offsets: Mapping[TopicPartition, int] = MappingProxyType({})
    ids: Mapping[str, str] = MappingProxyType({})
    epochs: Mapping[TopicPartition, int] = MappingProxyType({})
    gone: frozenset[str] = frozenset()

    def names(self) -> list[str]:
        """The entries of it."""
        ids = [f"{_GONE_ID if t in self.gone else _LEFT_ID}:{t}:{n}" for t, n in sorted(self.ids.items())]
        return [*_names(_LEFT, self.offsets), *ids, *_names(_LEFT_EPOCH, self.epochs)]

    def only(self, places: Container[TopicPartition]) -> "Left":
        """As far as it is about these partitions."""
        offsets = {tp: at for tp, at in self.offsets.items() if tp in places}
        topics = {topic for topic, _ in offsets}
        ids = {topic: number for topic, number in self.ids.items() if topic in topics}
        epochs = {tp: epoch for tp, epoch in self.epochs.items() if tp in offsets}
        return Left(offsets, ids, epochs, self.gone & topics)

    def moved(
        self,
        found: Mapping[TopicPartition, int],
        ids: Mapping[str, str],
        epochs: Mapping[TopicPartition, int],
        cluster: str | None,
    ) -> "Left":
        """The same on another cluster. `found`: where partitions are there; `ids`, `epochs`: of that one.

        A topic that is not found whole keeps an id of the old `cluster`, so that it is seen if it is read."""
        lost = {topic for topic, _ in self.offsets.keys() - found.keys()}
        old = {topic: self.ids.get(topic, cluster or "unknown") for topic in lost}
        there = {tp: at for tp, at in found.items() if tp in self.offsets and tp[0] not in lost}
        known = {topic: ids[topic] for topic, _ in there if topic in ids}
        return Left(
            {**self.offsets, **there}, {**known, **old}, {t: e for t, e in epochs.items() if t in there}
        )


NOTHING_LEFT = Left()


def to_json(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str] | None = None,
    cluster: str | None = None,
    epochs: Mapping[TopicPartition, int] | None = None,
    taken: Iterable[TakenFrom] = (),
    began: Mapping[TopicPartition, int] | None = None,
    shadow: ShadowCut | None = None,
    then: Iterable[str] = (),
    left: Left = NOTHING_LEFT,
) -> dict[str, dict[str, int]]:
    """Offsets as the nested dict that Spark stores; sorted, because Spark compares them as text."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = int(offset)
    known = {topic: ids[topic] for topic in nested if ids is not None and topic in ids}
    names = [f"{_ID}:{topic}:{number}" for topic, number in known.items()]
    names += [] if cluster is None else [f"{_CLUSTER}:{cluster}"]
    for kind, numbers in ((_EPOCH, epochs), (_BEGAN, began)):
        names += _names(kind, {tp: number for tp, number in (numbers or {}).items() if tp in offsets})
    names += [":".join([_TAKEN, *(quote(name, safe="") for name in one)]) for one in sorted(taken)]
    names += [*([] if shadow is None else shadow.names()), *left.names()]
    return {**nested, **{name: {} for name in [*names, *_then_names(then)]}}


def _names(kind: str, numbers: Mapping[TopicPartition, int]) -> list[str]:
    """Entries `<kind>:<topic>:<number>:<partitions>`."""
    together: dict[tuple[str, int], list[int]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        together.setdefault((topic, number), []).append(partition)
    return [f"{kind}:{topic}:{number}:{_runs(found)}" for (topic, number), found in together.items()]


def _runs(numbers: list[int]) -> str:
    """Ascending numbers as text: `0,2-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def epochs_from_json(nested: Mapping[str, Any]) -> Epochs:
    """The leader epochs of the offsets, for the partitions that have one."""
    return _numbers(_EPOCH, nested)


def began_from_json(nested: Mapping[str, Any]) -> Offsets | None:
    """Where the query began whose first batch ends at these offsets. None: they end a later batch, or Spark's
    Kafka source or an older eoslog has stored them."""
    return _numbers(_BEGAN, nested) or None


def _numbers(kind: str, nested: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The reverse of _names."""
    found: dict[TopicPartition, int] = {}
    for key in nested:
        if key.startswith(f"{kind}:"):
            _, topic, number, runs = key.split(":")
            for run in runs.split(","):
                first, _, last = run.partition("-")
                found |= {(topic, p): int(number) for p in range(int(first), int(last or first) + 1)}
    return found


def ids_from_json(nested: Mapping[str, Mapping[str, int]]) -> TopicIds:
    """The topics' ids in offsets from Spark; none if Spark's Kafka source stored them."""
    parts = [key.split(":") for key in nested if key.startswith(f"{_ID}:")]
    return {topic: number for _, topic, number in parts}


def cluster_from_json(nested: Mapping[str, Any]) -> str | None:
    """The id of the offsets' cluster; None if it is missing."""
    found = [key.partition(":")[2] for key in nested if key.startswith(f"{_CLUSTER}:")]
    return found[0] if found else None


def taken_from_json(nested: Mapping[str, Any]) -> frozenset[TakenFrom]:
    """The sinks and groups whose offsets a query has begun with; none if no sink had committed them."""
    parts = [key.split(":") for key in nested if key.startswith(f"{_TAKEN}:")]
    return frozenset(TakenFrom(unquote(sink), unquote(group)) for _, sink, group in parts)


def shadow_from_json(nested: Mapping[str, Any]) -> ShadowCut | None:
    """The decision of another query at which a batch ends; None if it shadows none."""
    heads = [key.split(":") for key in nested if key.startswith(f"{SHADOW}:")]
    if not heads:
        return None
    _, sink, group, sequence = heads[0]
    written, own = _numbers(_WRITTEN, nested), _numbers(_OWN, nested)
    over = f"{_OVER}:{sequence}" in nested
    batches = [key.split(":")[1:] for key in nested if key.startswith(f"{_BATCH}:")]
    decided = [(unquote(query), int(number), unquote(digest)) for query, number, digest in batches]
    cut = ShadowCut(unquote(sink), unquote(group), int(sequence), written, own, over)
    return cut._replace(decided=decided[0]) if decided else cut


def left_from_json(nested: Mapping[str, Any]) -> Left:
    """Where the query was in partitions that it reads no more."""
    parts = [key.split(":") for key in nested if key.partition(":")[0] in (_LEFT_ID, _GONE_ID)]
    ids = {topic: number for _, topic, number in parts}
    gone = frozenset(topic for kind, topic, _ in parts if kind == _GONE_ID)
    return Left(_numbers(_LEFT, nested), ids, _numbers(_LEFT_EPOCH, nested), gone)


def then_from_json(nested: Mapping[str, Any]) -> tuple[str, ...]:
    """The ends of the next batches, as Spark's JSON, which are decided already."""
    parts = (key.split(":") for key in nested if key.startswith(f"{_THEN}:"))
    return tuple(text for _, text in sorted((int(number), unquote(text)) for _, number, text in parts))


def leading_to(text: str, then: Iterable[str]) -> dict[str, dict[str, int]]:
    """An end of a batch, Spark's JSON, with the ends of the next batches."""
    nested: dict[str, dict[str, int]] = json.loads(text)
    return nested | {name: {} for name in _then_names(then)}


def _then_names(then: Iterable[str]) -> list[str]:
    return [f"{_THEN}:{number}:{quote(end, safe='')}" for number, end in enumerate(then)]


class SourcePosition(NamedTuple):
    """Parsed offsets from Spark: their topics' ids, their cluster, their leader epochs and, in the first
    batch of a query, whose offsets it took and where it began; in a shadow, where the other query stood; in a
    restored checkpoint, the ends of the next batches, as Spark's JSON; and where it was in what it left."""

    offsets: Offsets
    ids: TopicIds
    cluster: str | None
    epochs: Epochs
    taken: frozenset[TakenFrom] = frozenset()
    began: Offsets | None = None
    shadow: ShadowCut | None = None
    then: tuple[str, ...] = ()
    left: Left = NOTHING_LEFT

    def leaving(self, places: Collection[TopicPartition], gone: Collection[str] = ()) -> Left:
        """What it leaves if it reads these partitions no more, with what it has left before. `gone`: topics
        that do not exist."""
        new = Left(self.offsets, self.ids, self.epochs, frozenset(gone)).only(places)
        other = {topic for topic, number in new.ids.items() if self.left.ids.get(topic, number) != number}
        old = self.left.only({tp for tp in self.left.offsets if tp[0] not in other})
        return Left(
            {**old.offsets, **new.offsets},
            {**old.ids, **new.ids},
            {**old.epochs, **new.epochs},
            old.gone | new.gone,
        )

    def back_in(self, places: Iterable[TopicPartition], ids: Mapping[str, str]) -> "SourcePosition":
        """The position with what it has left of these partitions, which it reads now. `ids`: of their topics.

        A topic that is another one than the query reads, or than was gone, has nothing left."""
        left = self.left
        other = {t for t, n in left.ids.items() if t in left.gone and ids.get(t, n) != n}
        other |= {t for t, n in left.ids.items() if self.ids.get(t, n) != n}
        read = {tp for tp in places if tp in left.offsets}
        back = left.only({tp for tp in read if tp[0] not in other and tp not in self.offsets})
        return self._replace(
            offsets={**back.offsets, **self.offsets},
            ids={**back.ids, **self.ids},
            epochs={**back.epochs, **self.epochs},
            left=left.only({tp for tp in left.offsets if tp not in read}),
        )


def position_from_json(nested: Mapping[str, Mapping[str, int]]) -> SourcePosition:
    """The reverse of to_json."""
    return SourcePosition(
        from_json(nested),
        ids_from_json(nested),
        cluster_from_json(nested),
        epochs_from_json(nested),
        taken_from_json(nested),
        began_from_json(nested),
        shadow_from_json(nested),
        then_from_json(nested),
        left_from_json(nested),
    )


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets alone."""
    return {(topic, int(p)): int(offset) for topic, parts in nested.items() for p, offset in parts.items()}


_SOURCE_NAME = re.compile(r"^\s*\w+:(?=\s*\{)")
"""The text before a source's offsets in version 2 of Spark's offset log."""


def parse_bound(option: str, text: str) -> Bound | SourcePosition:
    """Parse startingOffsets or endingOffsets. Raises OptionError, which says what is wrong.

    startingOffsets may be an unchanged line of a checkpoint's offset log, including its source's name. The
    result then has that line's topic ids, cluster and leader epochs.
    """
    word = text.strip().lower()
    words = START_WORDS if option == "startingOffsets" else WORDS
    if word in words:
        return words[word]
    example = f'give {option} as {", ".join(words)}, or JSON like {{"topic":{{"0":23,"1":-2}}}}'
    if re.fullmatch(r"[\w-]*", word):
        near = difflib.get_close_matches(word, words, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise OptionError(f"option {option} cannot be {text!r}: {guess}{example}")
    kind = "offset", "(a number from 0, -2 for earliest, -1 for latest)"
    if option == "startingOffsets":
        text = _SOURCE_NAME.sub("", text)
    nested = _load(option, text, example)
    entries = _entries(nested) if option == "startingOffsets" else {}
    plain = {topic: parts for topic, parts in nested.items() if topic not in entries} if entries else nested
    found = _parse_nested(option, text, plain, example, kind, EARLIEST)
    return _as_stored(option, found, entries, example) if entries else found


def _entries(nested: Any) -> dict[str, Any]:
    """The entries of such a line other than offsets."""
    if not isinstance(nested, dict):
        return {}
    return {key: parts for key, parts in nested.items() if key.partition(":")[0] in _KINDS}


def _as_stored(option: str, found: Offsets, entries: dict[str, Any], example: str) -> SourcePosition:
    try:
        ids, epochs, left = ids_from_json(entries), epochs_from_json(entries), left_from_json(entries)
        said = SourcePosition(found, ids, cluster_from_json(entries), epochs, left=left)
    except ValueError as error:
        raise OptionError(f"{option}: {', '.join(entries)} cannot be read: {error}; {example}") from error
    return said._replace(epochs={tp: n for tp, n in said.epochs.items() if found.get(tp, EARLIEST) >= 0})


def parse_times(option: str, text: str) -> tuple[tuple[TopicPartition, int], ...]:
    """Parse startingOffsetsByTimestamp or endingOffsetsByTimestamp; sorted. Raises OptionError."""
    example = f'give {option} as JSON like {{"topic":{{"0":1700000000000}}}}'
    kind = "time", "(milliseconds since 1970)"
    nested = _load(option, text, example)
    return tuple(sorted(_parse_nested(option, text, nested, example, kind, 0).items()))


def _parse_nested(
    option: str, text: str, nested: Any, example: str, kind: tuple[str, str], least: int
) -> Offsets:
    """Parse numbers by topic and partition. `kind`: what a number is called, and which are valid."""
    if not isinstance(nested, dict) or not nested:
        raise OptionError(f"{option}: {text!r} names no topic; {example}")
    found: Offsets = {}
    for topic, parts in nested.items():
        if not isinstance(parts, dict) or not parts:
            raise OptionError(
                f"{option}: topic {topic!r} has {parts!r} where its partitions belong; {example}"
            )
        for partition, number in parts.items():
            if not partition.isdecimal():
                raise OptionError(f"{option}: {partition!r} is no partition of topic {topic!r}; {example}")
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise OptionError(
                    f"{option}: {number!r} is no {kind[0]} for partition {partition} of topic {topic!r} "
                    f"{kind[1]}; {example}"
                )
            found[topic, int(partition)] = number
    return found


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse `assign`, JSON of partition lists by topic, into sorted topic-partitions."""
    example = f'give {option} as JSON like {{"topic":[0,1]}}'
    nested = _load(option, text, example)
    if not isinstance(nested, dict) or not nested:
        raise OptionError(f"{option}: {text!r} names no topic; {example}")
    found = {tp for topic, parts in nested.items() for tp in _parse_list(option, topic, parts, example)}
    return tuple(sorted(found))


def _parse_list(option: str, topic: str, parts: Any, example: str) -> list[TopicPartition]:
    wanted = isinstance(parts, list) and bool(parts)
    if not wanted or not all(isinstance(p, int) and not isinstance(p, bool) and p >= 0 for p in parts):
        raise OptionError(
            f"{option}: topic {topic!r} has {parts!r} where a list of partitions belongs; {example}"
        )
    return [(topic, p) for p in parts]


def _load(option: str, text: str, example: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_no_doubles)
    except ValueError as error:
        raise OptionError(f"{option}: {text!r} cannot be read: {error}; {example}") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse two entries for one topic or partition: one of them would be lost silently."""
    keys = [key for key, _ in pairs]
    doubled = {key for key in keys if keys.count(key) > 1}
    if doubled:
        raise ValueError(f"{', '.join(sorted(doubled))} given twice")
    return dict(pairs)
