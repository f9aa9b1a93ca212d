"""Draws a history: what people may do to two or three queries over shared topics, at random.

A quarter of the histories is short: a query is killed around its second decision, or not, and few acts
follow, of those that change what is remembered of it. Of the others half draw everything from everything; the
other half begin with a theme, a few acts that people do together (a hand-over, a restore, a rename): what
takes three acts in a row is seldom drawn. A few histories are of a fan-out and its tables.
"""

from random import Random
from typing import Any

from tests.histories.shapes import FILES, SINKS, SOURCES, Act

STARTS = ("earliest", "latest", "committed")
GUARANTEES = ("exactly_once", "at_least_once", "at_most_once")
IDS = ("x", "y", None)
GROUPS = ("g", "h", None)
ADDED = ("", "", "", "latest", "0")
"""Where a topic begins that is added."""
SOURCE_NAMES = ("orders", "sales", "returns")
MOST_STEPS = 110
"""Of one trigger of two tasks: requests, answers, lines of Spark's logs."""


def history(random: Random) -> list[Act]:
    """Acts for World.play."""
    if random.random() < _TABLED:
        return tabled(random)
    if random.random() < _MOVED:
        return moved(random)
    if random.random() < _SHORT:
        return _short(random)
    names = ["A", "B", "C"][: random.choice((2, 2, 3))]
    acts: list[Act] = [("cluster", random.choice((2, 2, 2, 1)), random.random() < 0.6)]
    alike = random.random() < 0.5
    acts += [("query", name, _query(random, name, alike)) for name in names]
    acts += [("living", name, True) for name in names if random.random() < 0.5]
    acts.append(("produce", "in", random.randint(2, 6)))
    acts.append(("produce", FILES, random.randint(2, 6)))
    if random.random() < 0.5:
        acts.append(("produce", "in2", random.randint(2, 6)))
    if random.random() < 0.5:
        acts += random.choice(_THEMES)(random, names)
    for _ in range(random.randint(2, 9)):
        acts += _act(random, names)
    return acts


_TABLED = 0.02
"""The share of histories of a fan-out's tables, of which each takes as long as three others."""
_MOVED = 0.04
"""The share of histories of a query that moves to another cluster."""
_SHORT = 0.25
"""The share of short histories."""
_QUERIES: tuple[dict[str, str], ...] = (
    {}, {"id": "x"}, {"id": "x", "kafka.group.id": "g"}, {"kafka.group.id": "g"}, {"in": FILES},
    {"token": "job"}, {"each": "yes"}, {"id": "x", "state": "1"},
    {"id": "x", "kafka.group.id": "g", "state": "2"},
    {"rows": "yes"}, {"rows": "yes", "id": "x"}, {"in": "in,in2", "union": "yes"},
    {"in": "in,in2", "union": "yes", "id": "x"},
    {"token": "job", "second": "out2"}, {"each": "yes", "second": "out2"},
    {"deadletter.topic": "out2"}, {"deadletter.topic": "out2", "id": "x"},
    {"in": "in,in2", "id": "x"}, {"id": "x", "processing.guarantee": "at_least_once", "kafka.group.id": "g"},
)  # fmt: skip
_MOMENTS = (
    None, ("kill", ("spark: before commits", 1)), ("kill", ("commit: after END_TXN", 1)),
    ("kill", ("task: after INIT_PRODUCER_ID", 1)),
)  # fmt: skip
"""No kill; decided, and not noted; decided, and some rows are open; not decided."""
_FORGETTING: tuple[Act, ...] = (
    ("undo", "A"), ("add", "A", "in2"), ("edit", "A", -1), ("edit", "A", 1),
    ("fork", "B", "A", True), ("fork", "B", "A", False),
    ("forget", True, True, False), ("forget", False, True, False), ("forget", True, False, False),
    ("forget", True, True, True), ("blackout", "A", 1), ("blackout", "A", 2), ("restore", "A"),
    ("lost", "A", "committed"), ("lost", "A", "latest"), ("rebuilt", "A"), ("restate", "A"),
    ("anew", "A", "committed"), ("set", "A", "id", "y"), ("set", "A", "id", None),
    ("set", "A", "topic", "out2"), ("set", "A", "processing.guarantee", "at_least_once"),
    ("set", "A", "processing.guarantee", "exactly_once"),
    ("delete", "out"), ("cut", "out"), ("restored",), ("sparkday", "A"), ("meddle", "g", True),
    ("out", "A", "in2"), ("back", "A"), ("run", "A", 1), ("run", "A", 1, _MOMENTS[1]), ("run", "B", 1),
    ("tried", "A", "out2", 1), ("delete", "in"), ("cut", "in"), ("follow", "B", "A"),
    ("compact", "out", 1, True), ("compact", "out", 1, False),
)  # fmt: skip


