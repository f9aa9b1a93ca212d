"""The user's choice of what to see, and the orders of the tables. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eoslog.protocol.names_by_sink import SinkRemains
from eoslog.top.rows import Age, Lag, Row

TOPIC_SORTS: dict[str, Callable[[Row], float]] = {
    "records": lambda row: -(row.records_rate or 0),
    "bytes": lambda row: -(row.bytes_rate or 0),
    "size": lambda row: -(row.size or 0),
    "held": lambda row: -row.held,
    "name": lambda row: 0,
}
GROUP_SORTS: dict[str, Callable[[Lag], tuple[str, int]]] = {
    "lag": lambda lag: ("", -(lag.behind or 0)),
    "name": lambda lag: ("", 0),
    "state": lambda lag: (lag.state, -(lag.behind or 0)),
}
AGE_SORTS: dict[str, Callable[[Age], tuple[str, float]]] = {
    "age": lambda age: ("", -(age.seconds or 0)),
    "name": lambda age: ("", 0),
    "state": lambda age: (age.state, -(age.seconds or 0)),
}
SINK_SORTS: dict[str, Callable[[SinkRemains], float]] = {
    "age": lambda sink: -(sink.oldest or 0),
    "name": lambda sink: 0,
    "state": lambda sink: -sink.open,
}
COLUMNS = tuple(dict.fromkeys((*TOPIC_SORTS, *GROUP_SORTS, *AGE_SORTS)))
"""The columns to sort by; equal rows are in order of name."""


@dataclass(frozen=True)
class DisplayOptions:
    """What to show: the order of the tables, internal topics, a filter of names, everything unfolded."""

    topics: str = "records"
    groups: str = "lag"
    transactions: str = "age"
    internal: bool = False
    text: str = ""
    unfolded: bool = False

    def sorted_by(self, column: str) -> DisplayOptions:
        """The same, with every table that has the column sorted by it."""
        return replace(
            self,
            topics=column if column in TOPIC_SORTS else self.topics,
            groups=column if column in GROUP_SORTS else self.groups,
            transactions=column if column in AGE_SORTS else self.transactions,
        )

    def has(self, name: str) -> bool:
        """Whether a name passes the filter, in upper or lower case."""
        return self.text.casefold() in name.casefold()


DEFAULT = DisplayOptions()
