"""The option start.accepted: the risks that the user accepts for one start, one word for each. Pure."""

from collections.abc import Collection


def to_accept(word: str, accepted: Collection[str]) -> str:
    """The option with this word added, as the user has to set it."""
    return "start.accepted=" + ",".join([*sorted(filter(None, accepted)), word])
