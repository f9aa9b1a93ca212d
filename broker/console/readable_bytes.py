"""Bytes in readable form: text, JSON or hex, cut off at a bound. Pure."""

from __future__ import annotations

import json
from typing import Literal

Form = Literal["auto", "text", "json", "hex"]
FORMS: tuple[Form, ...] = ("auto", "text", "json", "hex")

Shown = dict[str, object]

_LARGEST_JSON = 64 << 10
_STEPS_BACK = 4  # bytes of one character in UTF-8 that a cut may leave behind


def shown(data: bytes | None, form: Form, most: int) -> Shown | None:
    """At most `most` bytes of a key, a value or a header's value; None stays None.

    Returns {"as": text, json or hex, "data", "size" in bytes, "cut": whether there is more}. `auto` is
    text where the bytes are UTF-8, else hex; `json` is indented where the bytes are JSON, else like `auto`.
    """
    if data is None:
        return None
    size, piece = len(data), bytes(data[:most])
    kind, text = _read(piece, form, whole=size <= most)
    return {"as": kind, "data": text, "size": size, "cut": size > most}


def _read(piece: bytes, form: Form, *, whole: bool) -> tuple[str, str]:
    if form == "hex":
        return "hex", _hex(piece)
    if form == "text":
        return "text", piece.decode("utf-8", "replace")
    if form == "json" and whole:
        found = _json(piece)
        if found is not None:
            return "json", found
    text = _text(piece, whole=whole)
    return ("text", text) if text is not None else ("hex", _hex(piece))


def _hex(piece: bytes) -> str:
    return piece.hex(" ")


def _json(piece: bytes) -> str | None:
    """Indented JSON, if the text is an object or array and not too large for that."""
    if len(piece) > _LARGEST_JSON or piece.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.dumps(json.loads(piece), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _text(piece: bytes, *, whole: bool) -> str | None:
    """The bytes as UTF-8 text, None if they are not. After a cut the last character may be incomplete."""
    for torn in range(1 if whole else _STEPS_BACK):
        try:
            text = piece[: len(piece) - torn].decode()
        except UnicodeDecodeError:
            continue
        return text if all(char >= " " or char in "\t\r\n" for char in text) else None
    return None
