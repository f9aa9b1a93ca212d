"""One file for each API key: `KEY`, `VERSIONS` (lowest and highest served), `access`, `handle`.

The head of a file describes it. `access` is Kafka's rule of who may use the API, a check of `authorize`.
`NAMED_FROM`, where a file has it, is the lowest version that ApiVersions names instead of the lowest
served.
"""

from importlib import import_module
from os import listdir  # pkgutil would cost the broker's start some milliseconds

try:
    _FILES = [file.removesuffix(".py") for file in listdir(__path__[0]) if file.endswith(".py")]
except NotADirectoryError:  # in a jar
    from pkgutil import iter_modules

    _FILES = [file.name for file in iter_modules(__path__)]

ALL = tuple(import_module(f"{__name__}.{file}") for file in sorted(_FILES) if file != "__init__")