def _short(random: Random) -> list[Act]:
    query = random.choice(_QUERIES)
    source = query.get("in", "in").partition(",")[0]
    return [
        ("query", "A", dict(query)), ("query", "B", {}), ("produce", source, 3), ("produce", "in2", 2),
        ("run", "A", 1),
        ("backup", "A"), ("keep", "out"), ("keep", "in"), ("snapshot",), ("produce", source, 3),
        ("run", "A", 1, random.choice(_MOMENTS)),
        *random.choices(_FORGETTING, k=random.choice((2, 3, 3, 4))),
    ]  # fmt: skip


_TABLES = ("delta", "iceberg", "delta,iceberg", "delta,delta2")
_TABLE_MOMENTS = (
    None, ("kill", ("spark: before table", 1)), ("kill", ("spark: after table", 1)),
    ("kill", ("spark: after table", 2)), ("kill", ("commit: after END_TXN", 1)),
    ("kill", ("spark: before commits", 1)), ("hold", ("spark: before table", 1)),
)  # fmt: skip
"""When the driver of a fan-out is killed, or stands still."""
_TABLE_ACTS = (
    ("restore", 1), ("restore", 2), ("restore", 3), ("replace", 0), ("clean", 0), ("compact", 0),
    ("others", 0), ("delete", 2), ("copy", 0), ("back", 0), ("drop", 0), ("vacuum", 0),
)  # fmt: skip
_BESIDE_TABLES: tuple[Act, ...] = (
    ("restore", "A"), ("blackout", "A", 1), ("blackout", "A", 2), ("anew", "A", "earliest"),
    ("renamefan", "A", "fan2"), ("renamefan", "A", "fan"), ("backup", "A"), ("run", "B", 1),
    ("delete", "in"), ("cut", "in"), ("forget", True, True, False), ("delete", "out"), ("restored",),
    ("set", "A", "id", "y"), ("out", "A", "in2"), ("produce", "in", 2),
)  # fmt: skip


def tabled(random: Random) -> list[Act]:
    """A history of a fan-out and its tables."""
    tables = random.choice(_TABLES)
    names = tables.split(",")
    acts: list[Act] = [
        ("query", "A", {"tables": tables, "in": random.choice(("in", "in", "in,in2", FILES))}),
        ("query", "B", {"tables": names[-1], "id": "b"} if random.random() < 0.5 else {}),
        ("produce", "in", 3), ("produce", FILES, 3), ("run", "A", random.choice((1, 1, 2))),
        *(("table", name, "copy", 0) for name in names), ("backup", "A"), ("keep", "in"), ("snapshot",),
        ("produce", "in", 3), ("produce", FILES, 3), *_table_run(random),
    ]  # fmt: skip
    for _ in range(random.choice((1, 2, 2, 3, 4))):
        draw = random.random()
        if draw < 0.5:
            acts.append(("table", random.choice(names), *random.choice(_TABLE_ACTS)))
        elif draw < 0.8:
            acts.append(random.choice(_BESIDE_TABLES))
        else:
            acts += [("produce", "in", 2), *_table_run(random)]
    return acts


def _table_run(random: Random) -> list[Act]:
    moment = random.choice(_TABLE_MOMENTS)
    if moment is not None and moment[0] == "hold":
        return [("run", "A", 1, moment), ("run", "A", random.choice((1, 2))), ("wake",)]
    return [("run", "A", 1, moment)]


