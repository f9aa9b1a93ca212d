"""The clock of histories is theirs alone: threads that run beside them keep the world's."""

import threading
import time

from tests.histories.clock import Clock


def test_a_thread_that_runs_beside_a_history_lets_no_time_pass_in_it() -> None:
    clock, seen, stop = Clock(), list[float](), threading.Event()

    def beside() -> None:
        while not stop.is_set():
            time.sleep(0.005)
            seen.append(time.time())

    thread = threading.Thread(target=beside, daemon=True)
    thread.start()
    try:
        with clock.rules():
            time.sleep(1.5)
            threading.Event().wait(0.05)
            assert (clock.now, time.monotonic()) == (1.5, 1.5)
    finally:
        stop.set()
    thread.join(10)
    assert len(seen) > 3 and max(seen) - min(seen) < 60


def test_a_thread_that_a_history_starts_has_its_time() -> None:
    clock, seen = Clock(), list[float]()
    with clock.rules():
        thread = threading.Thread(target=lambda: seen.append(time.monotonic()))
        thread.start()
        thread.join(10)
    assert seen == [clock.now]
