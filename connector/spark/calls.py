"""What eoslog does first whenever Spark calls it."""

import signal
import threading

from eoslog.connector.spark.gc_freeze import freeze_imports, is_sparks
from eoslog.connector.spark.sockets import acknowledge


def called() -> None:
    """Do what each call from Spark needs. Does nothing in processes that are not Spark's own."""
    freeze_imports()
    acknowledge()


def outlive_interrupts() -> None:
    """Leave Ctrl-C to the driver's program, in the process of a streaming source.

    A terminal sends Ctrl-C to the whole process group. Spark's JVM ignores it, and the workers that its
    daemons fork have their own groups. Only the source's process would die, and the query with it, while the
    program is about to stop the query. The process ends when Spark closes its connection. Does nothing
    outside of Spark's processes.
    """
    if is_sparks() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
