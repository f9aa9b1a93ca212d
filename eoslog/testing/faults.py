"""What a test calls to cause faults: `broker.faults`.

Every call that arms a fault returns a `Fault`, which counts how often it has happened and can wait for it.
Counting begins when the fault is armed. A fault that is armed while no broker runs waits for the next start;
the end of a broker, however it ends, takes its faults with it.
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
    """A fault that was waited for has not happened."""


class Fault:
    """An armed fault."""

    def __init__(self, send: Send, number: int, what: str) -> None:
        self._send, self._number, self._what = send, number, what

    def __repr__(self) -> str:
        return f"<Fault {self._what}>"

    @property
    def happened(self) -> int:
        """How often it has happened, in the life of the broker that runs."""
        times: int = self._send({"do": "happened", "number": self._number})
        return times

    def wait(self, times: int = 1, timeout: float = 10.0) -> None:
        """Return when it has happened so often. Raises FaultTimeout after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (seen := self.happened) < times:
            if time.monotonic() > deadline:
                raise FaultTimeout(f"{self._what}: happened {seen} times in {timeout} s, not {times}")
            time.sleep(0.005)

    def disarm(self) -> None:
        """It will not happen (again)."""
        self._send({"do": "disarm", "number": self._number})


class Faults:
    """Faults of requests, of connections, of the disk and of the power.

    Common arguments: `api` is a name as Kafka has it ("Produce", "EndTxn"; None: every API); `nth` counts
    what the fault is for, from 1, and from now on; `times` says how many after that (0: for ever);
    `client_id` narrows it to one client.
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

        The connection ends, as TCP loses nothing else alone. With `cut` false it stays open, but nothing
        of it is carried out or answered any more, as behind a dead network.
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
        """Lose an answer: the request is carried out, the client does not hear so.

        The connection ends; with `cut` false it stays open, its requests are carried out, and no answer
        comes any more.
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
        """Carry out a request later, and what the connection sends after it later than that."""
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
        """Carry out a request now and answer later; later answers of the connection wait, too."""
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
        """Answer an error where the API has one: for all of the request, or for each part of it.

        The request is not carried out; with `carried_out` it is, and the error is a lie, as after a
        time-out whose request went through.
        """
        return self._arm("answer error", api, nth, times, client_id, code=int(code), carried_out=carried_out)

    def cut_connections(self) -> int:
        """Cut all connections now; answers how many there were."""
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
        """Fail a write to a file whose path holds `path`; nothing of it is written.

        Paths are looked at below the data directory: "/orders-0/" is a partition, ".log" its segments.
        """
        what = f"fail write {_positive(nth)} of {path or 'any file'}"
        return self._armed("arm_disk", what, call="write", nth=nth, times=times, path=path, error=errno)

    def fail_fsync(self, nth: int = 1, errno: int = errors.EIO, *, times: int = 1, path: str = "") -> Fault:
        """Fail a sync of a file or directory whose path holds `path`."""
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

    def disk_full(self, after_bytes: int = 0) -> None:
        """Let the disk be full (ENOSPC) when so many more bytes are written; `disarm` makes room again."""
        self._send({"do": "disk_full", "size": after_bytes})

    def disarm(self) -> None:
        """Nothing goes wrong any more: all faults are taken back."""
        self._send({"do": "disarm_all"})


def _positive(nth: int) -> int:
    if nth < 1:
        raise ValueError(f"nth={nth}: counted from 1")
    return nth
