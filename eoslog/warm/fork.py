"""A fork of the warm process becomes the process that Spark wanted."""

from __future__ import annotations

import gc
import os
import runpy
import signal
import sys

from eoslog.warm.serve import Guest


def become(guest: Guest, jvm: int) -> None:
    """Do what Python would do if Spark had started it so. Returns when that has run."""
    from eoslog.connector.spark import processes

    request = guest.request
    assert request is not None
    with open("/proc/self/comm", "w") as name:
        name.write(request.name())
    os.environ.clear()
    os.environ.update(request.environment)
    os.umask(request.umask)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request.ignores_interrupts else signal.default_int_handler)
    for standard, stream in enumerate(guest.streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.register_at_fork(after_in_child=guest.connection.close)  # a daemon's workers do not keep it
    processes.driver_is(jvm)
    gc.enable()
    gc.freeze()
    sys.modules.pop(request.module, None)  # it runs again, as __main__
    sys.argv = [request.module, *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
