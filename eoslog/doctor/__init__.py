"""What slows a Spark session down that uses eoslog, or what would fail: `eoslog doctor`, and examine(spark).

facts.py looks, rules.py judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.doctor.facts import of_session
from eoslog.doctor.rules import Finding, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def examine(spark: SparkSession) -> list[Finding]:
    """What is found in a session that runs, the worst first; print each. On Spark Connect the client's
    Python is looked at in the place of the server's."""
    return judge(of_session(spark))


__all__ = ["Finding", "examine"]
