"""Rows counted by batch headers are those that fetch() reads, wherever the range cuts a batch."""

from typing import Any

import google_crc32c
import pytest

from eoslog.client.records.fetch import count_rows
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import build_batch
from eoslog.protocol.control import ABORT, control_batch
from eoslog.protocol.plain_records import _encode
from tests.client.fake_broker import FakeBroker
from tests.client.test_fetch import Log, connected, policy_of, values


def counted(broker: FakeBroker, start: int, end: int, **more: Any) -> int:
    with connected(broker) as cluster:
        return sum(rows for rows, _ in count_rows(cluster, "t", 0, start, end, **{"committed": True} | more))


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 95), (10, 20), (13, 14), (99, 100), (40, 40)])
def test_exactly_the_range(start: int, end: int) -> None:
    log = Log()
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert counted(broker, start, end) == end - start


def test_aborted_and_control_records_do_not_count() -> None:
    log = Log(records=20)
    log.add(10, producer_id=7)
    log.append(bytearray(control_batch(ABORT, 7, 0, 0, 0)), 1)
    log.add(10)
    log.aborted = [{"producer_id": 7, "first_offset": 20}]
    with FakeBroker({ApiKey.FETCH: log.fetch}) as broker:
        assert counted(broker, 15, 35) == 9 == len(values(broker, 15, 35))
        assert counted(broker, 15, 35, committed=False) == 19


def test_a_compacted_batch_that_the_range_cuts() -> None:
    """It has the offsets 0 to 9, and of them the records 0, 5, 8 and 9."""
    log = Log(records=0)
    section = b"".join(_encode(offset, None, b"%d" % offset) for offset in (0, 5, 8, 9))
    made = bytearray().join(build_batch([section], 10, base_timestamp=0, max_timestamp=0))
    made[57:61] = (4).to_bytes(4, "big")
    log.append(_resealed(made), 10)
    log.add(10)
    with FakeBroker({ApiKey.FETCH: log.fetch, ApiKey.DESCRIBE_CONFIGS: policy_of("compact")}) as broker:
        for start, end in ((0, 20), (0, 10), (1, 20), (5, 9), (6, 8), (9, 12)):
            assert counted(broker, start, end) == len(values(broker, start, end)), (start, end)
        assert counted(broker, 0, 20) == 14


def _resealed(made: bytearray) -> bytearray:
    """The batch with the CRC that it needs."""
    made[17:21] = google_crc32c.value(bytes(made[21:])).to_bytes(4, "big")
    return made
