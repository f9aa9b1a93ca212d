"""The judges of the house: what `make map` says, the types of messages, libraries, rounds, and luck."""

import ast
import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from datetime import date
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoslog.broker import handlers
from eoslog.protocol.apis import APIS
from eoslog.protocol.fields import Array, Struct
from tests import luck, rounds
from tests.house.map import KINDS, Module, arrows, circles, gathered, longest, mark, naming, read, told
from tests.rounds import (
    PAGE,
    ROOT,
    TABLE,
    Claim,
    Ran,
    certified,
    claims,
    command,
    in_turn,
    noted,
    page,
    run,
    targets,
)

# -- make map ------------------------------------------------------------------------------------
# What `make map` says, on small trees that are made up and on the sources.


def made(root: Path, **files: str) -> dict[str, Module]:
    """The modules of a package `p`; `a__b` stands for a/b.py."""
    for name, text in files.items():
        path = root / "p" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "p" / "__init__.py").touch()
    return read(root / "p")


@pytest.mark.parametrize(
    ("back", "closed_by"),
    [
        ("from p.a import x", "module"),
        ("try:\n    import p.a\nexcept ImportError:\n    raise", "module"),
        ("if TYPE_CHECKING:\n    x = 1\nelse:\n    from p import a", "module"),
        ("async def f():\n    if 1:\n        from . import a", "lazy"),
        ("if typing.TYPE_CHECKING:\n    from .a import x", "types"),
        ("def f():\n    if TYPE_CHECKING:\n        from p.a import x", "types"),
    ],
)
def test_a_circle_is_found_with_the_kind_that_closes_it(tmp_path: Path, back: str, closed_by: str) -> None:
    modules = made(tmp_path, a="from p import b, c", b=back, c="import os")
    for n, kind in enumerate(KINDS):
        found = circles(arrows(modules, KINDS[: n + 1]))
        assert found == ([["p.a", "p.b"]] if n >= KINDS.index(closed_by) else []), kind


def test_circles_that_touch_are_one_and_others_stay_apart() -> None:
    assert circles(zip("abbccdef", "bacbdedd", strict=True)) == [["a", "b", "c"], ["d", "e"]]


def test_arrows_between_rooms_are_counted_by_modules_and_marked(tmp_path: Path) -> None:
    y, x = "import p.b.y", "import p.a.x"
    modules = made(tmp_path, top=x, a__x=f"from p.top import X, Y\n{y}", a__z=f"{y}\n{x}", b__y=x, c__v=x)
    found = arrows(modules, KINDS, rooms=True)
    said = {f"{a} {b}": f"{n} {mark(a, b, circles(found))}" for (a, b), n in found.items()}
    assert said == {
        "p p.a": "1 ",
        "p.a p": "1 up",
        "p.a p.b": "2 circle",
        "p.b p.a": "1 circle",
        "p.c p.a": "1 ",
    }


def test_a_link_is_followed_once(tmp_path: Path) -> None:
    made(tmp_path, x="", **{"..__linked__y": "import p.x"})
    for link, to in (("room", "linked"), ("same", "linked"), ("itself", "p")):
        os.symlink(tmp_path / to, tmp_path / "p" / link)
    modules = read(tmp_path / "p")
    assert sorted(modules) == ["p", "p.room.y", "p.x"]
    assert arrows(modules, ["module"]) == {("p.room.y", "p.x"): 1}


def test_a_tower_is_found_through_other_names_and_not_listed_twice(tmp_path: Path) -> None:
    base = "class Base(dict):\n    def f(self): ..."
    middle = "from p import base\nclass Middle(base.Base[int]): ..."
    facade = "from p.middle import Middle as M\nfrom p.base import Base"
    top = "from p.facade import M, Base\nclass Top(M, Base, OSError):\n    a = 1\n    async def g(self): ..."
    (found,) = longest(made(tmp_path, base=base, middle=middle, facade=facade, top=top), 9)
    assert found == [("p.top", "Top", 3, 1), ("p.middle", "Middle", 1, 0), ("p.base", "Base", 2, 1)]