_MOVED_QUERIES: tuple[dict[str, str], ...] = (
    {"id": "x"}, {"id": "x", "kafka.group.id": "g"}, {"id": "x", "kafka.group.id": "g"}, {},
    {"in": "in,in2", "id": "x"}, {"in": "in,in2", "id": "x", "kafka.group.id": "g"},
    {"in": "in,in2", "kafka.group.id": "g"}, {"in": "in,in2", "union": "yes", "id": "x"},
    {"rows": "yes", "id": "x"}, {"deadletter.topic": "out2", "id": "x"}, {"named": "orders", "id": "x"},
    {"token": "job"}, {"each": "yes"}, {"id": "x", "state": "1"},
    {"id": "x", "processing.guarantee": "at_least_once", "kafka.group.id": "g"},
)  # fmt: skip
_MOVE_KILLS = (
    *(None,) * 12, ("commit: before END_TXN", 1), ("commit: after END_TXN", 1), ("commit: after END_TXN", 2),
    ("commit: after TXN_OFFSET_COMMIT", 1),
)  # fmt: skip
"""At which of its steps the command is killed."""
_AROUND_A_MOVE: tuple[Act, ...] = (
    ("restore", "A"), ("restore", "A"), ("restore", "A"), ("backup", "A"), ("unmoved", "A"),
    ("unmoved", "A"), ("wrong", "A"), ("wrong", "A"), ("undo", "A"), ("edit", "A", -1), ("edit", "A", 1),
    ("forget", True, True, False), ("forget", True, True, False), ("forget", True, True, False, False),
    ("blackout", "A", 1), ("blackout", "A", 2), ("rebuilt", "A"), ("restate", "A"),
    ("lost", "A", "committed"), ("anew", "A", "committed"), ("add", "A", "in2"), ("back", "A"),
    ("add", "A", "in2", "latest"),
    ("out", "A", "in2"), ("set", "A", "id", "y"), ("set", "A", "topic", "out2"),
    ("fork", "B", "A", True), ("fork", "B", "A", False), ("follow", "B", "A"), ("run", "B", 1),
    ("delete", "in"), ("grow", "in"), ("keep", "in"), ("cut", "in"), ("elsewhere",), ("elsewhere",),
    ("wait", 1000),
)  # fmt: skip


def moved(random: Random) -> list[Act]:
    """A history of a query that goes on on another cluster, to which a mirror copies its topics."""
    query = random.choice(_MOVED_QUERIES)
    source = query.get("in", "in").partition(",")[0]
    acts: list[Act] = [
        ("cluster", random.choice((2, 2, 1)), random.random() < 0.6), ("query", "A", dict(query)),
        ("query", "B", {}), ("produce", source, 3), ("produce", "in2", 3), ("run", "A", 1),
    ]  # fmt: skip
    shift = random.choice((0, 0, 3))
    early = random.random() < 0.3
    acts += [_mirrored(random, shift)] if early else []
    acts += [("out", "A", "in2")] if random.random() < 0.4 else []
    acts += [("produce", source, 3), ("backup", "A"), ("run", "A", 1, random.choice(_MOMENTS))]
    acts += [("produce", source, random.choice((2, 8)))] * random.choice((0, 1, 1, 4))
    acts.append(_mirrored(random, shift))
    if random.random() < 0.3:  # producers write there already
        acts += [("elsewhere",), ("produce", source, 2)]
    acts.append(("move", "A", random.choice(_MOVE_KILLS)))
    if random.random() < 0.4:
        return acts + _copies_after_a_move(random)
    for _ in range(random.choice((1, 2, 3, 4, 5))):
        draw = random.random()
        if draw < 0.35:
            acts += [_produced(random), ("run", "A", random.choice((1, 2)), random.choice(_MOMENTS))]
        elif draw < 0.5:
            acts += [_mirrored(random, 0), ("move", "A", random.choice(_MOVE_KILLS))]
        else:
            acts.append(random.choice(_AROUND_A_MOVE))
    return acts


def _copies_after_a_move(random: Random) -> list[Act]:
    """Which copy of the checkpoint is the right one, and what does the new cluster know?"""
    more: list[Act] = [("produce", "in", 2), ("produce", "in2", 1), ("run", "A", random.choice((1, 2)))]
    forgets: list[Act] = random.choice(([], [("forget", True, True, False)]))
    return random.choice((
        [*more, *more, *forgets, ("restore", "A"), ("move", "A", None), ("run", "A", 1)],
        [*more, *forgets, ("restore", "A")],
        [("backup", "A"), *more, *more, *forgets, ("restore", "A"), *more],
        [("unmoved", "A"), *more, ("mirror", 0, 0), *forgets, ("wrong", "A"), *more],
        [*more, ("mirror", 0, 0), ("move", "A", None), *more, *forgets, ("wrong", "A"), *more],
    ))  # fmt: skip


