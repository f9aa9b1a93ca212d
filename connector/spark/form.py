"""The form of what travels between Spark's processes: Begun and Stamp to the tasks, reports back, and what a
driver remembers from batch to batch."""

import platform
import sys

from eoslog.connector.spark.libraries import EnvironmentUnfit

FORM = 2
"""Raise it with every change of these values. Another form is refused or forgotten, never guessed at."""


def check_form(found: int | None) -> None:
    """What another process has sent has the form of this version of eoslog. Raises EnvironmentUnfit."""
    if found == FORM:
        return
    raise EnvironmentUnfit(
        f"eoslog in {sys.executable} on {platform.node()} reads messages of form {FORM}, and one of form "
        f"{found} came: Spark's driver and an executor have different versions of eoslog. Install the same "
        "on all of them, and start the query again"
    )
