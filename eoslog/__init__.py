"""eoslog: every row once, between Spark and a Kafka log.

This package is the front door; the rooms behind it are `eoslog.protocol`, `eoslog.broker` and
`eoslog.connector`, each in a folder of its own at the root of the source tree.
"""

import os

__version__ = "0.1.0"

# In a source checkout the three rooms lie beside this folder, not in it. An installed package
# has no setup.cfg above it and needs nothing of this.
_checkout = os.path.dirname(os.path.dirname(__file__))
if all(os.path.isfile(os.path.join(_checkout, name)) for name in ("setup.cfg", "pyspark_eoslog.py")):
    __path__.append(_checkout)

from eoslog.registration import register  # noqa: E402 - the way to it is laid above

__all__ = ["__version__", "register"]
