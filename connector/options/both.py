"""Options of the data source: from the strings that Spark hands over to two typed, frozen objects.

Whatever is wrong is said here, on the driver, before anything is read or written. The options of a read are
in source_options.py, those of a write in sink_options.py, what both share in option_parsing.py.
"""

from eoslog.connector.options.of_sink import Guarantee, SinkOptions, sink_options
from eoslog.connector.options.of_source import SourceOptions, source_options
from eoslog.connector.options.parsing import parse

__all__ = ["Guarantee", "SinkOptions", "SourceOptions", "parse", "sink_options", "source_options"]
