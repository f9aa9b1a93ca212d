"""What a rehearsal says of the load that a crash has cut off."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from eoslog.client.admin.group_offsets import StillPending
from eoslog.rehearse.crash import Load
from eoslog.rehearse.rows import DoesNotHold


def offset(*_: Any) -> None:
    raise StillPending("UNSTABLE_OFFSET_COMMIT, for 2.0 s")


def test_an_offset_that_stays_pending_is_named() -> None:
    """It ended the rehearsal, as if that itself were broken."""
    load: Any = SimpleNamespace(work=SimpleNamespace(offset=offset, place=("decisions", 0)))
    writer: Any = SimpleNamespace(done=0, group="g", row=str)
    with pytest.raises(DoesNotHold, match="an offset stays pending although brokers have crashed under load"):
        Load._check(load, writer, Counter())
