"""Who a producer is to brokers."""

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch: who may write, and act on a transactional id (InitProducerId's answer)."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}.{self.epoch}"
