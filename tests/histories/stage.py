"""Puts the imitation in the places of Spark and the network, for as long as a history takes."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from eoslog.checkpoint import move_command, standing
from eoslog.client.wire import cluster as client_cluster
from eoslog.connector.options import sink_options as of_sinks
from eoslog.connector.options import source_options as of_sources
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.options.source_options import SourceOptions, source_options
from eoslog.connector.run import abandoned_run
from eoslog.connector.sink import batch_writer, stream_writer
from tests.histories.sim_cluster import SimCluster
from tests.histories.sim_connection import Network, Process, SimConnection
from tests.histories.spark import TaskContext


@contextmanager
def stage(clusters: dict[str, SimCluster], warned: Counter[str]) -> Iterator[None]:
    """Within it clients find these clusters by host name; warnings are counted."""
    Network.clusters, Network.process = clusters, Process()
    kept = [(place, name, getattr(place, name)) for place, name, _ in _STANDS_IN]
    for place, name, ours in _STANDS_IN:
        setattr(place, name, ours)
    handler, log = _Warnings(warned), logging.getLogger("eoslog")
    before = log.propagate, log.level
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before[0]
        log.setLevel(before[1])
        for place, name, theirs in kept:
            setattr(place, name, theirs)


class _Warnings(logging.Handler):
    def __init__(self, counted: Counter[str]) -> None:
        super().__init__(logging.WARNING)
        self._counted = counted

    def emit(self, record: logging.LogRecord) -> None:
        self._counted[_NAMED.sub(r"\1 ...", str(record.msg))[:80]] += 1


_NAMED = re.compile(r"\b(sink|group|batch|query|of group) [\w-]+")
"""Names in a warning: what is counted is which of them it is."""


@cache
def _sinks(raw: tuple[tuple[str, str], ...], stream: bool) -> SinkOptions:
    return sink_options(dict(raw), stream=stream)


def _sink_options(raw: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """Reading options takes as long as all the rest of a begin, and histories repeat them."""
    return _sinks(tuple(raw.items()), stream)


@cache
def _sources(raw: tuple[tuple[str, str], ...], stream: bool) -> SourceOptions:
    return source_options(dict(raw), stream=stream)


def _source_options(raw: Mapping[str, str], *, stream: bool, quiet: bool = False) -> SourceOptions:
    return _sources(tuple(raw.items()), stream)


def _nobody(query_id: str) -> list[int]:
    """All drivers are this process: whether one lives the world knows."""
    return []


def _detached(work: Callable[[], None]) -> None:
    """What comes after a driver's end is not relied upon."""


_STANDS_IN: tuple[tuple[ModuleType, str, object], ...] = (
    (client_cluster, "BrokerConnection", SimConnection),
    (stream_writer, "TaskContext", TaskContext),
    (batch_writer, "TaskContext", TaskContext),
    (of_sinks, "sink_options", _sink_options),
    (of_sources, "source_options", _source_options),
    (abandoned_run, "detached", _detached),
    (standing, "drivers_of", _nobody),
    (move_command, "WINDOW", 3),
)
"""Module, name, and what stands in for it."""
