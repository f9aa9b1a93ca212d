"""What every call of Spark's into our code begins with."""

from eoslog.connector.longlived import settle
from eoslog.connector.sparks_sockets import acknowledge


def called() -> None:
    """Does nothing in processes that are not Spark's own."""
    settle()
    acknowledge()
