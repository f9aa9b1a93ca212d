"""What slows down a Spark session that uses eoslog, or would fail: `eoslog doctor`, and examine(spark).

facts.py collects facts, rules.py draws the conclusions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.doctor.facts import of_session
from eoslog.doctor.rules import Finding, findings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def examine(spark: SparkSession) -> list[Finding]:
    """The findings about a running session, the worst first; print each. With Spark Connect, the client's
    Python is examined instead of the server's.
    """
    return findings_of(of_session(spark))


__all__ = ["Finding", "examine"]
