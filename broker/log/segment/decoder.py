"""Loads what looks into records before it is needed: nobody is to wait 150 ms for numpy and pyarrow.

Only topics whose records are looked at need it: a broker without such topics starts sooner and stays smaller.
"""

from __future__ import annotations

import sys
from importlib import import_module
from threading import Thread

_DECODER = "eoslog.protocol.records"


def is_loaded() -> bool:
    """Whether it is at hand, or on its way."""
    return _DECODER in sys.modules


def load_beside() -> None:
    """Load it in a thread."""
    Thread(target=import_module, args=(_DECODER,), name="load the decoder", daemon=True).start()
