"""Writes six pages of docs/ from the code: `python -m docs.pages`.

apis.md is made of the heads of the broker's handlers, options.md of the declared options and the tables of
the topic and group configs, connector-options.md and connector-errors.md of the connector's tables,
commands.md of what `--help` prints, python-api.md of the signatures and docstrings of what is public. A test
fails when a page is not what would be written here.
"""

from __future__ import annotations

import inspect
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef

import click

import eoslog
from eoslog.broker import handlers
from eoslog.broker.config import option_sections, option_table
from eoslog.broker.config.config_def import INT32_MAX, INT64_MAX, ConfigRule, ConfigType, rule_of, text_of
from eoslog.broker.config.topics import SCALED, TOPIC_CONFIGS
from eoslog.broker.resources import GROUP_CONFIGS
from eoslog.cli import main as command_line
from eoslog.client.wire.retry import DEPARTURES
from eoslog.connector.options import table as connector_table
from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.options.table import SPARKS_OPTIONS
from eoslog.connector.spark.columns import SINK_COLUMNS
from eoslog.connector.spark.versions import FEATURES, OLDEST
from eoslog.errors import ADVICE
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.fields import Versions

HERE = Path(__file__).parent
KAFKAS_OPTIONS = HERE.parent / "tests" / "connector" / "options" / "kafka_client_options.txt"

_TITLE = re.compile(r"(\w+) \(key (\d+), versions? (\d+)(?:-(\d+))?\): (.+)")
_COMPLETE, _LEFT_OUT = "Complete", "Left out:"


class BadHead(ValueError):
    """A handler's head has not the form that the page needs; the text names the handler and what is wrong."""


@dataclass(frozen=True)
class Head:
    """What a handler's head says. `behaviour` are paragraphs, `rest` is what is left out (or "")."""

    api: Api
    served: Versions
    does: str
    behaviour: tuple[str, ...]
    rest: str

    @property
    def versions(self) -> str:
        """The versions served."""
        low, high = self.served
        return str(low) if low == high else f"{low}-{high}"


def head_of(module: ModuleType) -> Head:
    """Read a handler's head. Raises BadHead."""
    api, served = APIS[module.KEY], Versions(*module.VERSIONS)
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(module) or "").split("\n\n")]
    title = _TITLE.fullmatch(paragraphs[0])
    if not title:
        raise BadHead(f"{module.__name__}: the head begins with 'Name (key K, versions A-B): what it does.'")
    name, key, low, high, does = title.groups()
    said = (name, int(key), int(low), int(high or low))
    declared = (api.name, int(api.key), *served)
    if said != declared:
        raise BadHead(f"{module.__name__}: the head says {said}, the code {declared}")
    last = paragraphs[-1]
    if len(paragraphs) < 2 or not last.startswith((_COMPLETE, _LEFT_OUT)):
        raise BadHead(f"{module.__name__}: the head's last paragraph begins '{_COMPLETE}' or '{_LEFT_OUT}'")
    if last.startswith(_LEFT_OUT):
        rest = last.removeprefix(_LEFT_OUT).strip()
        return Head(api, served, does, tuple(paragraphs[1:-1]), rest)
    more = last.removeprefix(_COMPLETE).lstrip(".: ")
    return Head(api, served, does, (*paragraphs[1:-1], *filter(None, [more[:1].upper() + more[1:]])), "")


