"""The calls by which a test causes faults: `broker.faults`.

Every call that arms a fault returns a `Fault`, which counts how often the fault has happened and can wait for
it. Counting starts when the fault is armed. A fault armed while no broker runs takes effect at the next
start. However a broker ends, its faults end with it.
"""

from __future__ import annotations

import errno as errors
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eoslog.protocol.errors import ErrorCode

Send = Callable[[dict[str, Any]], Any]


class FaultTimeout(AssertionError):
    """A fault has not happened in time."""


class Fault:
    """An armed fault."""

    def __init__(self, send: Send, number: int, what: str) -> None:
        self._send, self._number, self._what = send, number, what

    def __repr__(self) -> str:
        return f"<Fault {self._what}>"

    @property
    def happened(self) -> int:
        """How often it has happened since the running broker started."""
        times: int = self._send({"do": "happened", "number": self._number})
        return times

    def wait(self, times: int = 1, timeout: float = 10.0) -> None:
        """Return when it has happened `times` times. Raises FaultTimeout."""
        deadline = time.monotonic() + timeout
        while (seen := self.happened) < times:
            if time.monotonic() > deadline:
                raise FaultTimeout(f"{self._what}: happened {seen} times in {timeout} s, not {times}")
            time.sleep(0.005)

    def disarm(self) -> None:
        """End it."""
        self._send({"do": "disarm", "number": self._number})


class Faults:
    """Faults of requests, of connections, of the disk and of the power.

    `api`: Kafka's name ("Produce", "EndTxn"); None: every API. `nth` counts matching requests or calls from
    now on, from 1. `times`: how many are affected from there on; 0: all. `client_id`: of this client alone.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = count(1)

    # -- requests and answers ------------------------------------------------------------------

    def drop_request(
        self,
        api: str | None = None,
        nth: int = 1,
        *,
        times: int = 1,
        client_id: str | None = None,
        cut: bool = True,
    ) -> Fault:
        """Lose a request: it is not carried out.

        The connection ends, as TCP loses no single request. With `cut` false it stays open, but none of its
        later requests is carried out or answered.
        """
        return self._arm("drop request", api, nth, times, client_id, cut=cut)

    def drop_answer(
        self,
        api: str | None = None,
        nth: int = 1,
        *,
        times: int = 1,
        client_id: str | None = None,
        cut: bool = True,
    ) -> Fault:
        """Lose an answer: the request is carried out.

        The connection ends. With `cut` false it stays open: later requests are carried out, never answered.
        """
        return self._arm("drop answer", api, nth, times, client_id, cut=cut)

    def delay_request(
        self,
        seconds: float,
        api: str | None = None,
        nth: int = 1,
        *,
        times: int = 1,
        client_id: str | None = None,
    ) -> Fault:
        """Carry out a request later, and the connection's requests after it later still."""
        return self._arm("delay request", api, nth, times, client_id, seconds=seconds)

    def delay_answer(
        self,
        seconds: float,
        api: str | None = None,
        nth: int = 1,
        *,
        times: int = 1,
        client_id: str | None = None,
    ) -> Fault:
        """Carry out a request, and answer it later; later answers of the connection wait, too."""
        return self._arm("delay answer", api, nth, times, client_id, seconds=seconds)

    def answer_error(
        self,
        api: str,
        code: ErrorCode | int,
        nth: int = 1,
        *,
        times: int = 1,
        client_id: str | None = None,
        carried_out: bool = False,
    ) -> Fault:
        """Answer an error where the API has one: for the whole request, or for each part of it.

        The request is not carried out; with `carried_out` it is, as after a time-out.
        """
        return self._arm("answer error", api, nth, times, client_id, code=int(code), carried_out=carried_out)

    def cut_connections(self) -> int:
        """Cut all connections now. Returns how many there were."""
        cut: int = self._send({"do": "cut"})
        return cut

    def _arm(
        self, action: str, api: str | None, nth: int, times: int, client_id: str | None, **more: Any
    ) -> Fault:
        from eoslog.testing.rules import api_named

        key = None if api is None else int(api_named(api).key)
        what = f"{action}: {api or 'any API'} from number {_positive(nth)}, times {times}"
        return self._armed(
            "arm", what, action=action, api=key, nth=nth, times=times, client_id=client_id, **more
        )

    def _armed(self, how: str, what: str, **rule: Any) -> Fault:
        number = next(self._numbers)
        self._send({"do": how, "number": number, **rule})
        return Fault(self._send, number, what)

    # -- the disk ------------------------------------------------------------------------------

    def fail_write(self, nth: int = 1, errno: int = errors.EIO, *, times: int = 1, path: str = "") -> Fault:
        """Fail a write to a file; nothing of it is written. `path`: a part of its path below the data
        directory, as "/orders-0/" or ".log".
        """
        what = f"fail write {_positive(nth)} of {path or 'any file'}"
        return self._armed("arm_disk", what, call="write", nth=nth, times=times, path=path, error=errno)

    def fail_fsync(self, nth: int = 1, errno: int = errors.EIO, *, times: int = 1, path: str = "") -> Fault:
        """Fail a sync of a file or directory."""
        what = f"fail fsync {_positive(nth)} of {path or 'any file'}"
        return self._armed("arm_disk", what, call="sync", nth=nth, times=times, path=path, error=errno)

    def delay_write(self, seconds: float, nth: int = 1, *, times: int = 0, path: str = "") -> Fault:
        """Slow down writes; by default all of them."""
        what = f"delay write {_positive(nth)} of {path or 'any file'}"
        return self._armed("arm_disk", what, call="write", nth=nth, times=times, path=path, seconds=seconds)

    def delay_fsync(self, seconds: float, nth: int = 1, *, times: int = 0, path: str = "") -> Fault:
        """Slow down syncs; by default all of them."""
        what = f"delay fsync {_positive(nth)} of {path or 'any file'}"
        return self._armed("arm_disk", what, call="sync", nth=nth, times=times, path=path, seconds=seconds)

    def disk_full(self, after_bytes: int = 0) -> Fault:
        """Let the disk be full (ENOSPC) after this many more bytes; `disarm` frees space."""
        return self._armed("disk_full", f"disk full after {after_bytes} bytes", size=after_bytes)

    def disarm(self) -> None:
        """Remove all faults."""
        self._send({"do": "disarm_all"})


def _positive(nth: int) -> int:
    if nth < 1:
        raise ValueError(f"nth={nth}: counted from 1")
    return nth
