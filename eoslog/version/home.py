"""Where this eoslog was imported from."""

import sys
from pathlib import Path


def home_archive() -> Path | None:
    """The jar from which this eoslog was imported; None if it was a folder."""
    archive = getattr(getattr(sys.modules["eoslog"], "__loader__", None), "archive", None)
    return None if archive is None else Path(archive)