def apis_page() -> str:
    """The content of apis.md. Raises BadHead."""
    heads = sorted((head_of(module) for module in handlers.ALL), key=lambda head: head.api.key)
    lines = [
        "# APIs",
        "",
        "Made from the heads of the handlers by `python -m docs.pages`; do not edit.",
        "",
        f"{len(heads)} APIs. If nothing is listed as left out, the versions are complete.",
        "",
        "| key | API | versions | left out |",
        "|---|---|---|---|",
    ]
    for head in heads:
        anchor = head.api.name.lower()
        lines.append(
            f"| {head.api.key} | [{head.api.name}](#{anchor}) | {head.versions} | {_cell(head.rest)} |"
        )
    for head in heads:
        lines += ["", f"## {head.api.name}", "", f"Key {head.api.key}, versions {head.versions}: {head.does}"]
        for paragraph in head.behaviour:
            lines += ["", paragraph]
        if head.rest:
            lines += ["", f"Left out: {head.rest}"]
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """The content of options.md."""
    lines = [
        "# Options of the broker",
        "",
        "Made by `python -m docs.pages`; do not edit.",
        "",
        "Set options in the config file or by `--config NAME=VALUE`. Where Kafka has the option, the name is"
        " Kafka's, and most often the default. *Dynamic* ones can be changed while the broker runs"
        " (`kafka-configs --entity-type brokers`, KIP-226).",
        "",
        "Below a name: its default behind = or in bold, and its values. Without values an option is true or"
        " false if its default is, else a text.",
    ]
    rare = []
    for section in sorted(option_sections().values(), key=lambda one: _ORDER.index(one.__name__)):
        declared = sorted(fields(section), key=lambda one: one.metadata["name"])
        shown = [one for one in declared if one.metadata["name"] not in _ON_TOPICS and not _why_not(one)]
        often = [one for one in shown if one.metadata["name"] not in RARE]
        rare += [one for one in shown if one not in often]
        title = section.__name__.removesuffix("Options")
        lines += ["", f"## {title}{'s' * (title in ('Topic', 'Group', 'Transaction'))}", ""]
        lines += [*_BROKER_HEAD, *map(_option, often)]
    rest = sorted(rare, key=lambda one: one.metadata["name"])
    lines += [*_topic_configs(), *_group_configs(), "", "## Rarely set", ""]
    lines += [*_BROKER_HEAD, *map(_option, rest), *_without_effect()]
    return "\n".join([*lines, *_other_names()]) + "\n"


_BROKER_HEAD = ("| option | meaning |", "|---|---|")
_ORDER = [
    f"{one}Options"
    for one in ("Network", "Storage", "Topic", "Security", "Operations", "Group", "Transaction")
]
_ON_TOPICS = {line.synonym for line in TOPIC_CONFIGS.values() if line.synonym}
RARE = {
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "connections.max.stalled.ms",
    "fetch.max.bytes",
    "group.consumer.assignors",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.max.size",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.enable",
    "log.flush.offset.checkpoint.interval.ms",
    "log.retention.check.interval.ms",
    "log.scrub.bytes.per.second",
    "max.connection.creation.rate",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.incremental.fetch.session.cache.slots",
    "max.request.partition.size.limit",
    "min.incremental.fetch.session.eviction.ms",
    "offset.metadata.max.bytes",
    "offsets.retention.check.interval.ms",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "producer.id.expiration.check.interval.ms",
    "queued.max.request.bytes",
    "queued.max.response.bytes",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.server.max.receive.size",
    "socket.request.max.bytes",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
}
"""Options that stand at the end of the page."""


def _option(declared: Field[Any]) -> str:
    metadata = declared.metadata
    rule = rule_of(declared)
    default = "" if rule.secret else text_of(declared.default)
    meaning = metadata["meaning"] + ("; *dynamic*" if metadata["dynamic"] and not rule.secret else "")
    return f"| `{metadata['name']}`{_values(rule, default)} | {_coded(meaning)} |"


_UNITS = {
    "ms": ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")),
    "minutes": ((1440, "d"),),
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB")),
}


def _readable(name: str, default: str) -> str:
    """A default, and a large one in a larger unit."""
    if default in (str(INT32_MAX), str(INT64_MAX)):
        return f"{default} (no limit)"
    for size, unit in _UNITS.get(name.rpartition(".")[2], ()):
        if default.isdigit() and int(default) >= size and int(default) % size == 0:
            return f"{default} ({int(default) // size} {unit})"
    return default


def _other_names() -> list[str]:
    lines = [
        "",
        "## Other names",
        "",
        "Kafka's other names of an option apply if the option itself is not set.",
    ]
    lines += ["", "| name | option | factor |", "|---|---|---|"]
    for name, (target, factor) in SCALED.items():
        lines.append(f"| `{name}` | `{target}` | {factor or ''} |")
    return lines


def _topic_configs() -> list[str]:
    lines = ["", "## Configs of topics", ""]
    lines += ["The broker's option is the default of topics that do not set the config. All are dynamic.", ""]
    lines += ["| config, broker's option | meaning |", "|---|---|"]
    for name, line in sorted(TOPIC_CONFIGS.items()):
        if not line.no_effect:
            names = f"`{name}`<br>`{line.synonym}`"
            lines.append(f"| {names}{_values(line.rule, text_of(line.default))} | {_coded(line.meaning)} |")
    return lines


