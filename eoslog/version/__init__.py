"""The version. Every package may import this, and no more of the package above it."""

import sys
from pathlib import Path

__version__ = "0.1.0"


def home_archive() -> Path | None:
    """The jar from which this eoslog was imported; None if it was a folder."""
    archive = getattr(getattr(sys.modules["eoslog"], "__loader__", None), "archive", None)
    return None if archive is None else Path(archive)