def _mirrored(random: Random, shift: int) -> Act:
    return ("mirror", random.choice((0, 0, 0, 0, 1, 2)), shift, random.random() < 0.5)


_OTHER = {"out": "out2", "out2": "out"}


def _query(random: Random, name: str, alike: bool) -> dict[str, str]:
    given: dict[str, str | None] = {
        "in": random.choice(("in", "in", "in", "in2", "in,in2", FILES)),
        "out": random.choice(("out", "out", "out2")),
        "id": name if not alike else random.choice(IDS),
        "kafka.group.id": random.choice((f"group-{name}", None)) if not alike else random.choice(GROUPS),
        "starting": random.choice(("earliest", "earliest", "latest")),
        "two.phase.commit": random.choice(("auto", "auto", "false")),
    }
    if random.random() < 0.15:
        given["processing.guarantee"] = random.choice(GUARANTEES)
    if random.random() < 0.1:
        given["told"] = "no"
    if random.random() < 0.15:
        token = random.choice(("job", f"job-{name}", None))
        given |= {"token": token, "each": "no" if token else "yes", "kafka.group.id": None}
        if random.random() < 0.4:
            given["second"] = _OTHER[str(given["out"])]
    if random.random() < 0.2:
        given["most"] = "3"
    if random.random() < 0.5:
        given["small"] = "0"
    elif random.random() < 0.5:
        given["ahead"] = "yes"
    if random.random() < 0.2 and given["in"] != FILES:
        given["named"] = "orders"
    if random.random() < 0.2:
        given["kafka.transaction.timeout.ms"] = random.choice(("20000", "60000"))
    if random.random() < 0.1 and not given.get("each"):
        given["rows"] = "yes"
    if random.random() < 0.1 and not given.get("each") and not given.get("rows"):
        given["deadletter.topic"] = _OTHER[str(given["out"])]
    if given["in"] == "in,in2" and "named" not in given and random.random() < 0.5:
        given["union"] = "yes"
    stateless = given.get("each") or given.get("processing.guarantee") or given["in"] == FILES
    if not stateless and given["id"] is not None and random.random() < 0.15:
        given["state"] = random.choice(("1", "2", "3"))
    if given.get("each") and given.get("processing.guarantee"):
        del given["processing.guarantee"]
    return {key: value for key, value in given.items() if value is not None}


_PLACES = (
    "spark: after offsets", "source: after METADATA", "plan: before OFFSET_FETCH",
    "plan: after INIT_PRODUCER_ID",
    "plan: after OFFSET_FETCH", "task: after INIT_PRODUCER_ID", "task: after PRODUCE",
    "task: before OFFSET_FETCH",
    "commit: before INIT_PRODUCER_ID", "commit: after INIT_PRODUCER_ID", "spark: between writes",
    "commit: before TXN_OFFSET_COMMIT",
    "commit: after TXN_OFFSET_COMMIT", "commit: before END_TXN", "commit: after END_TXN",
    "plan: before END_TXN",
    "plan: after END_TXN", "spark: before commits", "spark: after commits",
)  # fmt: skip
"""Where something is about to change, or just has: half of all strikes come here."""


def _place(random: Random) -> int | tuple[str, int]:
    if random.random() < 0.5:
        return random.randint(1, MOST_STEPS)
    return random.choice(_PLACES), random.choice((1, 1, 2, 3))


def _strike(random: Random) -> tuple[Any, ...] | None:
    draw, at = random.random(), _place(random)
    if draw < 0.35:
        return None
    if draw < 0.65:
        return ("kill", at)
    if draw < 0.72:
        return ("task", at, random.randint(0, 12))
    if draw < 0.75:
        return ("copy", 0, random.randint(0, 1))
    return ("stop", at, random.randint(0, 12)) if draw < 0.9 else ("hold", at)


def _runs(random: Random, name: str, sure: bool = False) -> list[Act]:
    strike = None if sure else _strike(random)
    acts: list[Act] = [("run", name, random.choice((1, 2, 3)), strike)]
    if strike is not None and strike[0] == "hold":
        return acts
    return acts


