"""What the scenarios saw with two brokers, compared: `compare_seen.py OURS KAFKA DOCUMENT`.

Every difference must be told in the document, which names its scenario; else the exit status is 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def differences(
    ours: dict[str, dict[str, object]], kafka: dict[str, dict[str, object]]
) -> list[tuple[str, str]]:
    """(scenario, line) for every fact that is not the same; scenarios that ran with one broker only too."""
    found = []
    for test in sorted(ours.keys() | kafka.keys()):
        mine, theirs = ours.get(test, {}), kafka.get(test, {})
        for fact in sorted(mine.keys() | theirs.keys()):
            here, there = _apart(mine.get(fact), theirs.get(fact))
            if here != there:
                found.append((test, f"{test} {fact}: ours {here!r}, Kafka {there!r}"))
    return found


def _apart(ours: object, kafka: object) -> tuple[object, object]:
    """Of two lists only what the other one has not."""
    if isinstance(ours, list) and isinstance(kafka, list):
        return [one for one in ours if one not in kafka], [one for one in kafka if one not in ours]
    return ours, kafka


def main() -> int:
    """Command line."""
    ours, kafka = (json.loads(Path(name).read_text()) for name in sys.argv[1:3])
    document = Path(sys.argv[3]).read_text()
    untold = 0
    for test, line in differences(ours, kafka):
        told = test.split("[")[0] in document
        untold += not told
        print(("told:   " if told else "UNTOLD: ") + line)
    print(f"{len(ours)} scenarios with facts on ours, {len(kafka)} on Kafka; {untold} differences untold")
    return 1 if untold else 0


if __name__ == "__main__":
    sys.exit(main())
