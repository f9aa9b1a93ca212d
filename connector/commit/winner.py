"""The winner of a Spark partition: the transaction whose rows count."""

from typing import NamedTuple

from eoslog.connector.commit.names import Participant
from eoslog.protocol.producer_identity import ProducerIdentity


class Winner(NamedTuple):
    """The transaction that holds the rows of one Spark partition.

    The participant's identity is the one that wrote the rows, and the one that partitions know. A
    sealed transaction (seal.py) can be ended by its `holder` only; None: it was not sealed.
    """

    partition: int
    participant: Participant
    holder: ProducerIdentity | None = None

    @property
    def ender(self) -> Participant:
        """Who ends it."""
        return Participant(self.participant.name, self.holder or self.participant.identity)
