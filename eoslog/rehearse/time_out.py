"""Whether the brokers end a transaction whose time is over. It is begun first and looked at last."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.connector.commit.transactional_ids import Participant
from eoslog.rehearse.rows import DoesNotHold
from eoslog.rehearse.work import Work, until

TIMEOUT_MS = 1_000
SWEEP_S = 20.0
"""How much later a broker may notice: Kafka looks every 10 s
(transaction.abort.timed.out.transaction.cleanup.interval.ms)."""


@dataclass
class TimeOut:
    """A transaction that nobody ends."""

    work: Work
    word: str
    who: Participant | None = None

    def begin(self) -> str:
        """Open it, with a row. Raises what the client raises."""
        self.who = self.work.open(self.word, TIMEOUT_MS)
        self.work.write(self.who, (self.work.names.name(self.word), 0), ["of a producer that died"])
        return "open"

    def wait(self) -> str:
        """Wait until the brokers have aborted it. Raises DoesNotHold."""
        assert self.who is not None, "begun before"
        name, topic = self.who.name, self.work.names.name(self.word)
        seconds = self.work.patience_s + SWEEP_S
        found = until(
            lambda: self.work.describe(name), lambda s: s is not None and s.state == "CompleteAbort", seconds
        )
        if found is None or found.state != "CompleteAbort":
            raise DoesNotHold(
                f"a transaction with a time-out of {TIMEOUT_MS} ms is {found.state if found else 'unknown'} "
                f"{seconds:g} s later: what a dead producer leaves would hold readers back for ever",
                "see transaction.abort.timed.out.transaction.cleanup.interval.ms of the brokers",
            )
        self.work.check_readable(topic)
        self.work.check_rows(topic, [], "a transaction has timed out")
        return "a transaction that nobody ended was aborted by the brokers, and holds nobody back"