def _without_effect() -> list[str]:
    """The configs of topics that do nothing, and the options that are their defaults, by reason."""
    found: dict[str, list[str]] = {}
    for name, line in sorted(TOPIC_CONFIGS.items()):
        if line.no_effect:
            only = f" ({line.rule.choices[0]} only)" if len(line.rule.choices) == 1 else ""
            both = dict.fromkeys((name, *filter(None, [line.synonym])))
            found.setdefault(line.no_effect, []).extend(f"`{one}`{only}" for one in both)
    for section in option_sections().values():
        for one in fields(section):
            if (why := _why_not(one)) and one.metadata["name"] not in _ON_TOPICS:
                found.setdefault(why, []).append(f"`{one.metadata['name']}`")
    lines = ["", "## Without effect", "", "Options and configs of topics that are accepted and stored.", ""]
    lines += ["| names | why |", "|---|---|"]
    return [*lines, *(f"| {', '.join(names)} | {_coded(why)} |" for why, names in found.items())]


def _why_not(declared: Field[Any]) -> str:
    """Why an option has no effect, as its meaning says it; "" if it has one."""
    return str(declared.metadata["meaning"]).partition("; without effect: ")[2]


def _group_configs() -> list[str]:
    lines = ["", "## Configs of groups", "", "Of a single consumer group (KIP-848).", ""]
    lines += ["| config | meaning |", "|---|---|"]
    for name, line in sorted(GROUP_CONFIGS.items()):
        values = f"= `{line.option}`;<br>from `{line.lowest}`<br>to `{line.highest}`"
        lines.append(f"| `{name}`<br>{values} | {_cell(line.meaning)} |")
    return lines


def _values(rule: ConfigRule, default: str) -> str:
    """The lines below a name: default and values."""
    if rule.choices and rule.kind is not ConfigType.LIST:
        return f"<br>{_words(rule.choices, default)}"
    shown = _cell(_readable(rule.name, default))
    said = [f"= {shown if len(shown) < _LONG else shown.replace(',', ',<br>')}"] if default else []
    if rule.hint:
        said.append(_cell(rule.hint))
    elif rule.choices:
        said.append(f"list of {', '.join(rule.choices)}")
    elif rule.kind in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
        unbound = rule.high in (INT32_MAX, INT64_MAX)
        said.append(f"≥{rule.low}" if unbound else f"{rule.low} to {rule.high}")
    elif rule.kind is ConfigType.PASSWORD:
        said.append("secret")
    return f"<br>{'; '.join(said)}" if said else ""


_LONG = 40
"""So many characters do not fit beside a meaning."""
_CODE_OR_PLACEHOLDER = re.compile(r"`[^`]*`|<[a-z][\w.-]*>[\w/]*")


def _cell(text: str) -> str:
    """A text in a table. What stands for a value, as in <transactional.id>/offsets, becomes code: a browser
    takes it for a tag, and does not show it."""
    text = text.replace("|", "\\|").replace("\n", " ")
    return _CODE_OR_PLACEHOLDER.sub(lambda found: f"`{found[0].strip('`')}`", text)


_NAMED = "|".join(
    re.escape(name)
    for name in sorted(
        {
            *(one.name for one in connector_table.TABLE),
            *connector_table.ALIASES,
            *NO_EFFECT,
            *option_table(),
            *TOPIC_CONFIGS,
        },
        key=len,
        reverse=True,
    )
    if re.search(r"\.[a-z]|[a-z][A-Z]", name)
)
_NAMES = re.compile(rf"(?<![\w./<-])(?:{_NAMED})(?:=[A-Za-z_]+)?(?![\w(-]|\.[\w*])|\b[a-z]+(?:\.[a-z]+)*\.\*")


def _coded(text: str) -> str:
    """A text in a table, with the names of options as code."""
    parts = re.split(r"(`[^`]*`|\]\([^)]*\))", _cell(text))
    return "".join(one if one.startswith(("`", "](")) else _NAMES.sub(r"`\g<0>`", one) for one in parts)


