"""`eoslog` as a page types it, with the broker of DOCS_BROKER where the command would ask 127.0.0.1:9092."""

import os

from eoslog.cli import main
from eoslog.commands import session

if __name__ == "__main__":
    session.DEFAULT_ADDRESS = os.environ["DOCS_BROKER"] or session.DEFAULT_ADDRESS
    main(prog_name="eoslog")