def test_places_that_name_an_api(tmp_path: Path) -> None:
    modules = made(tmp_path, a="\nApiKey.FETCH", b="ApiKey.FETCH_MORE", c="FETCH = 1")
    assert naming(modules, "FETCH") == {"p.a": [2]}


def test_the_sources_have_no_circle_of_any_kind_and_the_map_says_so() -> None:
    """Neither of modules nor of rooms; not lazily and not for types either."""
    found = json.loads(json.dumps(gathered("PRODUCE")))
    assert {"eoslog.broker", "eoslog.client", "eoslog.connector", "eoslog.protocol"} < set(found["rooms"])
    assert len(found["circles"]) == 6 and not any(found["circles"].values()), found["circles"]
    assert "\n  eoslog.broker.handlers.produce: [" in "\n".join(told(found, inside=True))


def test_a_thing_has_one_name_and_a_name_one_thing() -> None:
    """A module's logger is `logger`, a partition is defined once, and these classes are one each."""
    loggers, pairs, classes = set[str](), list[str](), Counter[str]()
    for one in read(ROOT / "eoslog").values():
        text = "\n".join(one.text)
        loggers |= set(re.findall(r"(?m)^(\w+) = logging\.getLogger\(", text))
        pairs += [f"{one.name}.{name}" for name in re.findall(r"(?m)^(\w+) = tuple\[str, int\]$", text)]
        classes += Counter(list(one.classes))
    assert loggers == {"logger", "_requests"}  # of a module, and of each request that a broker serves
    assert pairs == [
        "eoslog.checkpoint.edits.LogFile",  # a log of a checkpoint, and a batch
        "eoslog.client.wire.config.Address",  # a host and a port
        "eoslog.protocol.topic_partitions.TopicPartition",
    ]
    assert {name: classes[name] for name in ("Place", "Life", "Findings", "Comparison")} == {
        "Place": 1, "Life": 1, "Findings": 1, "Comparison": 1,
    }  # fmt: skip


# -- types of messages ---------------------------------------------------------------------------
# Messages are typed: the types are the schemas', mypy sees what does not fit, and the rooms use them.

WRONG = Path(__file__).with_name("wrong_fields.py")

CLIENTS = ("client", "connector/run", "eoslog/commands", "eoslog/top", "eoslog/audit")

_BY_FIELD = {
    "remove_denied",
    "denied_entries",
    "topics",
    "needs",
}  # functions of broker/authorize/access.py that take fields' names