def connector_page() -> str:
    """The options of `format("eoslog")` beside those of Spark's connector."""
    lines = [
        "# Options",
        "",
        "Made by `python -m docs.pages`; do not edit.",
        "",
        "Options of Spark's connector and of Kafka's clients mean what they mean there. **Differs** says how"
        " eoslog's do (from Spark 4.2, kafka-clients 3.9). Names are not case-sensitive.",
        "",
        "- Below a name: its type, and its default behind = or in bold.",
        "- The types `int`, `ms` and `bytes` are whole numbers above 0, a `time` is as 30s or 2h. `names` are"
        " separated by commas.",
        "- In JSON, the same key twice is an error; Spark's connector takes the last.",
        "- A value must be valid, even if another option overrides it.",
        "",
        _counts(),
    ]
    for title, wanted in _SECTIONS.items():
        mine = [one for one in connector_table.TABLE if wanted(one)]
        theirs = [one for one in mine if sparks_connector_has(one.name)]
        lines += ["", f"## {title}", "", *_OPTION_HEAD, *map(_connector_option, theirs)]
        if ours := [one for one in mine if one not in theirs]:
            lines += ["", f"### {title}: {NOT_IN_SPARK}", "", *_OPTION_HEAD, *map(_connector_option, ours)]
        lines += _columns() if title == "Writing" else []
    return "\n".join([*lines, *_by_version(), *_connector_others()]) + "\n"


NOT_IN_SPARK = "not in Spark's connector"
_OPTION_HEAD = ("| option | meaning |", "|---|---|")


_COLUMNS = {
    "value": "null is a record without a value: a tombstone in a compacted topic",
    "key": "a record without a key",
    "headers": "no headers",
    "topic": "the row cannot be written; the option `topic` takes precedence over the column",
    "partition": "Kafka's hash of the key, as in Java's producer; without a key the partitions take turns",
    "deadletter": "the row is written. Else it goes to `deadletter.topic`, with this text as the reason",
}
"""What a row without a value in the column becomes."""


def _columns() -> list[str]:
    lines = ["", "### Columns of the rows to write", ""]
    lines += ["Only `value` must be there, and `topic` if the option `topic` is not. Others are ignored.", ""]
    lines += ["| column, and its type | null, or no such column |", "|---|---|"]
    for name, types in SINK_COLUMNS.items():
        said = " or ".join(f"`{kind.simpleString()}`" for kind in types)
        lines.append(f"| `{name}`: {said} | {_COLUMNS[name]} |")
    return lines


def kafkas_options() -> list[str]:
    """Names of all options of Kafka's clients, as Spark takes them."""
    return [f"kafka.{name}" for name in KAFKAS_OPTIONS.read_text().split()]


def sparks_connector_has(name: str) -> bool:
    """Whether an option is one of `format("kafka")` too: its own, its clients', or of any data source."""
    clients = {*kafkas_options()} - {one.name for one in connector_table.TABLE if one.later}
    return name in clients or name in (*SPARKS_OPTIONS, "path", "checkpointLocation", "queryName")


def _counts() -> str:
    """How many options of the others have which answer. A test compares the lists with Kafka's jars."""
    taken = {*(one.name for one in connector_table.TABLE), *connector_table.ALIASES, *FIXED}
    said = []
    for whose, names in (
        ("Kafka 4.3.1's clients have", kafkas_options()),
        ("Spark's connector has", SPARKS_OPTIONS),
    ):
        tables = {"taken": taken, "without effect": NO_EFFECT, "refused": FORBIDDEN}
        counts = {what: sum(name in table for name in names) for what, table in tables.items()}
        counts["unknown"] = len(names) - sum(counts.values())
        parts = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        said.append(f"{whose} {len(names)} options: {parts}.")
    return " ".join(said)


_LOGIN = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
_Use = connector_table.Use


def _of_use(*uses: connector_table.Use) -> Callable[[connector_table.Option], bool]:
    return lambda one: not one.name.startswith(_LOGIN) and one.use in uses


