"""What our code does first whenever Spark calls it."""

import signal
import threading

from eoslog.connector.spark.longlived import freeze_imports, is_sparks
from eoslog.connector.spark.sockets import acknowledge


def called() -> None:
    """Does nothing in processes that are not Spark's own."""
    freeze_imports()
    acknowledge()


def outlive_interrupts() -> None:
    """Leave Ctrl-C to the driver's program, in the process of a streaming source.

    A terminal sends it to the whole group. Spark's JVM ignores it, and the workers that its daemons fork have
    groups of their own; only the source's process would die of it, and the query with it, while the program
    is about to stop it. It ends when Spark closes its connection. Does nothing outside of Spark's processes.
    """
    if is_sparks() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
