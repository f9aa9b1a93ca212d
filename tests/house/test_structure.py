"""What `make map` says, on small trees that are made up and on the sources."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house.map import ROOT, gathered, told
from tests.house.structure import KINDS, Module, arrows, circles, longest, mark, naming, read


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
