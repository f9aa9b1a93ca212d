"""What every history has: topics, and how an act is told."""

from typing import Any

SOURCES, SINKS = {"in": 2, "in2": 1}, {"out": 2, "out2": 1}
"""Topics with their partitions."""
FILES = "files"
"""A folder that Spark's file source reads: in it a record is a file. The imitation keeps it as a topic."""
SAVED = "saved"
"""The compacted topic to which queries with `state` save their checkpoint (state.topic)."""
Act = tuple[Any, ...]
"""Its name, as in World.do_<name>, and what it needs."""
