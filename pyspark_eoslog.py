"""The module by which Spark finds `format("eoslog")`.

At its first use of a data source, Spark looks through the top-level modules named `pyspark_*` and registers
the class `DefaultSource` of each. If this fails, Spark logs the reason and continues without it.
"""

import sys
from importlib.util import find_spec


def _check_not_hidden() -> None:
    """Raises ImportError if `import eoslog` would run something else, such as a program eoslog.py in Spark's
    working directory: it would start a Spark of its own, whose look-up starts the next one. Imports nothing.
    """
    found = find_spec("eoslog")
    places = found.submodule_search_locations if found is not None else None
    if places is None or not any(finder.find_spec("eoslog.connector", places) for finder in sys.meta_path):
        hides = found.origin if found is not None else "nothing"
        raise ImportError(
            f"{hides} hides the package eoslog from Spark's Python: rename it, or start the program in "
            "another folder"
        )


_check_not_hidden()

from eoslog.connector.spark.libraries import check_versions  # noqa: E402

check_versions()  # before the next import: with an older Spark it fails, naming only a module of Spark

from eoslog.connector.data_source import EoslogDataSource as DefaultSource  # noqa: E402

__all__ = ["DefaultSource"]
