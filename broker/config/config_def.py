"""How an option or a config is declared and read: Kafka's name, its meaning, its kind and its bounds."""

from __future__ import annotations

import re
from dataclasses import Field, dataclass, field
from enum import IntEnum
from typing import Any

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class ConfigError(ValueError):
    """An option has an unknown name or an invalid value; the text says which, and what would be valid."""


class ConfigType(IntEnum):
    """The type of a value, with the numbers of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigRule:
    """The values that an option accepts.

    `low` and `high` bound numbers. `choices` lists the values that a text, or an item of a list, may have
    (none: any text). `pattern` is a regular expression for the whole text; messages show `hint` in place of
    it. The value of a `secret` is in no message.
    """

    name: str
    kind: ConfigType
    low: float = 0
    high: float = INT64_MAX
    choices: tuple[str, ...] = ()
    pattern: str = ""
    hint: str = ""
    secret: bool = False

    def parse(self, text: str) -> Any:
        """The value of `text`: a bool, int, float or str or, for a list, a tuple of str.

        Raises ConfigError naming the option.
        """
        text = text.strip()
        value: Any = text
        if self.kind is ConfigType.BOOLEAN:
            value = {"true": True, "false": False}.get(text.lower())
            if value is None:
                raise self.wrong(text, "true or false")
        elif self.kind in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG):
            if not _WHOLE.fullmatch(text):
                raise self.wrong(text, "a whole number")
            value = int(text)
        elif self.kind is ConfigType.DOUBLE:
            if not _DECIMAL.fullmatch(text):
                raise self.wrong(text, "a number")
            value = float(text)
        elif self.kind is ConfigType.LIST:
            value = tuple(item.strip() for item in text.split(",")) if text else ()
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise ConfigError unless `value`, of the right type, is within the bounds."""
        if self.kind in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
            if not self.low <= value <= self.high:
                raise self.wrong(value, f"between {self.low} and {self.high}")
        elif self.kind is ConfigType.LIST and (len(set(value)) < len(value) or "" in value):
            raise self.wrong(text_of(value), "a list without empty or repeated items")
        items = value if self.kind is ConfigType.LIST else (text_of(value),)
        if self.choices and not set(items) <= set(self.choices):
            raise self.wrong(text_of(value), " or ".join(self.choices))
        if self.pattern and not re.fullmatch(self.pattern, text_of(value)):
            raise self.wrong(text_of(value), self.hint)

    def wrong(self, value: object, wanted: str) -> ConfigError:
        """The error that says which value would be valid."""
        shown = "" if self.secret else f"={value}"
        return ConfigError(f"{self.name}{shown}: must be {wanted}")


def text_of(value: object) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def option(
    default: Any,
    name: str,
    meaning: str,
    *,
    low: float = 0,
    high: float = INT64_MAX,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    hint: str = "",
    secret: bool = False,
    dynamic: bool = False,
) -> Any:
    """A field of an options dataclass. Its kind follows from its default; a tuple is a list.

    For the bounds see `ConfigRule` (times in ms, sizes in bytes). The value of a `secret` is never shown. A
    `dynamic` option may be changed while the broker runs (DescribeConfigs, IncrementalAlterConfigs; KIP-226).
    """
    kind = _kind_of(default, high, secret)
    metadata = {
        "name": name,
        "meaning": meaning,
        "dynamic": dynamic,
        "rule": ConfigRule(name, kind, low, high, choices, pattern, hint, secret),
    }
    return field(default=default, metadata=metadata)


def rule_of(declared: Field[Any]) -> ConfigRule:
    """The rule of an option."""
    rule: ConfigRule = declared.metadata["rule"]
    return rule


def _kind_of(default: Any, high: float, secret: bool) -> ConfigType:
    if secret:
        return ConfigType.PASSWORD
    if isinstance(default, bool):
        return ConfigType.BOOLEAN
    if isinstance(default, int):
        return ConfigType.INT if high <= INT32_MAX else ConfigType.LONG
    kinds = {float: ConfigType.DOUBLE, tuple: ConfigType.LIST}
    return kinds.get(type(default), ConfigType.STRING)
