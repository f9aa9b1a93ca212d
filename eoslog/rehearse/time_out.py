"""Whether the brokers end a transaction whose time is over, and none before. Begun first, looked at last."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from eoslog.client.admin.transaction_states import TransactionDescription
from eoslog.connector.commit.commands import Description
from eoslog.connector.commit.finish import is_aborted
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.rehearse.probes import ABORTED, OPEN, row, seal, stored_offset
from eoslog.rehearse.rows import DoesNotHold, NotFoundOut, Row, Verdict
from eoslog.rehearse.work import Work, refused, until

TIMEOUT_MS = 3_000
"""Of a transaction that is to time out: no machine halts that long while it is written."""
SWEEP_S = 20.0
"""How much later a broker may notice: Kafka looks every 10 s
(transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
EXPIRES, LASTS = "expires", "lasts"
ROW = "of a producer that died"
PROOF = "proof of a time-out"


@dataclass
class TimeOut:
    """Transactions that nobody ends: `who` is soon over its time, `longer` is not, and `sealed` never is."""

    work: Work
    who: Participant | None = None
    longer: Participant | None = None
    sealed: tuple[Participant, ProducerIdentity] | None = None
    """As it was written, and its holder. None: two-phase commit is not offered."""
    begun_s: float = 0.0
    lasted: bool = False
    """Whether `longer` was committed."""

    @property
    def timeout_ms(self) -> int:
        """Of those that are soon over their time."""
        return min(TIMEOUT_MS, self.work.timeout_ms)

    @property
    def _group(self) -> str:
        return self.work.names.name(f"{EXPIRES}-group")

    def begin(self) -> str:
        """Open them, with a row each. Raises DoesNotHold, and what the client raises."""
        lasts, opened = self.work.names.name(LASTS), time.monotonic()
        self.longer, self.begun_s = self.work.open(f"{LASTS}-longer"), opened
        self.work.write(self.longer, (lasts, 0), [ROW])
        kept = self.work.open(f"{LASTS}-sealed", self.timeout_ms)
        self.work.write(kept, (lasts, 1), [ROW])
        holder = seal(self.work, kept)
        if isinstance(holder, ProducerIdentity):
            self.sealed = kept, holder
        opened = time.monotonic()
        self.who = self.work.open(EXPIRES, self.timeout_ms)
        self.work.write(self.who, (self.work.names.name(EXPIRES), 0), [ROW])
        self.work.stage(self.who, self._group, {self.work.place: (3, "of a dead one")})
        state = self.work.describe(self.who.name)
        passed_ms = (time.monotonic() - opened) * 1000
        if passed_ms < self.timeout_ms and (state is None or state.state not in OPEN):
            raise DoesNotHold(
                f"a transaction with a time-out of {self.timeout_ms} ms is {_named(state)} "
                f"{passed_ms:.0f} ms after its first row"
            )
        return "open"

    def rows(self) -> Iterator[Row]:
        """Wait until the brokers have aborted the first; only then can the others be said to last longer."""
        over = row("time-outs", self._wait)
        yield over
        if over.verdict is not Verdict.HOLDS:
            return
        yield self._proof()
        yield row("transactions that have time", self._lasts)
        if self.sealed is not None:
            yield row("sealed transactions", self._stays_sealed)

    def _wait(self) -> str:
        assert self.who is not None, "begun before"
        name, topic = self.who.name, self.work.names.name(EXPIRES)
        seconds = self.work.patience_s + SWEEP_S
        found = until(
            lambda: self.work.describe(name), lambda s: s is not None and s.state in ABORTED, seconds
        )
        if found is None or found.state not in ABORTED:
            raise DoesNotHold(
                f"a transaction with a time-out of {self.timeout_ms} ms is {_named(found)} "
                f"{seconds:g} s later: what a dead producer leaves would hold readers back for ever",
                "see transaction.abort.timed.out.transaction.cleanup.interval.ms of the brokers",
            )
        what = "a transaction has timed out"
        self.work.check_readable(topic, what)
        self.work.check_rows(topic, [], what)
        written = self.work.rows(topic, committed=False)[ROW]
        if written != 1:
            raise DoesNotHold(
                f"{what}: its acknowledged row is {written} times in the log: nothing was aborted"
            )
        offset = stored_offset(self.work, self._group, what)
        if offset is not None:
            raise DoesNotHold(f"{what}: its offset {offset[0]} counts as committed")
        who = self.who
        code = refused(lambda: self.work.end(who, commit=True), "a transaction that timed out was committed")
        self.work.check_rows(topic, [], "a transaction was committed after its time-out")
        return f"the brokers aborted a transaction that nobody ended, rows and offsets; late commits: {code}"

    def _proof(self) -> Row:
        """on.lost.transaction=replay writes again only what was certainly aborted by a time-out."""
        assert self.who is not None, "begun before"
        state = self.work.describe(self.who.name)
        if state is None:
            return Row(PROOF, Verdict.UNKNOWN, f"the coordinator does not know {self.who.name}")
        raised = f"it raised the epoch from {self.who.identity.epoch} to {state.identity.epoch}"
        seen = Description(state.state, state.identity, state.timeout_ms, state.start_ms)
        if is_aborted(seen, self.who):
            return Row(PROOF, Verdict.HOLDS, f"{raised}: it is certain which transaction was aborted")
        what = f"{raised} and left {state.state}, as another history may: a batch that is lost by it"
        return Row(PROOF, Verdict.NOTE, f"{what} stops the query also with on.lost.transaction=replay")

    def _lasts(self) -> str:
        """A transaction that has time left is still open, and can be committed."""
        assert self.longer is not None, "begun before"
        state, seconds = self.work.describe(self.longer.name), time.monotonic() - self.begun_s
        if seconds * 1000 >= self.work.timeout_ms:
            raise NotFoundOut(
                f"the brokers grant {self.work.timeout_ms} ms, and {seconds:.0f} s have passed: see "
                "transaction.max.timeout.ms"
            )
        if state is None or state.state not in OPEN:
            raise DoesNotHold(
                f"a transaction with a time-out of {self.work.timeout_ms} ms is {_named(state)} after "
                f"{seconds:.0f} s"
            )
        self.work.end(self.longer, commit=True)
        self.lasted = True
        return (
            f"open and committed after {seconds:.0f} s, with a time-out of {self.work.timeout_ms // 1000} s"
        )

    def _stays_sealed(self) -> str:
        """A sealed transaction is open although its time was over as long ago as that of the first."""
        assert self.sealed is not None, "asked before"
        who, holder = self.sealed
        state = self.work.describe(who.name)
        if state is None or state.state not in OPEN:
            raise DoesNotHold(f"a sealed transaction is {_named(state)} when others have timed out")
        self.work.end(Participant(who.name, holder), commit=True)
        topic = self.work.names.name(LASTS)
        self.work.check_readable(topic, "transactions were committed late")
        self.work.check_rows(topic, [ROW] * (1 + self.lasted), "transactions were committed late")
        return f"open and committed when another of {self.timeout_ms // 1000} s had timed out"


def _named(state: TransactionDescription | None) -> str:
    return "unknown to its coordinator" if state is None else state.state
