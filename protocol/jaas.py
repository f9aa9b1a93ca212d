"""Java's notation for credentials, since people have them in it: `MODULE required NAME="VALUE" ...;`"""

from __future__ import annotations

import re
from typing import NamedTuple

_PIECE = re.compile(
    r"""\s*(?:([\w.$@-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))|(;))"""
)
_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)


_HOST = re.compile(r"^(?:[\w$]+\.)+?(?=org\.apache\.kafka\.|software\.amazon\.msk\.)", re.IGNORECASE)


def class_name(text: str) -> str:
    """A class by its own name: hosted Sparks put a name before it (kafkashaded.org.apache.kafka...)."""
    return _HOST.sub("", text.strip())


class JaasError(ValueError):
    """A text that is not a JAAS configuration. The message shows none of the text's values."""


class LoginModule(NamedTuple):
    """One login module with its options. `module` is the class's name without its `package`."""

    module: str
    options: dict[str, str]
    package: str


def parse(text: str) -> LoginModule:
    """Read the value of `sasl.jaas.config`: one login module. Raises JaasError."""
    head = _HEAD.match(text)
    if head is None and "{" in text:
        raise JaasError("it is a section of a JAAS file: give what stands between { and }")
    if head is None:
        raise JaasError('it does not begin with a class and "required"')
    options: dict[str, str] = {}
    position = head.end()
    while True:
        piece = _PIECE.match(text, position)
        if piece is None:
            raise JaasError('something in it is not NAME="VALUE", or the final ";" is missing')
        position = piece.end()
        name, double, single, bare, end = piece.groups()
        if end:
            break
        quoted = double if double is not None else single
        options[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
    if text[position:].strip():
        raise JaasError('there is text after the ";": give one login module only')
    package, _, module = head[1].rpartition(".")
    return LoginModule(module, options, package)
