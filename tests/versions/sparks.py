"""The PySparks that are here: the environment's own, and those that make test-spark-versions fetched."""

from pathlib import Path

import pyspark

from tests.kit.program import ROOT

FETCHED = {
    path.name.removeprefix("pyspark-"): path for path in sorted((ROOT / ".peers").glob("pyspark-*.*.?"))
}
"""Folders for PYTHONPATH, by version."""
SPARKS: dict[str, Path | None] = {pyspark.__version__: None, **FETCHED}
"""All of them; None: the environment's own."""
