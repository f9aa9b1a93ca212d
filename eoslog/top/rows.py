"""What is shown: a row of each kind, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.protocol.names_by_sink import SinkRemains


@dataclass(frozen=True)
class Row:
    """The sum of partitions: of a topic, of a broker's leaders, or of all. Rates are per second, None if
    unknown.
    """

    name: str
    partitions: int
    records: int
    """Offsets between start and end; markers and compacted records count too."""
    size: int | None
    records_rate: float | None
    bytes_rate: float | None
    held: int
    """Offsets that open transactions hide from read_committed readers."""


@dataclass(frozen=True)
class Lag:
    """A group. `behind` counts offsets from the committed ones to the ends, None if unknown.

    `sink`: the sink that made the group for its decisions, which have no lag.
    """

    name: str
    state: str
    kind: str
    partitions: int
    behind: int | None
    sink: str | None = None


@dataclass(frozen=True)
class Age:
    """An open transaction. `seconds` since it began, None if unknown. `sink`: the one it belongs to."""

    transactional_id: str
    state: str
    seconds: float | None
    partitions: int
    sink: str | None = None


@dataclass(frozen=True)
class Figures:
    """All that is shown of a snapshot."""

    cluster_id: str | None
    now_ms: int
    total: Row
    brokers: list[Row]
    topics: list[Row]
    groups: list[Lag]
    transactions: list[Age]
    without_leader: int
    problems: list[str]
    sinks: list[SinkRemains]
    """What eoslog's sinks made, one line each; their ids and groups are in the other lists too."""
