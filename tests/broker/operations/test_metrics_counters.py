"""The counters: error codes wherever an answer has them, and times in their buckets."""

from eoslog.broker.metrics.metrics import BOUNDS, Histogram, Metrics
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import errors_in

PRODUCE, END_TXN, JOIN = ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.JOIN_GROUP


def produced(*codes: int) -> dict[str, object]:
    parts = [{"index": index, "error_code": code} for index, code in enumerate(codes)]
    return {"responses": [{"name": "orders", "partition_responses": parts}]}


def test_errors_are_counted_where_they_stand() -> None:
    metrics = Metrics()
    for key, answer in (
        (PRODUCE, produced(0, 3, 3, 10)), (END_TXN, {"error_code": 53}), (END_TXN, {"error_code": 0}),
        (PRODUCE, produced(3)),
    ):  # fmt: skip
        metrics.answered(key, 0.001, errors_in(key, answer))
    assert metrics.errors == {(PRODUCE, 3): 3, (PRODUCE, 10): 1, (END_TXN, 53): 1}


def test_a_request_without_an_answer_is_counted_too() -> None:
    metrics = Metrics()
    metrics.answered(PRODUCE, 0.001, errors_in(PRODUCE, None))
    assert sum(metrics.latency[PRODUCE].counts) == 1


def test_buckets_hold_what_is_not_above_their_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] * 2):
        histogram.observe(seconds)
    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-2:] == [1, 1]
