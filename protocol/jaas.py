"""Java's way to write credentials, because it is what people have: `MODULE required NAME="VALUE" ...;`"""

from __future__ import annotations

import re
from typing import NamedTuple

_PIECE = re.compile(
    r"""\s*(?:([\w.$@-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))|(;))"""
)
_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)


class JaasError(ValueError):
    """A text that is no JAAS configuration; what it says holds none of the text's values."""


class Login(NamedTuple):
    """One login module with its options. `module` is the class's name without its package."""

    module: str
    options: dict[str, str]


def parse(text: str) -> Login:
    """Read the value of `sasl.jaas.config`: one login module. Raises JaasError."""
    head = _HEAD.match(text)
    if head is None:
        raise JaasError('it does not begin with a class and "required"')
    options: dict[str, str] = {}
    position = head.end()
    while True:
        piece = _PIECE.match(text, position)
        if piece is None:
            raise JaasError('there is something that is not NAME="VALUE", or the final ";" is missing')
        position = piece.end()
        name, double, single, bare, end = piece.groups()
        if end:
            break
        quoted = double if double is not None else single
        options[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
    if text[position:].strip():
        raise JaasError('there is something behind the ";": one login module is enough')
    return Login(head[1].rpartition(".")[2], options)
