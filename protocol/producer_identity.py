"""How brokers identify a producer."""

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch: they give the right to write, and to act on a transactional id (from
    InitProducerId).
    """

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}.{self.epoch}"


NOBODY = ProducerIdentity(-1, -1)
"""The identity if there is no producer."""

NEVER_MS = 2**31 - 1
"""The time-out of a transaction under two-phase commit (KIP-939): it is sealed, and ends only when its sink,
or a user by hand, ends it."""
