"""Where options come from: a file like Kafka's server.properties, NAME=VALUE settings, flags; the last wins.

An unknown name is either an option of Kafka that has no meaning here (`foreign`), or a mistake, which is
refused with the names that may have been meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from eoslog.broker.config import BrokerConfig, ConfigError, option_table
from eoslog.broker.config.config_def import rule_of, text_of
from eoslog.broker.config.kafka_options import COPIES, foreign
from eoslog.broker.config.topics import SCALED

ALIASES = {"broker.id": "node.id"}
"""Kafka's older names of options; the newer one wins where both are given."""

_MEANS = ALIASES | {name: target for name, (target, _) in SCALED.items()}

HIDDEN = "(hidden)"


def meaning(name: str) -> str:
    """The option's own name, if `name` is another name of it; else `name`."""
    return _MEANS.get(name, name)


@dataclass(frozen=True)
class GatheredOptions:
    """Options as text by Kafka's name, where each comes from, and a warning for each one that is ignored."""

    options: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    """The ignored ones, as text."""

    def config(self) -> BrokerConfig:
        """The broker's options. Raises ConfigError naming the option and where it was given."""
        try:
            return replace(BrokerConfig.from_options(self.options), ignored=self.ignored)
        except ConfigError as error:
            name = str(error).partition("=")[0]
            origin = self.origins.get(name)
            raise ConfigError(f"{origin}: {error}" if origin else str(error)) from error


def gather(file: str | None, settings: Sequence[str], flags: Mapping[str, str]) -> GatheredOptions:
    """Combine the sources: `file` (a path), `settings` (NAME=VALUE) and `flags` (by the option's name).

    Raises ConfigError with a line for each option that is refused.
    """
    found = GatheredOptions()
    if file is not None:
        _take(found, read_properties(file), file)
    _take(found, dict(_setting(text) for text in settings), "--config")
    _take(found, flags, "the command line")
    _rename(found)
    _drop_controller_listeners(found)
    _sort_out(found)
    _note_copies(found)
    if "," in found.options.get("log.dirs", ""):
        raise ConfigError(f"log.dirs={found.options['log.dirs']}: one data directory, not several")
    return found


def read_properties(path: str) -> dict[str, str]:
    """Read a file in Java's properties format. Raises ConfigError naming the file."""
    # Not at the top: it is needed only if there is a file.
    from javaproperties import InvalidUEscapeError, load

    try:
        with open(path, encoding="utf-8") as lines:
            return {name: value.strip() for name, value in load(lines).items()}
    except (OSError, UnicodeDecodeError, InvalidUEscapeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"config file {path} cannot be read: {reason}") from error


def shown(config: BrokerConfig) -> dict[str, str]:
    """Every option's value as text, by Kafka's name; secrets are hidden."""
    table = option_table()
    return {
        name: HIDDEN if rule_of(field).secret and config.value(name) else text_of(config.value(name))
        for name, field in sorted(table.items())
    }  # fmt: skip


def _take(found: GatheredOptions, options: Mapping[str, str], origin: str) -> None:
    """Add a source's options; they replace those of earlier sources, also under another name."""
    given = set(map(meaning, options))
    for name in [name for name in found.options if meaning(name) in given]:
        del found.options[name], found.origins[name]
    found.options.update(options)
    found.origins.update(dict.fromkeys(options, origin))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--config {text}: give NAME=VALUE, for instance num.partitions=4")
    return name.strip(), value.strip()


def _rename(found: GatheredOptions) -> None:
    for old, new in ALIASES.items():
        if old in found.options:
            value, origin = found.options.pop(old), found.origins.pop(old)
            if new not in found.options:
                found.options[new], found.origins[new] = value, origin


def _drop_controller_listeners(found: GatheredOptions) -> None:
    """Remove the listener that a combined node of Kafka has for its quorum: nothing would use it here."""
    names = {name.strip().upper() for name in found.options.get("controller.listener.names", "").split(",")}
    for option in sorted({"listeners", "advertised.listeners"} & found.options.keys()):
        entries = [entry.strip() for entry in found.options.get(option, "").split(",")]
        kept = [entry for entry in entries if entry.partition("://")[0].strip().upper() not in names]
        if kept != entries:
            found.options[option] = ",".join(kept)
            found.warnings.append(f"{option}: the controller's listener is ignored: one node, no quorum")


def _sort_out(found: GatheredOptions) -> None:
    """Remove options that have no meaning here. Raises ConfigError for those that must not be ignored."""
    names, problems = {*option_table(), *SCALED}, []
    for name in [name for name in found.options if not _known(name, names)]:
        value, origin = found.options.pop(name), found.origins.pop(name)
        known = foreign(name)
        if known is None:
            problems.append(f"{origin}: unknown option {name}{_suggestion(name, names)}")
        elif known.refuses(value):
            problems.append(f"{origin}: {name} is not supported: {known.why}{_instead(known.harmless)}")
        else:
            found.warnings.append(f"{origin}: {name} is ignored: {known.why}")
            found.ignored[name] = value
    if problems:
        raise ConfigError("\n".join(problems))


def _note_copies(found: GatheredOptions) -> None:
    """Warn that there is only one copy where an option asks for more; such options are accepted."""
    for name, value in found.options.items():
        if any(fnmatchcase(name, pattern) for pattern in COPIES) and value.strip() not in ("1", "-1"):
            found.warnings.append(f"{found.origins[name]}: {name}={value}, but one broker keeps one copy")


def _known(name: str, names: set[str]) -> bool:
    """Whether `name` is an option. Some of `names` are patterns, such as listener.name.*."""
    return name in names or any("*" in known and fnmatchcase(name, known) for known in names)


def _instead(harmless: Sequence[str]) -> str:
    values = [value for value in harmless if value]
    return f"; remove it{' or set it to ' + values[0] if values else ''}"


def _suggestion(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(known), n=3, cutoff=0.75)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return "; `eoslog broker --help` lists all options"
