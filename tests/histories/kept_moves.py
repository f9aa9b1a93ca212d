"""Kept histories of queries that go on on another cluster."""

from tests.histories.shapes import Act

_MORE: list[Act] = [("produce", "in", 2), ("run", "A", 1)]
_RAN: list[Act] = [("query", "A", {"id": "x", "kafka.group.id": "g"}), ("produce", "in", 4), ("run", "A", 1)]
_MOVED: list[Act] = [*_RAN, ("backup", "A"), ("mirror", 0, 3), ("move", "A")]
_FORGETS: Act = ("forget", True, True)
_BOTH: Act = ("query", "A", {"id": "x", "kafka.group.id": "g", "in": "in,in2"})

MOVES: dict[str, list[Act]] = {
    "a query goes on in a mirror": [*_MOVED, *_MORE],
    "the copy of before the move is moved again": [
        *_MOVED, *_MORE, *_MORE, ("restore", "A"), ("move", "A"), ("run", "A", 1),
    ],
    "the copy of before the move is moved again, and the new cluster has forgotten": [
        *_MOVED, *_MORE, *_MORE, _FORGETS, ("restore", "A"), ("move", "A"), ("run", "A", 1),
    ],
    "the copy of before the move is started where the query was moved to, and that has forgotten": [
        *_MOVED, *_MORE, *_MORE, _FORGETS, ("restore", "A"), ("run", "A", 1),
    ],
    "the copy from right after the move, and the new cluster has forgotten": [
        *_MOVED, ("backup", "A"), *_MORE, *_MORE, _FORGETS, ("restore", "A"), ("run", "A", 1),
    ],
    "a topic that was left out is named again on the new cluster": [
        _BOTH, ("produce", "in", 4), ("produce", "in2", 4), ("run", "A", 1), ("out", "A", "in2"),
        ("mirror", 0, 5), ("move", "A"), *_MORE,
    ],
    "the mirror lacks the last records, and others write there": [
        *_RAN, *[("produce", "in", 2)] * 5, ("mirror", 1, 0), ("elsewhere",), ("produce", "in", 2),
        ("move", "A"), ("run", "A", 1),
    ],
    "a mirror copies on behind others' records": [
        *_RAN, ("mirror", 0, 0), ("elsewhere",), ("produce", "in", 2), ("run", "A", 1),
        ("produce", "in", 8), ("run", "A", 1), ("mirror", 0, 0, True), ("move", "A"), ("run", "A", 1),
    ],
    "moved there and back": [*_MOVED, *_MORE, ("mirror", 0, 0), ("move", "A"), *_MORE],
    "the wrong one of two copies is moved back": [
        *_MOVED, ("unmoved", "A"), *_MORE, *_MORE, ("mirror", 0, 0), ("wrong", "A"), *_MORE,
    ],
}  # fmt: skip
