"""What is shown: a row of each kind, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.protocol.sink_names import Made


@dataclass(frozen=True)
class Row:
    """Partitions summed up: of a topic, of a broker's leaders, or of all. Rates a second, None: not known."""

    name: str
    partitions: int
    records: int
    """Offsets between start and end: markers and what compaction took out are counted too."""
    size: int | None
    records_rate: float | None
    bytes_rate: float | None
    held: int
    """Offsets that open transactions hide from read_committed readers."""


@dataclass(frozen=True)
class Lag:
    """A group; `behind` counts offsets up to the end of what it has committed, None where that is unknown.

    `sink`: the one that made the group for its decisions, which are behind nothing.
    """

    name: str
    state: str
    kind: str
    partitions: int
    behind: int | None
    sink: str | None = None


@dataclass(frozen=True)
class Age:
    """An open transaction; `seconds` since it began, None where that is not told; `sink`: whose it is."""

    transactional_id: str
    state: str
    seconds: float | None
    partitions: int
    sink: str | None = None


@dataclass(frozen=True)
class Figures:
    """All that is shown of a look."""

    cluster_id: str | None
    now_ms: int
    total: Row
    brokers: list[Row]
    topics: list[Row]
    groups: list[Lag]
    transactions: list[Age]
    without_leader: int
    problems: list[str]
    sinks: list[Made]
    """What eoslog's sinks made, a line each; the ids and groups of it are in the other lists too."""
