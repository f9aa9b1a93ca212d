"""`python -m eoslog.warm LISTENING JVM`: begun by the first process that asks (ask.py)."""

import sys

from eoslog.warm.serve import main

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
