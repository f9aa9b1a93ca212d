"""Options of the data source: from Spark's strings to two typed, frozen objects.

All mistakes are reported here, on the driver, before anything is read or written. The options of a read are
in source_options.py, those of a write in sink_options.py, what both share is in parsing.py.
"""

from eoslog.connector.options.parsing import parse
from eoslog.connector.options.sink_options import Guarantee, SinkOptions, sink_options
from eoslog.connector.options.source_options import SourceOptions, source_options

__all__ = ["Guarantee", "SinkOptions", "SourceOptions", "parse", "sink_options", "source_options"]
