"""`python -m eoslog.warm LISTENING JVM`: started by the first process that asks (ask.py)."""

import os
import signal
import socket
import sys

from eoslog.warm.ask import wanted
from eoslog.warm.request import begun_with
from eoslog.warm.serve import WarmServer, become, reseed_numpy
from eoslog.warm.sparks_zip import prefer_installed


def main(listening: int, jvm: int) -> None:
    """Serve on a socket until the JVM with this process id has ended. In a fork, become the requested
    process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the JVM, which ends its processes
    prefer_installed(sys.path)
    os.register_at_fork(after_in_child=reseed_numpy)
    with socket.socket(fileno=listening) as connections:
        connections.listen(socket.SOMAXCONN)  # from now on peers see this process as the socket's owner
        like = wanted("", [])
        like = like._replace(environment=begun_with(like.environment))
        guest = WarmServer(connections, os.pidfd_open(jvm), like).serve()
    if guest is not None:
        become(guest, jvm)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