def _act(random: Random, names: list[str]) -> list[Act]:
    name, other = random.choice(names), random.choice(names)
    topic, sink = random.choice(list(SOURCES)), random.choice(list(SINKS))
    replicated = random.choice((topic, topic, sink))
    draw = random.choices(_ACTS, [weight for weight, _ in _WEIGHTS])[0]
    if draw == "run":
        strike = _strike(random)
        acts: list[Act] = [("run", name, random.choice((1, 2, 3)), strike)]
        if strike is not None and strike[0] == "hold":
            for _ in range(random.randint(1, 3)):
                acts += _act(random, names)
            acts.append(("wake",))
        return acts
    if draw == "write":
        token = random.choice(("job-0", "t1", "t1", None))
        ident = random.choice((None, None, "x"))
        return [("write", token, ident, sink, random.choice(("r1", "r2")), _strike(random))]
    if draw == "set":
        return [("set", name, *_option(random))]
    choices: dict[str, Act] = {
        "produce": ("produce", topic, random.randint(1, 6)),
        "now": ("now", name),
        "stop": ("stop", name),
        "kill": ("kill", name),
        "anew": ("anew", name, random.choice(STARTS)),
        "follow": ("follow", name, other),
        "fork": ("fork", name, other, random.random() < 0.5),
        "backup": ("backup", name),
        "restore": ("restore", name),
        "delete": ("delete", random.choice((topic, sink))),
        "drop": ("drop", topic),
        "grow": ("grow", random.choice((topic, sink))),
        "snapshot": ("snapshot",),
        "restored": ("restored",),
        "keep": ("keep", replicated),
        "cut": ("cut", replicated),
        "restart": ("restart",),
        "wait": ("wait", random.choice((3, 15, 70, 1000))),
        "cluster": ("cluster", random.choice((1, 2)), random.random() < 0.5),
        "says": ("says", name, random.choice(("earliest", "latest"))),
        "rename": ("rename", name, random.choice(SOURCE_NAMES)),
        "living": ("living", name, random.random() < 0.5),
        "tried": ("tried", name, sink, random.choice((1, 2))),
        "meddle": ("meddle", random.choice(("g", "h", f"group-{name}")), random.random() < 0.5),
        "out": ("out", name, topic),
        "back": ("back", name),
        "blackout": ("blackout", name, random.choice((1, 2))),
        "forget": ("forget", *(random.random() < 0.5 for _ in range(3))),
        "compact": ("compact", sink, random.choice((1, 1, 2)), random.random() < 0.5),
        "stranger": ("stranger", sink),
        "sparkday": ("sparkday", name),
        "files": ("produce", FILES, random.randint(1, 4)),
        "lost": ("lost", name, random.choice(STARTS)),
        "edit": ("edit", name, random.choice((-3, -1, 1, 2))),
        "rebuilt": ("rebuilt", name),
        "restate": ("restate", name),
        "add": ("add", name, random.choice(list(SOURCES)), random.choice(ADDED)),
        "undo": ("undo", name),
    }
    return [choices[draw]]


_WEIGHTS = (
    (40, "run"), (20, "produce"), (3, "now"), (4, "stop"), (4, "kill"), (6, "anew"), (5, "follow"),
    (4, "fork"), (4, "backup"), (4, "restore"), (3, "delete"), (1, "drop"), (2, "grow"), (3, "snapshot"),
    (2, "restored"), (2, "keep"), (2, "cut"), (2, "restart"), (4, "wait"), (1, "cluster"), (8, "write"),
    (6, "set"), (3, "says"), (2, "rename"), (3, "living"), (3, "tried"), (3, "meddle"), (2, "out"),
    (3, "back"), (3, "blackout"), (2, "forget"), (2, "compact"), (2, "stranger"),
    (2, "sparkday"), (4, "files"), (3, "lost"),
    (3, "edit"), (3, "rebuilt"), (3, "restate"), (2, "add"), (2, "undo"),
)  # fmt: skip
_ACTS = [name for _, name in _WEIGHTS]


def _option(random: Random) -> tuple[str, str | None]:
    option, values = random.choice((
        ("id", ("x", "y", "z", None)),
        ("kafka.group.id", ("g", "h", None)),
        ("topic", tuple(SINKS)),
        ("deadletter.topic", ("out2", "out2", None)),
        ("processing.guarantee", GUARANTEES),
        ("two.phase.commit", ("auto", "false")),
        ("told", ("yes", "no")),
        ("checkpoint.sync", ("true", "false")),
        ("most", ("1", "2", "6")),
    ))  # fmt: skip
    return option, random.choice(values)


