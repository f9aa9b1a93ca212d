"""The rows that an audit uses instead of records: positions and digests, but no content.

Places are partitions, numbered: first those of the source topics, then those of the target topics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]

ITEM = np.dtype([
    ("digest", "<u8"), ("more", "<u8"),  # the two halves of its identity's digest
    ("group", "<u8"),  # its key's digest if order is checked among records of the same key; else 0
    ("offset", "<i8"), ("place", "<u4"),
])  # fmt: skip
"""A record."""

PAIR = np.dtype([
    ("line", "<u8"),  # its position in the target: offsets counted on through all target places
    ("group", "<u8"),
    ("offset", "<i8"), ("place", "<u4"),  # its position in the source
])  # fmt: skip
"""A record of the source and its position in the target."""
