"""From a Kerberos principal to a user's name: `sasl.kerberos.principal.to.local.rules`, with Kafka's rules.

    DEFAULT                               alice@REALM and kafka/host@REALM of the own realm: alice, kafka
    RULE:[n:format](match)s/from/to/gLU   of n parts: $0 is the realm, $1 and $2 the parts; [] must be there

The first rule that matches counts. What no rule matches is nobody.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from eoslog.broker.config.config_def import ConfigError

_OPTION = "sasl.kerberos.principal.to.local.rules"
_RULE = re.compile(r"RULE:\[(\d+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?")
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")


class _Rule(NamedTuple):
    parts: int
    layout: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    everywhere: bool
    case: str


def local_name(principal: str, rules: str, realm: str) -> str | None:
    """The user's name; None if no rule matches. `realm`: the broker's own. Raises ConfigError."""
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        return None
    first, second, where = found.groups()
    values = [where, first] if second is None else [where, first, second]
    for rule in parse_rules(rules):
        name = (first if where == realm else None) if rule is None else _applied(rule, values)
        if name is not None:
            return None if re.search("[/@]", name) or not name else name
    return None


def _applied(rule: _Rule, values: list[str]) -> str | None:
    if len(values) - 1 != rule.parts:
        return None
    name = re.sub(r"\$(\d)", lambda place: values[int(place[1])], rule.layout)
    if rule.match is not None and not rule.match.fullmatch(name):
        return None
    if rule.pattern is not None:
        name = rule.pattern.sub(rule.replacement, name, count=0 if rule.everywhere else 1)
    return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name


@lru_cache
def parse_rules(text: str) -> list[_Rule | None]:
    """The rules in their order; None is DEFAULT. Raises ConfigError."""
    return [_parse(one.strip()) for one in text.split(",") if one.strip()]


def _parse(text: str) -> _Rule | None:
    if text == "DEFAULT":
        return None
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{_OPTION}: {text}: give DEFAULT or RULE:[n:format](match)s/from/to/gLU")
    parts, layout, match, pattern, replacement, everywhere, case = found.groups()
    if any(int(place) > int(parts) for place in re.findall(r"\$(\d)", layout)):
        raise ConfigError(f"{_OPTION}: {text}: a principal of {parts} does not have all parts of the format")
    try:
        return _Rule(
            int(parts), layout, _compiled(match), _compiled(pattern),
            re.sub(r"\$(\d)", r"\\g<\1>", replacement or ""), bool(everywhere), case or "",
        )  # fmt: skip
    except re.error as error:
        raise ConfigError(f"{_OPTION}: {text}: {error}") from error


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)
