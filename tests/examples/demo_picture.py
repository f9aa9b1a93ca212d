"""The picture of the demo in the benchmark tables: what a whole run printed, as an SVG. make demo-picture."""

from __future__ import annotations

import sys

from rich.console import Console

from examples.flights.run import main
from tests.svg import PICTURES, save

SVG = PICTURES / "demo.svg"
_WIDTH = 72

if __name__ == "__main__":
    # Not as a terminal: the live view, which moves, is left out.
    console = Console(record=True, width=_WIDTH, force_terminal=False)
    status = main(console)
    if status == 0:
        save(console, SVG, "make demo")
    sys.exit(status)
