"""How many files this process may have open. A broker needs one for each partition and each connection.

It logs, and commands that read a data directory need `ports` without that.
"""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

FEW = 4096
"""With fewer than these a broker of many partitions and connections may run out."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning(
                "the limit of open files stays %d, it cannot be raised to %d: %s", soft, hard, error
            )
    if 0 <= soft < FEW:
        logger.warning(
            "only %d files may be open: each partition and connection needs one. Raise it: ulimit -Hn", soft
        )
    return soft
