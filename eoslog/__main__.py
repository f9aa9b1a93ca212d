"""`python -m eoslog`: the command line."""

from eoslog.cli import main

if __name__ == "__main__":
    main()
