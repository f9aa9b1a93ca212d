"""Loads the record decoder before it is needed, so that no request waits 150 ms for numpy and pyarrow.

Only topics whose records are checked need it: a broker without such topics starts faster and takes less
memory.
"""

from __future__ import annotations

import sys
from importlib import import_module
from threading import Thread

_DECODER = "eoslog.protocol.records"


def is_loaded() -> bool:
    """Whether the decoder is loaded, or being loaded."""
    return _DECODER in sys.modules


def load_beside() -> None:
    """Load the decoder in a thread."""
    Thread(target=import_module, args=(_DECODER,), name="load the decoder", daemon=True).start()
