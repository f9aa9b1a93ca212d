"""The winner of a Spark partition: the transaction whose rows count."""

from typing import NamedTuple

from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.producer_identity import ProducerIdentity


class Winner(NamedTuple):
    """The transaction that holds the rows of one Spark partition.

    The participant's identity is the one that wrote the rows, and the one that topic partitions know. Only
    its `holder` can end a sealed transaction (seal.py). None: it was not sealed.
    """

    partition: int
    participant: Participant
    holder: ProducerIdentity | None = None

    @property
    def ender(self) -> Participant:
        """The participant under the identity that can end it."""
        return Participant(self.participant.name, self.holder or self.participant.identity)
