"""eoslog: every row once, between Spark and a Kafka log.

This package is the front door. The rooms behind it are `eoslog.protocol`, `eoslog.client`,
`eoslog.broker` and `eoslog.connector`: folders at the root of the source tree, and links to them here.
"""

from eoslog.registration import register, watch_pythons
from eoslog.version import __version__

watch_pythons()

__all__ = [  # all that is public; modules have an `__all__` too. Pages and a test are made of these
    "__version__",
    "avro",
    "checkpoint",
    "doctor",
    "errors",
    "fanout",
    "metrics",
    "register",
    "shadow",
    "testing",
]
