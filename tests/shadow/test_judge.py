"""The judge of a shadow's rows, against one that counts row by row."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eoslog.shadow.compare import ROW, judge

Row = tuple[bool, int, int]
"""Of the shadow, step, content."""
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2)), max_size=40)


def as_rows(drawn: list[Row], spread: int) -> np.ndarray:
    """Contents that differ in either half of their digest; two places each side."""
    rows = np.zeros(len(drawn), ROW)
    for at, (of_shadow, step, content) in enumerate(drawn):
        rows[at] = (content // 2, content % 2, at, 2 * of_shadow + (at * spread) % 2, step)
    return rows


def plainly(drawn: list[Row]) -> dict[str, Counter[int]]:
    """Rows that are late, missing and extra, by step; and extra ones that are alike."""
    names = "late", "missing", "extra", "alike"
    found: dict[str, Counter[int]] = {name: Counter() for name in names}
    for content in range(3):
        left: tuple[list[int], list[int]] = ([], [])
        for step in range(4):
            counts = [drawn.count((side, step, content)) for side in (False, True)]
            for side in range(2):
                left[side].extend([step] * (counts[side] - min(counts)))
        pairs = min(map(len, left))
        found["late"].update(left[0][:pairs])
        found["missing"].update(left[0][pairs:])
        found["extra"].update(left[1][pairs:])
        found["alike"].update(step for step in left[1][pairs:] if pairs or (False, step, content) in drawn)
    return found


@given(ROWS, st.integers(0, 1))
def test_as_row_by_row(drawn: list[Row], spread: int) -> None:
    found, wanted = judge(as_rows(drawn, spread), 2, 4), plainly(drawn)
    for name in ("late", "missing", "extra"):
        assert [wanted[name][step] for step in range(4)] == getattr(found, name).tolist(), name
    assert found.alike == wanted["alike"].total()
    sides = Counter(zip(found.differing["step"].tolist(), found.differing["place"] >= 2, strict=True))
    assert sides == Counter(
        {
            (step, side): n
            for side, name in ((False, "missing"), (True, "extra"))
            for step, n in wanted[name].items()
        }
    )
