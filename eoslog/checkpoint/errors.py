"""What `eoslog checkpoint` refuses."""

from eoslog.errors import EoslogError


class NotEditable(EoslogError):
    """An edit or a look is refused; the message says why, and what to do."""


class NotRestorable(EoslogError):
    """A checkpoint cannot be restored from the topic of state.topic; the message says why."""