@pytest.mark.timeout(600)
def test_mypy_sees_what_does_not_fit(tmp_path: Path) -> None:
    """Without what an earlier run left, it reads half of the sources."""
    subprocess.run([sys.executable, ROOT / "packaging" / "message_types.py"], check=True)
    mypy = [sys.executable, "-m", "mypy", "--config-file", "setup.cfg", "--cache-dir", str(tmp_path)]
    run = subprocess.run(
        [*mypy, "-m", "tests.house.wrong_fields"],
        cwd=ROOT, env={**os.environ, "MYPY_FORCE_COLOR": "0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {int(line) for line in re.findall(r"^\S*wrong_fields\.py:(\d+): error:", run.stdout, re.M)}
    marked = {
        number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if "  # wrong: " in line
    }
    assert marked and found == marked, run.stdout + run.stderr


@pytest.mark.parametrize("module", handlers.ALL, ids=lambda module: module.KEY.name)
def test_a_handler_takes_and_answers_its_own_api(module: Any) -> None:
    name, hints = APIS[module.KEY].name, module.handle.__annotations__
    assert hints["request"] == f"{name}Request"
    assert set(re.findall(r"\w+(?:Draft|Message|Any)\b", hints["return"])) == {f"{name}ResponseDraft"}


@pytest.mark.parametrize("module", handlers.ALL, ids=lambda module: module.KEY.name)
def test_a_check_judges_its_own_api(module: Any) -> None:
    hints, name = module.access.__annotations__, APIS[module.KEY].name
    (judged,) = re.findall(r"^AccessRequest\[(\w+)\]$", hints["asked"])
    assert judged in (f"{name}Request", "Any")
    assert set(re.findall(r"\w+Draft\b", hints["return"] or "")) <= {f"{name}ResponseDraft"}


def test_fields_named_to_the_checks_are_some_request_s() -> None:
    """mypy does not see these: they are texts."""
    known = {name for api in APIS.values() for name in _names(api.request.struct)}
    rooms = (ROOT / "broker" / "authorize", ROOT / "broker" / "handlers")
    named = {text for room in rooms for file in room.glob("*.py") for text in _texts(file)}
    assert {"group_id", "topic_data", "topics"} <= named <= known, named - known


def test_no_client_function_sends_or_receives_what_is_not_typed() -> None:
    """`ask`, `answer` and `call` say what goes with an API; below them are `send` and `receive`."""
    files = [file for room in CLIENTS for file in (ROOT / room).rglob("*.py")]
    loose = [
        f"{f}: {x}" for f in files for x in re.findall(r"\w*connection\.(?:send|receive)\(", f.read_text())
    ]
    assert files and loose == []


def _names(struct: Struct) -> Iterator[str]:
    for field in struct.fields:
        yield field.name
        inner = field.type.of if isinstance(field.type, Array) else field.type
        if isinstance(inner, Struct):
            yield from _names(inner)


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_FIELD:
            given = [*node.args[:3], *(word.value for word in node.keywords if word.arg in ("name", "field"))]
            yield from (
                one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )


# -- libraries -----------------------------------------------------------------------------------
# What a feature imports, itself or through PySpark, is brought by the extra that it names.

_THEIRS = {"pyspark", "py4j", "pytest"}
"""Who uses them has them: a cluster brings PySpark, and pytest loads its plugin."""
_BY_OTHERS = {"pyjwt[crypto]": {"pyjwt", "cryptography"}}
_NAMES_EXTRA = re.compile(r"""eoslog\[([a-z-]+)\]|library\("[\w.]+", "([\w-]+)"\)""")
_THROUGH_PYSPARK = ("mapInArrow", "mapInPandas", "applyInArrow", "toPandas")
"""Methods of a DataFrame that call require_minimum_pandas_version() of pyspark.sql.pandas.utils."""
_PANDAS = "pandas>=2.2"
"""The least that PySpark 4.1 to 4.3 take; 4.0 takes older ones, too."""


def _setup_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def _brought(requirements: list[str]) -> set[str]:
    """The distributions of requirements: all of their names in small letters."""
    names = {re.split(r"[<>=!~ ]", one)[0].lower().replace("_", "-") for one in requirements}
    found = {name.partition("[")[0] for name in names}
    return found.union(*(_BY_OTHERS.get(name, set()) for name in names))


def _imported(tree: ast.AST) -> Iterator[str]:
    """Modules that run-time code imports, by a statement or by `library("name", extra)`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "library":
            yield from (str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant))
        yield from _imported(node)


def _feature_rooms() -> dict[Path, dict[Path, str]]:
    """The texts of the sources by folder; a file at the top of eoslog/ is a feature by itself."""
    rooms: dict[Path, dict[Path, str]] = {}
    for top in ("eoslog", "connector", "client", "broker", "protocol"):
        for file in sorted((ROOT / top).glob("**/*.py")):
            room = file if file.parent == ROOT / "eoslog" else file.parent
            rooms.setdefault(room, {})[file] = file.read_text()
    return rooms


def _extras_named(text: str) -> set[str]:
    return {one or other for one, other in _NAMES_EXTRA.findall(text)}


def test_what_a_feature_imports_is_in_the_extra_that_it_names() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    always = _brought(_setup_lines(setup["options"]["install_requires"])) | _THEIRS
    extras = {name: _setup_lines(text) for name, text in setup["options.extras_require"].items()}
    distributions = packages_distributions()
    rooms = _feature_rooms()
    missing = []
    for room, texts in rooms.items():
        # who names none is called by one that does: of the same room, or of the same top folder
        top = room.relative_to(ROOT).parts[0]
        tops = "".join("".join(rooms[one].values()) for one in rooms if one.is_relative_to(ROOT / top))
        for file, text in texts.items():
            named = next(filter(None, map(_extras_named, (text, "".join(texts.values()), tops))), set[str]())
            for module in {one.split(".")[0] for one in _imported(ast.parse(text))}:
                if module in sys.stdlib_module_names or module == "eoslog":
                    continue
                owners = {one.lower().replace("_", "-") for one in distributions.get(module, [module])}
                if not owners & always.union(*(_brought(extras[one]) for one in named)):
                    missing.append(f"{file.relative_to(ROOT)} imports {module}, extras {sorted(named)}")
    assert not missing, missing


def test_what_pyspark_imports_for_a_feature_is_in_each_extra_of_its_room() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wholes = ["".join(texts.values()) for texts in _feature_rooms().values()]
    callers = [whole for whole in wholes if any(method in whole for method in _THROUGH_PYSPARK)]
    seen = set[str]().union(*map(_extras_named, callers))
    missing = {one for one in seen if _PANDAS not in _setup_lines(setup["options.extras_require"][one])}
    assert seen >= {"avro", "delta", "iceberg", "postgres"} and not missing, missing


# -- rounds --------------------------------------------------------------------------------------
# Nothing rots on request: each target of the Makefile is in a round, or it says why not.

MADE = re.compile(r"^([a-z0-9-]+):.*##", re.MULTILINE)


def test_each_target_is_in_a_round_or_says_why_not() -> None:
    table = tomllib.loads(TABLE.read_text())
    made = MADE.findall((ROOT / "Makefile").read_text())
    assert sorted([*table["targets"], *table["others"]]) == sorted(made)
    assert all(said["minutes"] <= 20 for said in table["targets"].values()), "a round has twenty minutes"


def test_the_page_is_what_was_run() -> None:
    text = PAGE.read_text()
    assert page(text, targets(), noted(text)) == text
    assert not [name for name, ran in noted(text).items() if ran.outcome != "passed"]
    assert all(date.fromisoformat(ran.day) <= date.today() for ran in noted(text).values())


def test_who_was_run_longest_ago_is_next() -> None:
    known: dict[str, dict[str, Any]] = {
        "old": {"minutes": 1},
        "new": {"minutes": 1},
        "never": {"minutes": 2, "with": "N=1"},
    }
    runs = {"new": Ran("2026-11-02", "1a", 0.5, "passed"), "old": Ran("2026-11-01", "1a", 1.0, "passed")}
    assert in_turn(known, runs) == ["never", "old", "new"]
    text = page("head\n\n| target |", known, runs)
    assert noted(text) == runs and text.index("make new") < text.index("make old")
    assert command("never", known["never"]) == "make never N=1"


def test_a_target_that_fails_or_hangs_is_red() -> None:
    assert run("true", 1)[0] == "passed"
    outcome, _, lines = run("echo out; echo err >&2; exit 3", 1)
    assert outcome == "failed (exit code 3)" and lines == ["out", "err"]
    assert run("sleep 60 & wait", 0.2 / 60 / rounds.PATIENCE)[0] == "failed (it did not end)"


@pytest.mark.parametrize("outcome", ["passed", "failed (exit code 2)"])
def test_a_round_is_as_long_as_its_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str
) -> None:
    asked: list[str] = []

    def ran(typed: str, minutes: float) -> tuple[str, float, list[str]]:
        asked.append(typed)
        beside = {"b": Ran("2026-11-29", "01234567", 1, "passed")}  # another round, which ends meanwhile
        where.write_text(page(where.read_text(), rounds.targets(), noted(where.read_text()) | beside))
        return outcome, minutes, []

    where = tmp_path / "rounds.md"
    where.write_text("head\n\n| target |")
    monkeypatch.setattr(rounds, "PAGE", where)
    monkeypatch.setattr(rounds, "run", ran)
    monkeypatch.setattr(
        rounds, "targets", lambda: {n: {"minutes": m} for n, m in (("a", 9), ("b", 2), ("c", 1))}
    )
    monkeypatch.setattr(sys, "argv", ["rounds", "--minutes", "10"])
    assert rounds.main() == int(outcome != "passed")
    assert asked == ["make a", "make c"]
    assert {name: ran.outcome for name, ran in noted(where.read_text()).items()} == {
        "a": outcome,
        "b": "passed",
        "c": outcome,
    }


def test_what_is_claimed_is_run_within_an_hour() -> None:
    table = tomllib.loads(TABLE.read_text())
    assert {one.target for one in claims()} <= {*table["targets"], *table["others"]}
    assert sum(one.minutes for one in claims()) <= 60
    assert {"demo", "test", "histories", "soak-kill", "test-kafka"} == {one.target for one in claims()}
    assert any("BROKER=nodes" in one.typed for one in claims())


@pytest.mark.parametrize(
    ("outcome", "said", "changed"),
    [
        ("passed", "all right; 7 kills of 7", ""),
        ("failed (exit code 2)", "all right; 7 kills of 7", ""),
        ("passed", "nothing", ""),
        ("passed", "all right; 7 kills of 7", "M setup.cfg"),
    ],
)
def test_a_page_is_certified_only_if_all_has_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str, said: str, changed: str
) -> None:
    page = tmp_path / "docs" / "evidence.md"
    page.parent.mkdir()
    before = "head\n<!-- made by: make certify -->\nold\n<!-- end of certified -->\nfoot\n"
    page.write_text(before)
    claim = Claim("soak-kill", "all of it", 4, "all right; .* kills of", "KILLS=7")
    monkeypatch.setattr(rounds, "ROOT", tmp_path)
    monkeypatch.setattr(rounds, "EVIDENCE", page)
    monkeypatch.setattr(rounds, "claims", lambda: [claim])
    monkeypatch.setattr(rounds, "run", lambda *_: (outcome, 3.2, ["begin", f"== round 1: {said} ==", "end"]))
    monkeypatch.setattr(rounds, "_git", lambda *given: changed if given[0] == "status" else "1a2b3c4d")
    is_right = outcome == "passed" and said != "nothing" and not changed
    assert rounds.certify() == int(not is_right)
    row = f"| all of it | `make soak-kill KILLS=7` | 3.2 | round 1: {said} |"
    assert (row in page.read_text()) == is_right and (page.read_text() == before) != is_right
    if is_right:
        assert "head\n" in page.read_text() and "Commit 1a2b3c4d, " in page.read_text()
        assert (
            page.read_text().endswith("<!-- end of certified -->\nfoot\n") and "old" not in page.read_text()
        )


def test_the_page_of_evidence_has_a_place_for_what_was_certified() -> None:
    assert certified(rounds.EVIDENCE.read_text(), "this", []).count("\nthis\n") == 1


# -- luck ----------------------------------------------------------------------------------------


def test_an_order_keeps_the_tests_of_a_file_together_and_loses_none() -> None:
    names = [f"tests/test_{file}.py::test_{number}" for file in "abcd" for number in range(5)]
    items = cast(list[pytest.Item], [SimpleNamespace(nodeid=name) for name in names])
    orders = {seed: [item.nodeid for item in luck.shuffled(items, seed)] for seed in "123"}
    assert orders["1"] == [item.nodeid for item in luck.shuffled(items[::-1][::-1], "1")]
    assert len({tuple(order) for order in orders.values()} | {tuple(names)}) == 4
    for order in orders.values():
        assert sorted(order) == names
        files = [name.partition("::")[0] for name in order]
        assert len([1 for one, two in pairwise(files) if one != two]) == 3


def test_what_fails_once_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_lucky.py").write_text(
        "from pathlib import Path\n"
        "def test_always(): ...\n"
        "def test_at_the_second_try():\n"
        "    there = Path(__file__).with_name('there')\n"
        "    was = there.exists()\n"
        "    there.touch()\n"
        "    assert was\n"
    )
    runs = [luck.run(seed, ["-n", "0", "-p", "no:cacheprovider", str(tmp_path)]) for seed in (1, 2)]
    assert [line.partition("  ")[0] for line in luck.told(runs)] == ["1 of 2"]
    assert luck.told(runs)[0].endswith("::test_at_the_second_try") and luck.told([[], []]) == []
    with pytest.raises(RuntimeError, match="no test ran"):
        luck.run(1, ["-n", "0", str(tmp_path), "-k", "nothing"])
