"""Makes a failing history short: acts are left out, and numbers made smaller, while it still fails alike."""

from collections.abc import Callable, Iterator, Sequence

from tests.histories.shapes import Act

Fails = Callable[[Sequence[Act]], bool]


def shrink(acts: Sequence[Act], fails: Fails, tries: int = 200) -> list[Act]:
    """The shortest that was found within so many tries."""
    best = list(acts)
    left = tries
    again = True
    while again and left > 0:
        again = False
        for smaller in _smaller(best):
            left -= 1
            if left <= 0:
                break
            if fails(smaller):
                best, again = smaller, True
                break
    return best


def _smaller(acts: Sequence[Act]) -> Iterator[list[Act]]:
    size = len(acts) // 2
    while size >= 1:
        for at in range(0, len(acts), size):
            yield [*acts[:at], *acts[at + size :]]
        size //= 2
    for at, act in enumerate(acts):
        for simpler in _simpler(act):
            yield [*acts[:at], simpler, *acts[at + 1 :]]


def _simpler(act: Act) -> Iterator[Act]:
    if act[0] == "run":
        name, triggers, *strike = act[1:]
        if (strike and strike[0] is not None) or strike:
            yield ("run", name, triggers)
        if triggers > 1:
            yield ("run", name, triggers - 1, *strike)
        if strike and strike[0] is not None and strike[0][0] == "kill" and triggers > 1:
            yield ("run", name, 1, *strike)
    elif act[0] == "produce" and act[2] > 1:
        yield ("produce", act[1], 1)
        yield ("produce", act[1], act[2] - 1)
    elif act[0] == "query":
        for key in act[2]:
            yield ("query", act[1], {k: v for k, v in act[2].items() if k != key})
    elif act[0] == "write" and act[5] is not None:
        yield (*act[:5], None)
    elif act[0] == "cluster" and act[1:] != (2, True):
        yield ("cluster", 2, True)
