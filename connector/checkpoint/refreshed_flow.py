"""A flow of a declarative pipeline after a full refresh.

Spark keeps a flow's checkpoints side by side, `<storage>/_checkpoints/<target>/<flow>/<number>`, and a full
refresh begins the next number. It has emptied the flow's tables before, but it cannot empty a topic. A sink
without a name takes its query's, which is new, so nothing but the folder tells that rows would come again.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.start_facts import WORD_NEW
from eoslog.connector.commit.faults import StartsElsewhere

_OF_A_FLOW = re.compile(r"(.*/_checkpoints/(?:[^/]+/)+)(\d+)/*")


def former_checkpoints(location: str) -> list[str]:
    """Where the flow's checkpoints before this one are, the newest first. Empty if it is no flow's."""
    found = _OF_A_FLOW.fullmatch(location)
    return [] if found is None else [f"{found[1]}{number}" for number in reversed(range(int(found[2])))]


def check_not_refreshed(checkpoint: Checkpoint, accepted: Collection[str]) -> str | None:
    """Check that a new checkpoint does not follow a used one of the same flow. Returns a warning, if that is
    accepted. Raises StartsElsewhere, CheckpointUnreadable."""
    formers = former_checkpoints(checkpoint.location)
    former = next((at for at in formers if Checkpoint.at(at).batches("offsets")), None)
    if former is None:
        return None
    what = (
        f"checkpoint {checkpoint.location}: it is new, and follows {former}, as a full refresh of a pipeline "
        "makes it: what that one has written will be written again"
    )
    if (word := f"{WORD_NEW}:{len(formers)}") in accepted:
        return f"{what}. start.accepted={word}: continuing. See connect.md#a-full-refresh"
    raise StartsElsewhere(
        f"{what}. Nothing was written. To go on where the pipeline was, remove the new checkpoint. To write "
        f"all rows again, give the sink another topic and a transactional.id, or set "
        f"{to_accept(word, accepted)}. See connect.md#a-full-refresh"
    )
