"""The version of the values that Spark's processes exchange (Begun and Stamp to the tasks, reports back), and
of what a driver remembers from batch to batch."""

import platform
import sys

from eoslog.connector.spark.libraries import EnvironmentUnfit

FORM = 8
"""Increase it with every change of these values, or of their classes' and modules' names. Another form
is refused or dropped, never guessed."""


def check_form(found: int | None) -> None:
    """Check that a value from another process has this eoslog's form. Raises EnvironmentUnfit."""
    if found == FORM:
        return
    raise EnvironmentUnfit(
        f"eoslog in {sys.executable} on {platform.node()} reads messages of form {FORM}, and one of form "
        f"{found} came: Spark's driver and an executor have different versions of eoslog. Install the same "
        "on all of them, and start the query again"
    )
