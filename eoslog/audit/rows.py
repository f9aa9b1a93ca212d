"""The rows that an audit works on instead of records: where each stands, and digests. No content is kept.

Places are partitions, numbered: first those of the source topics, then those of the target topics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]

ITEM = np.dtype([
    ("digest", "<u8"), ("more", "<u8"),  # both halves of the digest of its identity
    ("group", "<u8"),  # of its key, where order is kept among records of the same key; else 0
    ("offset", "<i8"), ("place", "<u4"),
])  # fmt: skip
"""A record."""

PAIR = np.dtype([
    ("line", "<u8"),  # where it stands in the target: offsets of all target places counted through
    ("group", "<u8"),
    ("offset", "<i8"), ("place", "<u4"),  # where it stands in the source
])  # fmt: skip
"""A record of the source and where it stands in the target."""
