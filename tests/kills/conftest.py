"""The tools of the soaks and of the connector's tests are used here too."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "soaks"), str(_TESTS / "connector")]
