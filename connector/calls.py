"""What every call of Spark's into our code begins with."""

from eoslog.connector.logs import look_as_sparks
from eoslog.connector.longlived import settle
from eoslog.connector.sparks_sockets import acknowledge


def called() -> None:
    """Does nothing in processes that are not Spark's own."""
    settle()
    acknowledge()
    look_as_sparks()
