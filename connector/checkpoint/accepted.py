"""The option start.accepted: what its user has accepted for one start, word by word. Pure."""

from collections.abc import Collection


def to_accept(word: str, accepted: Collection[str]) -> str:
    """The option as it has to be, so that this is accepted too."""
    return "start.accepted=" + ",".join([*sorted(filter(None, accepted)), word])
