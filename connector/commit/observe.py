"""Looks at a sink from outside: another driver owns it and goes on meanwhile, and nothing is changed."""

from eoslog.connector.commit.commands import Refused, Rules, Unknown, look_up
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.protocol.errors import ErrorCode


def observed_decision(sink: Sink, *, stable: bool = True) -> Rules[Decision | None]:
    """The sink's last decision. None: it has none, or the next one is just being made, and its rows may be
    readable before it is. `stable` False: the last one that was made, also then. Raises CommitFault."""
    found = yield from observed(sink, stable=stable)
    return None if isinstance(found, Refused) else found


def observed(sink: Sink, *, stable: bool = True) -> Rules[Decision | Refused | None]:
    """The sink's last decision. None: it has none. Refused: the next one is just being made. Raises
    CommitFault."""
    answer = yield from look_up(sink.group, stable=stable)
    if isinstance(answer, Refused) and answer.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return answer
    if isinstance(answer, (Refused, Unknown)):
        raise CommitFault(
            f"the last decision of sink {sink.id} cannot be read: {answer}. Fix that, then start again"
        )
    return decode(sink, answer.chunks)
