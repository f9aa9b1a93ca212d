"""Fixtures of the console's tests."""

import sys
from pathlib import Path

BROKER_TESTS = Path(__file__).parents[1] / "broker"
sys.path += [str(BROKER_TESTS), str(BROKER_TESTS / "security")]
