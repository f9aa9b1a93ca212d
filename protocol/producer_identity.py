"""Who a producer is to brokers."""

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch: who may write, and act on a transactional id (InitProducerId's answer)."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}.{self.epoch}"


NOBODY = ProducerIdentity(-1, -1)
"""What stands where there is no producer."""
