"""What `eoslog checkpoint` refuses."""

from eoslog.connector.errors import EoslogError


class NotEditable(EoslogError):
    """An edit or a look is refused; the message says why, and what to do."""
