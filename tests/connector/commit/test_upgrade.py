"""A query that was killed under an older version, in the middle of a batch, is carried on by this one."""

import pytest

from eoslog.connector.commit.decision import ANCHOR
from tests.connector.commit.model_bench import Bench, Crash, finishes

WRITTEN = {
    1: '4ecbdcfa {"query":"q","batch":0,"digest":"digest 0","run":[1001,1],"won":{"w0":[[0,0,1004,0]],"w1":'
    '[[0,1,1005,0]]},"wrote":{"out":[0,1]},"rows":[1,1],"before":[["before",0,"digest 0"]]}',
    2: 'a0addfe3 {"query":"q","batch":0,"digest":"digest 0","run":[1001,2],"won":{"w0":[[0,0,1004,0]],"w1":'
    '[[0,1,1005,0]]},"wrote":{"out":[0,1]},"rows":[1,1],"before":[["before",0,"digest 0"]]}',
}
"""A decision as the first version wrote it, by transaction.version."""


@pytest.mark.parametrize("tv", [1, 2])
def test_a_decision_of_the_first_version_is_carried_out(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0, query="before")
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.broker.groups["sink"] = {(ANCHOR, 0): (2, f"eoslog/1 0 1 {WRITTEN[tv]}")}
    assert bench.broker.visible() == ["before0p0", "before0p1"]
    begun = bench.begin(0)
    assert bench.open() == () and begun.decided == begun.batch
    bench.commit(bench.prepare_all(begun), 0)
    bench.whole_batch(1)
    assert bench.broker.visible() == [f"{batch}p{p}" for batch in ("before0", "q0", "q1") for p in (0, 1)]