_SECTIONS: dict[str, Callable[[connector_table.Option], bool]] = {
    "Reading": _of_use(_Use.READ, _Use.READ_STREAM, _Use.SOURCE),
    "Writing": _of_use(_Use.WRITE, _Use.WRITE_STREAM, _Use.SINK),
    "Reading and writing": _of_use(_Use.ALL, _Use.SINK | _Use.READ_STREAM),
    "Logins": lambda one: one.name.startswith(_LOGIN),
}
_TYPES = {
    connector_table.OptionType.TEXT: "text",
    connector_table.OptionType.BOOL: "bool",
    connector_table.OptionType.COUNT: "int",
    connector_table.OptionType.LIMIT: "int from 0",
    connector_table.OptionType.MILLIS: "ms",
    connector_table.OptionType.BYTES: "bytes",
    connector_table.OptionType.BUFFER: "bytes from -1",
    connector_table.OptionType.NAMES: "names",
    connector_table.OptionType.PATTERN: "regex",
    connector_table.OptionType.ASSIGNMENT: '`{"topic":[0,1]}`',
    connector_table.OptionType.OFFSETS: 'word or `{"topic":{"0":23,"1":-2}}`',
    connector_table.OptionType.TIME: "ms since 1970",
    connector_table.OptionType.TIMES: '`{"topic":{"0":1700000000000}}`',
    connector_table.OptionType.DURATION: "time",
}
_ONLY = {
    _Use.READ: "Batches. ",
    _Use.WRITE: "Batches. ",
    _Use.READ_STREAM: "Streams. ",
    _Use.WRITE_STREAM: "Streams. ",
}
_TOLD_ON = {
    "filter.push.down": "[Filters](sql.md#filters-are-pushed-down)",
    "timestamp.upper.bound.force.push.down": "[Upper bounds](sql.md#upper-bounds-of-timestamps)",
    "shadow.of": "[Release a new version](shadow.md)",
    "start.accepted": "[Its words](errors/checkpoint.md#the-word-of-startaccepted)",
    "write.token": "[Batch jobs](batch.md)",
    "on.lost.transaction": "[Recover](recovering.md#decided-rows-are-lost)",
    "state.topic": "[Save state](state.md)",
    "decision.topic": "[Hidden topics](cluster.md#internal-topics-that-are-hidden)",
    "progress.log": "[Monitor](monitoring.md#a-line-for-each-micro-batch)",
    "kafka.sasl.jaas.config": "[Logins](logins.md)",
    "kafka.sasl.oauthbearer.token.callback": "[Logins](logins.md#tokens-by-a-function-of-yours)",
}
"""An option -> the page that says how to use it."""


def _connector_option(one: connector_table.Option) -> str:
    said = [_ONLY.get(one.use, "") + one.meaning]
    sparks = f"Spark's is {one.sparks}. " if one.sparks else ""
    if sparks or one.differs:
        said.append(f"**Differs:** {sparks}{one.differs}".rstrip())
    if told := _TOLD_ON.get(one.name):
        said.append(told)
    return f"| `{one.name}`<br>{_type_of(one)} | {_coded(' '.join(said))} |"


def _type_of(one: connector_table.Option) -> str:
    """Type and default, as `ms = 100`; or the words that it takes."""
    default = one.unset or ("" if one.default in (None, "") else _as_typed(one))
    if one.choices:
        return _words(one.choices, default)
    kind = _TYPES.get(one.kind, one.kind.value)
    return f"{kind} = {_cell(default)}" if default else kind


def _words(choices: Iterable[str], default: str) -> str:
    return ", ".join(f"**{one or '(empty)'}**" if one == default else one or "(empty)" for one in choices)


def _as_typed(one: connector_table.Option) -> str:
    """The default as a user would give it: read as the option's value, it is the default again."""
    if one.kind is connector_table.OptionType.DURATION:
        return f"{one.default // 60_000}m"
    return str(one.default).lower()


def _by_version() -> list[str]:
    """What works with which version of PySpark."""
    always = [f"- {one.name}" for one in FEATURES.values() if one.since == OLDEST]
    lines = ["", "## By version of PySpark", "", f"From {OLDEST} on:", "", *always, ""]
    lines += ["| what | from | before |", "|---|---|---|"]
    for one in FEATURES.values():
        if one.since != OLDEST:
            lines.append(f"| {one.name} | {one.since} | {one.before} |")
    return [
        *lines,
        "",
        "[Evidence](evidence.md#versions-of-pyspark) says which tests ran with which version.",
    ]


def _connector_others() -> list[str]:
    lines = ["", "## Other names", "", "| name | option |", "|---|---|"]
    lines += [f"| `{name}` | `{target}` |" for name, target in sorted(connector_table.ALIASES.items())]
    lines += ["", "## As they are", "", "Accepted with these values, refused with any other.", ""]
    lines += [f"- `{name}`: {', '.join(values)}" for name, values in sorted(FIXED.items())]
    lines += ["", "## Without effect", "", "Accepted, as queries have them; they change no result here.", ""]
    lines += ["| options | reason |", "|---|---|", *_by_reason(NO_EFFECT)]
    lines += ["", "## Refused", "", "| options | what to do |", "|---|---|", *_by_reason(FORBIDDEN)]
    return [
        *lines,
        "",
        "Any other name that begins with `kafka.` is refused, with the nearest known name. Other unknown"
        " names are refused only if they nearly match an option: Spark passes its own, too.",
    ]