# -- acts that belong together ------------------------------------------------------------------


def _produced(random: Random) -> Act:
    return ("produce", random.choice(("in", "in", "in2")), random.randint(2, 6))


def _handed_over(random: Random, names: list[str]) -> list[Act]:
    a, b = random.sample(names, 2)
    more: Act = ("produce", "in", random.randint(2, 6))
    return [
        ("run", a, 2), more, ("follow", b, a), ("run", b, 1, ("hold", _place(random))), more,
        ("run", a, random.choice((1, 2))), ("wake",), ("run", b, 1),
    ]  # fmt: skip


def _taken_over(random: Random, names: list[str]) -> list[Act]:
    a, b = random.sample(names, 2)
    group = ("kafka.group.id", "g")
    return [
        ("set", a, *group), ("set", b, *group), ("run", a, 2), _produced(random), ("run", b, 2),
        ("anew", random.choice((a, b)), "committed"), _produced(random), ("run", a, 1), ("run", b, 1),
    ]  # fmt: skip


def _renamed(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    option = random.choice((("id", "z"), ("topic", "out2"), ("processing.guarantee", "at_least_once"), None))
    changed: list[Act] = [("set", a, *option)] if option else []
    if random.random() < 0.3 and option:
        changed += [
            ("run", a, 1),
            ("set", a, option[0], {"id": "x", "topic": "out"}.get(option[0], "exactly_once")),
        ]
    return [
        ("run", a, random.choice((0, 1))), _produced(random), ("run", a, 1, ("kill", _place(random))),
        *changed,
        ("run", a, 2), _produced(random), ("run", a, 2),
    ]  # fmt: skip


def _restored(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    blind: list[Act] = [("set", a, "id", "x"), ("set", a, "told", "no")] if random.random() < 0.3 else []
    return [
        *blind, ("run", a, 1), ("backup", a), _produced(random),
        ("run", a, random.choice((1, 2)), _late(random)),
        ("restore", a), _produced(random), ("run", a, 2),
    ]  # fmt: skip


def _late(random: Random) -> tuple[Any, ...] | None:
    return ("kill", _place(random)) if random.random() < 0.4 else None


def _tokens(random: Random, names: list[str]) -> list[Act]:
    token = random.choice(("job-0", "t1", None))
    strike = _strike(random)
    rows, sink = random.choice(("r1", "r2")), random.choice(list(SINKS))
    return [
        ("write", token, None, "out", "r1", strike), ("write", token, None, sink, rows, None),
        ("produce", "in", 3),
    ]  # fmt: skip


def _broker_restored(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    return [
        _produced(random), ("run", a, 1), ("produce", "in", 8), ("produce", "in2", 8), ("snapshot",),
        ("run", a, random.choice((1, 2, 3)), _late(random)), ("restored",), _produced(random),
        ("run", a, random.choice((1, 2))),
    ]  # fmt: skip


def _source_cut(random: Random, names: list[str]) -> list[Act]:
    a, topic = random.choice(names), random.choice(list(SOURCES))
    return [
        ("run", a, 1), ("keep", topic), ("produce", topic, random.randint(1, 5)),
        ("run", a, 1, _late(random)),
        *([("stop", a)] if random.random() < 0.7 else []), ("cut", topic),
        ("produce", topic, random.randint(1, 12)),
        ("run", a, 2),
    ]  # fmt: skip


def _sink_cut(random: Random, names: list[str]) -> list[Act]:
    a, b = random.sample(names, 2)
    sink = random.choice(list(SINKS))
    between: list[Act] = random.choice((
        [("follow", b, a)], [("anew", a, "committed")], [("lost", a, random.choice(STARTS))],
        [("edit", a, random.choice((-3, -1, 1, 2)))], [("set", a, *_option(random))], [("run", b, 1)],
        [("rebuilt", a)],
        [("write", None, "x", sink, "r1", None)], [("produce", "in", 3), ("run", a, 1, _late(random))], [],
    ))  # fmt: skip
    cut: list[Act] = [("cut", sink)]
    return [
        ("set", a, "topic", sink), ("run", a, 1), ("keep", sink), _produced(random),
        ("run", a, 1, _late(random)),
        *random.choice((cut + between, between + cut, [*between, ("run", random.choice((a, b)), 1), *cut])),
        *([_produced(random)] * random.choice((0, 1))), ("run", random.choice((a, b)), 2),
    ]  # fmt: skip


def _handed_back(random: Random, names: list[str]) -> list[Act]:
    a, b = random.sample(names, 2)
    return [
        ("set", a, "kafka.group.id", "g"), ("set", a, "id", random.choice(("x", None))), ("run", a, 2),
        _produced(random), ("follow", b, a), ("run", b, 3), _produced(random), ("run", a, 2), ("run", b, 1),
    ]  # fmt: skip


def _joined(random: Random, names: list[str]) -> list[Act]:
    a, b = random.sample(names, 2)
    weaker: list[Act] = [("set", random.choice((a, b)), "processing.guarantee", "at_least_once")]
    return [
        *(weaker if random.random() < 0.4 else []),
        ("set", a, "kafka.group.id", "g"), ("run", a, 2), ("run", b, 2), ("set", b, "kafka.group.id", "g"),
        ("produce", "in", 4), ("produce", "in2", 4), ("run", b, 1), ("anew", a, "committed"),
        _produced(random), ("run", a, 1), ("run", b, 1), ("run", a, 1),
    ]  # fmt: skip


def _weaker(random: Random, names: list[str]) -> list[Act]:
    a, told = random.choice(names), random.choice(("yes", "no"))
    back: list[Act] = [
        ("set", a, "processing.guarantee", "exactly_once"), ("set", a, "told", "yes"), ("run", a, 1),
    ]  # fmt: skip
    return [
        ("run", a, 1), _produced(random), ("run", a, 1, ("kill", _place(random))),
        ("set", a, "processing.guarantee", "at_least_once"), ("set", a, "told", told), ("run", a, 1),
        *(back if random.random() < 0.6 else []),
    ]  # fmt: skip


def _copied(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    return [
        ("run", a, 1), _produced(random), ("run", a, 1, ("copy", 0, random.randint(0, 1))), ("stop", a),
    ]  # fmt: skip


def _begun_elsewhere(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    return [
        ("run", a, 1, ("kill", _place(random))), _produced(random),
        ("says", a, random.choice(("earliest", "latest"))), ("run", a, 2),
    ]  # fmt: skip


def _source_renamed(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    acts: list[Act] = [("query", a, {**_query(random, a, False), "named": "orders", "told": "yes"})]
    acts.append(("run", a, random.choice((1, 2))))
    for _ in range(random.choice((1, 2))):
        acts += [_produced(random)] * random.choice((0, 1))
        acts += [
            ("says", a, random.choice(("earliest", "latest"))), ("rename", a, random.choice(SOURCE_NAMES)),
            ("run", a, random.choice((1, 2)), _late(random)), ("kill", a),
        ]  # fmt: skip
    return acts


def _tried_out(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    return [
        ("run", a, random.choice((1, 2))), _produced(random), ("produce", FILES, 3),
        ("run", a, random.choice((0, 1)), _late(random)),
        ("tried", a, random.choice(list(SINKS)), random.choice((1, 2))),
        *([_produced(random)] * random.choice((0, 1))), ("run", a, 2),
    ]  # fmt: skip


def _strangers(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    moved: list[Act] = random.choice((
        [("meddle", "g", random.random() < 0.5)],
        [
            ("set", a, "kafka.group.id", random.choice(("h", None))), _produced(random), ("run", a, 2),
            ("set", a, "kafka.group.id", "g"),
        ],
    ))  # fmt: skip
    return [
        ("set", a, "id", random.choice(("x", "x", None))), ("set", a, "kafka.group.id", "g"), ("run", a, 2),
        _produced(random), *moved, *([("run", a, 1)] if random.random() < 0.3 else []),
        ("anew", a, "committed"), _produced(random), ("run", a, 2),
    ]  # fmt: skip


def _files_restored(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    restored: list[Act] = random.choice((
        [("restore", a)], [("blackout", a, random.choice((1, 2)))],
    ))  # fmt: skip
    return [
        ("query", a, {**_query(random, a, False), "in": FILES}),
        ("run", a, 1), ("stop", a), ("backup", a), ("produce", FILES, 3), ("run", a, 1, _late(random)),
        ("stop", a), *restored, ("produce", FILES, 2), ("run", a, 2),
    ]  # fmt: skip


def _away_and_back(random: Random, names: list[str]) -> list[Act]:
    a, topic = random.choice(names), random.choice(list(SOURCES))
    return [
        ("query", a, {**_query(random, a, False), "in": "in,in2"}),
        _produced(random), ("produce", "in2", 3), ("run", a, 2), ("out", a, topic),
        *([("produce", topic, 3)] * random.choice((0, 1))), ("run", a, random.choice((0, 1)), _late(random)),
        ("back", a), ("run", a, 2),
    ]  # fmt: skip


def _monthly(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    return [
        *([("run", a, 1)] * random.choice((0, 1))), ("snapshot",), _produced(random), ("produce", FILES, 3),
        ("run", a, random.choice((1, 2)), _late(random)), ("stop", a),
        ("forget", *(random.random() < 0.5 for _ in range(3))),
        *([("restored",)] * random.choice((0, 1))), _produced(random), ("run", a, 2),
    ]  # fmt: skip


def _spark_for_a_day(random: Random, names: list[str]) -> list[Act]:
    a = random.choice(names)
    return [
        ("run", a, random.choice((1, 2))), _produced(random), ("sparkday", a),
        *([("sparkday", a)] * random.choice((0, 1))), _produced(random), ("run", a, 2, _late(random)),
    ]  # fmt: skip


def _hidden(random: Random, names: list[str]) -> list[Act]:
    a, sink = random.choice(names), random.choice(list(SINKS))
    return [
        ("set", a, "topic", sink), ("stranger", sink), _produced(random), ("run", a, 1, _late(random)),
        *([("backup", a)] * random.choice((0, 1))), ("forget", random.random() < 0.5, True, False, False),
        *([("restore", a)] * random.choice((0, 1))), ("run", a, 2),
    ]  # fmt: skip


def _lost(random: Random, names: list[str]) -> list[Act]:
    a, topic = random.choice(names), random.choice(list(SOURCES))
    changed: list[Act] = random.choice(([("grow", topic)], [("delete", topic)], []))
    return [
        ("set", a, "id", "x"), ("run", a, random.choice((1, 2)), _late(random)), *changed,
        *([_produced(random)] * random.choice((0, 1))), ("lost", a, random.choice(("earliest", "latest"))),
        ("run", a, 2),
    ]  # fmt: skip


def _edited(random: Random, names: list[str]) -> list[Act]:
    a, by = random.choice(names), random.choice((-3, -1, 1, 2))
    after: list[Act] = random.choice((
        [("lost", a, random.choice(STARTS))], [("anew", a, "committed")], [("restore", a)],
        [("run", a, 1, _late(random)), ("lost", a, random.choice(STARTS))],
        [("forget", False, True, random.random() < 0.5)], [], [("undo", a)],
        [("undo", a), ("forget", False, True, random.random() < 0.5)],
    ))  # fmt: skip
    return [
        ("run", a, random.choice((1, 2)), _late(random)), ("backup", a), _produced(random),
        ("run", a, 1, _late(random)), ("edit", a, by), *after,
        *([_produced(random)] * random.choice((0, 1))), ("run", a, 2),
    ]  # fmt: skip


def _added_again(random: Random, names: list[str]) -> list[Act]:
    a, topic = random.choice(names), random.choice(list(SOURCES))
    anew: list[Act] = [("anew", a, "committed")] if random.random() < 0.4 else []
    return [
        ("query", a, {**_query(random, a, False), "in": "in,in2"}), ("produce", "in2", 3), ("run", a, 2),
        ("out", a, topic), *anew, ("produce", topic, 2), ("run", a, random.choice((0, 1)), _late(random)),
        ("add", a, topic, random.choice(ADDED)), _produced(random), ("run", a, 2),
    ]  # fmt: skip


_THEMES = (
    _added_again,
    _hidden, _lost, _edited, _tried_out, _strangers, _files_restored, _away_and_back, _monthly,
    _spark_for_a_day, _begun_elsewhere, _source_renamed,
    _handed_over, _taken_over, _renamed, _renamed, _restored, _tokens, _broker_restored, _source_cut,
    _sink_cut, _handed_back, _joined, _weaker, _copied,
)  # fmt: skip
