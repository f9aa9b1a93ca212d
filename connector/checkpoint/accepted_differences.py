"""The option start.accepted: the risks that the user accepts for one start, one word for each. Pure."""

from collections.abc import Callable, Collection


def to_accept(word: str, accepted: Collection[str]) -> str:
    """The option with this word added, as the user has to set it."""
    return "start.accepted=" + ",".join([*sorted(filter(None, accepted)), word])


def acceptable(accepted: Collection[str]) -> Callable[[str], str | None]:
    """The option that accepts a finding, by its word. None: it is accepted."""
    return lambda word: None if word in accepted else to_accept(word, accepted)