def _by_reason(reasons: Mapping[str, str]) -> list[str]:
    """A row for each reason, with all names that have it."""
    found: dict[str, list[str]] = {}
    for name in sorted(reasons):
        found.setdefault(reasons[name], []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {_coded(reason)} |" for reason, names in found.items()]


def errors_page() -> str:
    """What the connector makes of each error code of a broker."""
    lines = [
        "# Error codes",
        "",
        "Made by `python -m docs.pages`; do not edit. [Errors](errors/index.md)"
        " says what each *message* means, and the way out.",
        "",
        "Each code has one kind (KIP-360), for every request. *retriable*: the request is sent again,"
        " with pauses, until `kafka.default.api.timeout.ms` (reads, look-ups) or"
        " `kafka.delivery.timeout.ms` (records, transactions) is over. Then the error is"
        " raised. *abortable* and *fatal*: it is raised at once. In a task both kinds abort the task's"
        " transaction, and Spark retries the task with an unused transactional id. On the driver they stop"
        " the query, and no row of the batch is visible. Only after the decision was sent, an error does not"
        " say what happened: then the driver asks (`OutcomeUnknown` if nobody answers).",
        "",
        "## Where a request departs from the kind",
        "",
        "| request | code | what happens | why |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {APIS[api].name} | {code.name} | {_cell(one.outcome.value)} | {_cell(one.why)} |"
        for (api, code), one in DEPARTURES.items()
    ]
    lines += [
        f"| {APIS[ApiKey.PRODUCE].name} | {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name} | sent again while an"
        " earlier batch of the partition is unacknowledged, else raised | the earlier batch was not accepted,"
        " so both are sent again, in order; for the oldest batch it means that acknowledged rows are gone |",
        "",
        "## Codes",
        "",
        "| code | name | kind | meaning | what to do |",
        "|---|---|---|---|---|",
    ]
    for code in filter(None, ErrorCode):
        cells = (str(int(code)), code.name, code.kind.value, code.meaning, ADVICE.get(code, ""))
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


WIDTH = 80
"""Of the lines of options on the page: what a phone can scroll."""
_HOW_TO = {
    "broker": "operating.md",
    "acls": "security.md",
    "users": "security.md",
    "log": "operating.md",
    "backup": "operating.md",
    "produce": "quickstart.md",
    "consume": "quickstart.md",
    "top": "monitoring.md",
    "exporter": "monitoring.md",
    "doctor": "starts.md",
    "rehearse": "rehearse.md",
    "checkpoint": "checkpoints.md",
    "shadow": "shadow.md",
    "audit": "audit.md",
    "prove": "audit.md",
}
"""A command -> the page that has examples of it."""
_FOR = {
    "queries": ("doctor", "rehearse", "checkpoint", "shadow", "audit", "prove"),
    "any cluster": (
        "topics",
        "groups",
        "transactions",
        "acls",
        "users",
        "produce",
        "consume",
        "top",
        "exporter",
    ),
    "the bundled broker": ("broker", "log", "backup"),
}


def commands_page() -> str:
    """The help of every command."""
    lines = [
        "# Commands",
        "",
        "Made from `--help` by `python -m docs.pages`; do not edit.",
        "",
        "Exit status: 0 done, 1 something failed, 2 the command line is wrong.",
        "",
        "| for | commands |",
        "|---|---|",
    ]
    commands = dict(_commands(command_line))
    assert {*commands} == {name for names in _FOR.values() for name in names}
    for purpose, names in _FOR.items():
        lines.append(f"| {purpose} | {', '.join(f'[{name}](#eoslog-{name})' for name in names)} |")
    shared = _shared_options()
    lines += [
        "",
        "## Options of most commands",
        "",
        "Commands that ask a cluster have all of these. Others say which, after *Also*; all have `--help`.",
        "",
        *_block(shared),
    ]
    for name, command in commands.items():
        lines += _help(f"eoslog {name}", command, "##", shared)
    return "\n".join(lines) + "\n"


_MOST = 20
"""So many commands have an option that is told once."""
_HELP = ("--help", "Show this message and exit.")
_Told = tuple[str, str]
"""An option, and what help says of it."""


def _options(command: click.Command) -> Iterator[tuple[click.Option, _Told]]:
    """The options that help shows of a command, and what it says of each."""
    context = click.Context(command)
    for option in command.get_params(context):
        if isinstance(option, click.Option) and (told := option.get_help_record(context)) is not None:
            name, text = told
            yield option, (name.replace("INTEGER RANGE", "N"), text.replace("  [", " ["))


def _commands(command: click.Command) -> list[tuple[str, click.Command]]:
    """The commands of a group, by name; none of another command."""
    if not isinstance(command, click.Group):
        return []
    context = click.Context(command)
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [(name, one) for name, one in found if one is not None]


def _all_below(command: click.Command) -> Iterator[click.Command]:
    yield command
    for _, below in _commands(command):
        yield from _all_below(below)


def _shared_options() -> list[_Told]:
    """The options of most commands, and what help says of each."""
    counts = Counter(told for command in _all_below(command_line) for _, told in _options(command))
    return [told for told, commands in counts.most_common() if commands > _MOST and told != _HELP]


_UNBROKEN = "\N{NON-BREAKING HYPHEN}"


def _block(told: Iterable[_Told], usage: str = "", also: str = "") -> list[str]:
    """Options as `--help` has them, below the usage."""
    formatter = click.HelpFormatter(width=WIDTH)
    if rows := [(name, text.replace("-", _UNBROKEN)) for name, text in told]:
        formatter.write_dl(rows, col_max=30)
    parts = (usage, formatter.getvalue().replace(_UNBROKEN, "-").rstrip(), also)
    return ["```text", *"\n\n".join(filter(None, parts)).splitlines(), "```"] if any(parts) else []


def _help(
    name: str, command: click.Command, heading: str, shared: Sequence[_Told], group: Sequence[_Told] = ()
) -> Iterator[str]:
    """A section for the command, and one for each command below it.

    What is `shared` by most, or by several of its `group`, is told above."""
    below = _commands(command)
    usage = command.get_usage(click.Context(command, info_name=name)).removeprefix("Usage: ")
    usage = " ".join(usage.replace("[OPTIONS]", "").split())
    yield from ("", f"{heading} {name}" if heading == "##" else f"{heading} `{usage}`")
    said = [" ".join(one.split()) for one in (command.help or "").split("\n\n")]
    if page := _HOW_TO.get(name.removeprefix("eoslog ")):
        said.append(f"[{_title(page)}]({page})")
    for paragraph in said:
        yield from ("", _OPTION_NAME.sub(r"`\g<0>`", paragraph))
    options = [told for _, told in _options(command) if told != _HELP]
    if below:
        counts = Counter(told for _, one in below for _, told in _options(one))
        several = [told for told, many in counts.items() if many > 1 and told not in (*shared, _HELP)]
        if several:
            yield from ("", "Options of several:", "", *_block(several))
        for called, one in below:
            yield from _help(f"{name} {called}", one, "###", shared, several)
        return
    also = [one for one in shared if one in options]
    also = [] if len(also) == len(shared) else also
    named = [_OPTION_NAME.findall(told)[0] for told, _ in also]
    of_group = [_OPTION_NAME.findall(one[0])[0] for one in group if one in options]
    named += ["all above"] if len(of_group) == len(group) > 2 else of_group
    own = [told for told in options if told not in shared and told not in group]
    block = _block(
        own, usage if heading == "##" and usage != name else "", f"Also: {', '.join(named)}" if named else ""
    )
    yield from ["", *block] if block else []
    if name == "eoslog broker":
        yield from ("", "The names for `--config` are the [options of the broker](options.md).")


_OPTION_NAME = re.compile(r"--[a-z][a-z-]*")


def _title(page: str) -> str:
    found = re.search(r"^# (.*?)(?: \{.*)?$", (HERE / page).read_text(), re.MULTILINE)
    assert found is not None, page
    return found[1]


_MODULES = {
    "avro": "Avro with a schema registry, for `mapInArrow`. [Examples](examples.md) has a script.",
    "checkpoint": "[A lost checkpoint](state.md) is written again by a program.",
    "doctor": "What `eoslog doctor` finds, of [a running session](starts.md#what-is-slow-or-would-fail).",
    "errors": "The classes of [errors](errors/index.md).",
    "fanout": "A function for `foreachBatch`: [each batch once](fanout.md) in tables and topics.",
    "metrics": "Metrics of a program's queries: [monitoring](monitoring.md).",
    "shadow": "[A shadow](shadow.md#with-another-state) takes over in a notebook.",
    "testing": "A broker with faults for [your tests](testing-pipelines.md).",
}
"""What a module of `eoslog.__all__` is for."""
_RETURNED = {"ErrorCode", "Fault", "Faults", "Served", "Watch"}
"""Classes that users do not make."""
_ONLY_MADE = {"Merge"}
"""Classes that users make, and do not call."""


def api_page() -> str:
    """What is public of Python: `eoslog.__all__`, and `__all__` of the modules that it names."""
    lines = [
        "# Python API",
        "",
        "Made by `python -m docs.pages`; do not edit.",
        "",
        "What has a heading here is public, as are the classes of `eoslog.errors`; everything else may change"
        " without notice. Sources and sinks are"
        ' `format("eoslog")` with [options](connector-options.md). Audits and take-overs are'
        " [commands](commands.md) with `--json`.",
        "",
        "## eoslog",
        *_function("register", eoslog.register),
    ]
    for name in eoslog.__all__:
        if name in _MODULES:
            module = import_module(f"eoslog.{name}")
            lines += ["", f"## eoslog.{name}", "", _MODULES[name]]
            if name == "errors":  # pages of their own have what each means
                lines[-1] += f" They are {', '.join(f'`{one}`' for one in module.__all__)}."
                continue
            for one in module.__all__:
                lines += _told(one, getattr(module, one))
    return "\n".join(lines) + "\n"


def _told(name: str, what: Any) -> list[str]:
    if not inspect.isclass(what):
        return _function(name, what) if callable(what) else ["", f"### {name}", "", f"`{what}`"]
    if issubclass(what, Exception):
        return ["", f"### {name}", "", *_doc(what)]
    lines = ["", f"### {name}", "", *_doc(what)] if name in _RETURNED else _function(name, what)
    for attribute, found in vars(what).items():
        if (
            attribute.startswith("_")
            or name in _ONLY_MADE
            or not (callable(found) or isinstance(found, property | cached_property))
        ):
            continue
        signature = _signature(found, method=True) if callable(found) else ""
        lines += ["", f"**`{attribute}{signature}`**", "", *_doc(found)]
    return lines


def _function(name: str, what: Any) -> list[str]:
    return ["", f"### {name}", "", f"**`{name}{_signature(what)}`**", "", *_doc(what)]


class _Plain(str):
    """An annotation, which a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(what: Any, *, method: bool = False) -> str:
    found = inspect.signature(what)
    plain = [_parameter(one) for one in list(found.parameters.values())[method:]]
    returned = found.return_annotation
    made = inspect.isclass(what) or returned in (found.empty, None, "None")
    return str(
        found.replace(parameters=plain, return_annotation=found.empty if made else _Plain(_text(returned)))
    )


def _parameter(one: inspect.Parameter) -> inspect.Parameter:
    """As a signature shows it: without what its default tells of its type."""
    if isinstance(one.default, signal.Signals):
        return one.replace(default=_Plain(one.default.name), annotation=one.empty)
    if one.annotation is one.empty or isinstance(one.default, bool | int | float | str):
        return one.replace(annotation=one.empty)
    text = _text(one.annotation)
    return one.replace(annotation=_Plain(text.removesuffix(" | None") if one.default is None else text))


def _text(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", inspect.formatannotation(annotation))


def _doc(what: Any) -> list[str]:
    """The docstring. Its indented lines are code."""
    lines: list[str] = []
    code = False
    for line in (inspect.getdoc(what) or "").splitlines():
        if line.strip() and line.startswith("    ") is not code:
            code = not code
            lines.append("```text" if code else "```")
        lines.append(line.removeprefix("    ") if code else line)
    return [*lines, "```"] if code else lines


PAGES = {
    "apis.md": apis_page,
    "commands.md": commands_page,
    "options.md": options_page,
    "connector-options.md": connector_page,
    "connector-errors.md": errors_page,
    "python-api.md": api_page,
}


def main(folder: Path = HERE) -> None:
    """Write the pages into a folder."""
    for name, page in PAGES.items():
        (folder / name).write_text(page())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
