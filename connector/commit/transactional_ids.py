"""Names of transactions: the sink's own, and one for each transaction that a task opens.

The sink's id is quoted, so it has no "/", and a participant is
`<quoted id>/<incarnation>/<parity>/<worker>.<slot>`. So no other sink's name can look like one, even if one
id is a prefix of the other ("a" and "a-b") or contains the delimiter ("a" and "a/1.0/0/w.0").
"""

from typing import NamedTuple

from eoslog.protocol.names_by_sink import REST
from eoslog.protocol.producer_identity import ProducerIdentity


class Participant(NamedTuple):
    """One transaction of a task: its transactional id and the identity it runs under."""

    name: str
    identity: ProducerIdentity


class ParticipantSlot(NamedTuple):
    """A participant's place in its sink. Unlike the identity, it is known before the transaction is opened.

    `incarnation`: the identity under which the run acquired the sink. `parity`: that of the batch id.
    `worker` names one Python process, and `number` counts its transactions in one batch. A process runs one
    task at a time, so no two task attempts, not even a zombie and its replacement, ever share a name.
    (Spark's attempt numbers do not ensure that: they start again at 0 when a stage is retried, and Python
    tasks do not know the stage's attempt.)
    """

    incarnation: ProducerIdentity
    parity: int
    worker: str
    number: int


class Sink(NamedTuple):
    """A sink by its id: option transactional.id, or the id of the streaming query."""

    id: str

    @property
    def coordinator(self) -> str:
        """Transactional id of the driver's own transaction, which holds the decision."""
        return self.id.replace("%", "%25").replace("/", "%2F")

    @property
    def group(self) -> str:
        """Consumer group that holds the decision."""
        return self.coordinator

    @property
    def offsets_group(self) -> str:
        """Consumer group that gets the source offsets if kafka.group.id names no other one."""
        return f"{self.coordinator}/offsets"

    @property
    def attempts_group(self) -> str:
        """Consumer group that holds the last batch attempted (at_most_once)."""
        return f"{self.coordinator}/attempts"

    @property
    def finished_group(self) -> str:
        """Consumer group that notes which batch write with a token is finished."""
        return f"{self.coordinator}/finished"

    @property
    def writes_group(self) -> str:
        """Consumer group that notes what a query's batch writes of foreachBatch have written."""
        return f"{self.coordinator}/writes"

    @property
    def probe(self) -> str:
        """Transactional id that never writes: it is used to find out what the cluster offers."""
        return f"{self.coordinator}/probe"

    @property
    def prefix(self) -> str:
        """What every participant's name starts with."""
        return f"{self.coordinator}/"

    def participant(self, slot: ParticipantSlot) -> str:
        """Transactional id for a slot."""
        return f"{self.prefix}{slot.incarnation}/{slot.parity}/{slot.worker}.{slot.number}"

    def slot_of(self, name: str) -> ParticipantSlot | None:
        """The slot of a transactional id. None: it is not one of this sink's participants."""
        if not name.startswith(self.prefix):
            return None
        match = REST.fullmatch(name, len(self.prefix))
        if match is None:
            return None
        producer_id, epoch, parity, worker, number = match.groups()
        return ParticipantSlot(
            ProducerIdentity(int(producer_id), int(epoch)), int(parity), worker, int(number)
        )


def parity(batch_id: int) -> int:
    """Which half of the names a batch uses.

    While a batch's decision is the last one, only the next batch can be prepared, and it uses the other half.
    So the outcome of a decided participant is never overwritten before it is read.
    """
    return batch_id % 2
