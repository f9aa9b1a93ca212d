"""`make map`: rooms, arrows and circles of the sources, longest classes and files, lines."""

import argparse
import ast
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import resolve_name
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

# -- structure -----------------------------------------------------------------------------------
# The structure of sources: modules, rooms, imports, circles, towers of classes. Reads them, imports nothing.
#
# A room is a folder of a package. An import whose module is named by a string (`import_module`) is not seen.
# That Python runs a package's `__init__` before its modules is not counted as an arrow.

KINDS = ("module", "lazy", "types")  # at module level, inside functions, under `if TYPE_CHECKING:`
CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Statement = ast.Import | ast.ImportFrom
Modules = Mapping[str, "Module"]


class Import(NamedTuple):
    kind: str
    target: str
    name: str
    bound: str  # what stands for `name` of the module `target`, or without a name for the module


@dataclass
class Module:
    name: str
    room: str
    path: Path
    text: list[str]
    imports: list[Import] = field(default_factory=list)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)


class Class(NamedTuple):
    module: str
    name: str
    lines: int
    methods: int


def sources(package: Path) -> Iterator[Path]:
    """The Python files of a package, links followed; a folder that two paths lead to is entered once."""
    seen = set()
    for folder, inner, files in os.walk(package, followlinks=True):
        inner[:] = [] if os.path.realpath(folder) in seen else sorted(inner)
        if os.path.realpath(folder) not in seen:
            yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))
        seen.add(os.path.realpath(folder))


def read(package: Path) -> dict[str, Module]:
    """The modules of a package, by name."""
    modules: dict[str, Module] = {}
    for path in sources(package):
        room = ".".join(path.parent.relative_to(package.parent).parts)
        name = room if path.stem == "__init__" else f"{room}.{path.stem}"
        modules[name] = Module(name, room, path, path.read_text().splitlines())
    for one in modules.values():
        tree = ast.parse("\n".join(one.text), str(one.path))
        one.imports = [
            of for kind, node in statements(tree) for of in imported(kind, node, one.room, modules)
        ]
        one.classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return modules


def statements(node: ast.AST, kind: str = "module") -> Iterator[tuple[str, Statement]]:
    """The import statements below a node, each with its kind."""
    if isinstance(node, Statement):
        yield kind, node
    inside = "lazy" if kind == "module" and isinstance(node, Function) else kind
    types = node.body if isinstance(node, ast.If) and ast.unparse(node.test) in CHECKING else []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child, "types" if child in types else inside)


def imported(kind: str, node: Statement, room: str, known: Collection[str]) -> Iterator[Import]:
    """What a statement imports of the package: the module that a name is, else the one it is taken from."""
    for alias in node.names:
        target, name = alias.name, ""
        if isinstance(node, ast.ImportFrom):
            target, name = resolve_name("." * node.level + (node.module or ""), room), alias.name
        if f"{target}.{name}" in known:
            target, name = f"{target}.{name}", ""
        if target in known:
            yield Import(kind, target, name, alias.asname or alias.name)


def arrows(modules: Modules, kinds: Iterable[str], rooms: bool = False) -> Counter[tuple[str, str]]:
    """From where to where imports lead, and how many pairs of modules stand behind each arrow."""
    pairs = {(one.name, of.target) for one in modules.values() for of in one.imports if of.kind in kinds}
    ends = ((modules[a].room, modules[b].room) if rooms else (a, b) for a, b in pairs)
    return Counter((a, b) for a, b in ends if a != b)


def circles(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, largest first (Tarjan)."""
    graph = {a: [b for _, b in ends] for a, ends in groupby(sorted(pairs), lambda pair: pair[0])}
    number, low = dict[str, int](), dict[str, int]()
    stack, found = list[str](), list[list[str]]()

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for after in graph.get(node, ()):
            if after not in number:
                visit(after)
            if after in stack:
                low[node] = min(low[node], low[after])
        if low[node] == number[node]:
            found.append(sorted(stack[stack.index(node) :]))
            del stack[stack.index(node) :]

    for node in graph:
        if node not in number:
            visit(node)
    return sorted((one for one in found if len(one) > 1), key=lambda one: (-len(one), one))


def mark(a: str, b: str, groups: Iterable[list[str]]) -> str:
    """`up` for an arrow to a room around its own, `circle` for one to a room beside it that leads back."""
    if a.startswith(f"{b}."):
        return "up"
    return "circle" if not b.startswith(f"{a}.") and any({a, b} <= set(group) for group in groups) else ""


def defined(modules: Modules, module: str, name: str) -> tuple[str, str] | None:
    """Where the class is defined that a module knows by this name, if it is the project's."""
    if name in modules[module].classes:
        return module, name
    for one in modules[module].imports:
        if one.name and one.bound == name:
            return defined(modules, one.target, one.name)
        if not one.name and name.startswith(f"{one.bound}."):
            return defined(modules, one.target, name.removeprefix(f"{one.bound}."))
    return None


def tower(modules: Modules, module: str, name: str) -> list[Class]:
    """A class and all its bases inside the project, each once, the class first."""
    places, found = [(module, name)], []
    for at, of in places:  # grows while it is walked
        node = modules[at].classes[of]
        methods = sum(isinstance(one, Function) for one in node.body)
        found.append(Class(at, of, (node.end_lineno or node.lineno) - node.lineno + 1, methods))
        bases = [ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
        places += [to for base in bases if (to := defined(modules, at, base)) and to not in places]
    return found


def longest(modules: Modules, count: int) -> list[list[Class]]:
    """The towers with the most lines; one that stands inside another is left out."""
    towers = [tower(modules, one.name, name) for one in modules.values() for name in one.classes]
    inner = {one for of in towers for one in of[1:]}
    towers.sort(key=lambda of: -sum(one.lines for one in of))
    return [of for of in towers if of[0] not in inner][:count]


def naming(modules: Modules, member: str) -> dict[str, list[int]]:
    """The modules that name a member of ApiKey, and the lines."""
    names = re.compile(rf"\bApiKey\.{re.escape(member)}\b").search
    found = {of.name: [n for n, line in enumerate(of.text, 1) if names(line)] for of in modules.values()}
    return {name: lines for name, lines in found.items() if lines}


# -- the map -------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
LONG_FILE, CLASSES = 400, 10


def rings(modules: dict[str, Module]) -> dict[str, Any]:
    """The circles of modules and of rooms, in the graph of each kind of import and those before it."""
    found = {}
    for of in ("modules", "rooms"):
        for kinds in (KINDS[:1], KINDS[:2], KINDS):
            pairs = arrows(modules, kinds, rooms=of == "rooms")
            found[f"{of}: {' + '.join(kinds)}"] = [
                {"members": group, "arrows": sorted(p for p in pairs if set(p) <= set(group))}
                for group in circles(pairs)
            ]
    return found


def gathered(api: str) -> dict[str, Any]:
    modules = read(ROOT / "eoslog")
    pairs = arrows(modules, KINDS, rooms=True)
    by_kind = {kind: arrows(modules, [kind], rooms=True) for kind in KINDS}
    groups = circles(pairs)
    by_room = groupby(modules.values(), lambda one: one.room)  # they come folder by folder
    sizes = {room: [len(one.text) for one in ones] for room, ones in by_room}
    rooms = {room: {"files": len(of), "lines": sum(of)} for room, of in sizes.items()}
    tests = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources(ROOT / "tests")}
    files = tests | {str(one.path.relative_to(ROOT)): len(one.text) for one in modules.values()}
    return {
        "rooms": rooms,
        "arrows": [
            {"from": a, "to": b, **{kind: by_kind[kind][a, b] for kind in KINDS}, "mark": mark(a, b, groups)}
            for a, b in sorted(pairs)
        ],
        "circles": rings(modules),
        "classes": [[one._asdict() for one in tower] for tower in longest(modules, CLASSES)],
        "long files": sorted(((n, path) for path, n in files.items() if n > LONG_FILE), reverse=True),
        "lines": {"source": sum(room["lines"] for room in rooms.values()), "tests": sum(tests.values())},
        "api": {"member": api, "modules": naming(modules, api)},
    }


def told(found: dict[str, Any], inside: bool) -> Iterator[str]:
    yield f"{'ROOMS':40}{'files':>6}{'lines':>7}"
    for room, of in sorted(found["rooms"].items()):
        yield f"{'  ' * room.count('.') + room.rpartition('.')[2]:40}{of['files']:6}{of['lines']:7}"
    yield f"\n{'ARROWS':56}{''.join(f'{kind:>7}' for kind in KINDS)}"
    for of in found["arrows"]:
        counts = "".join(f"{of[kind] or '':>7}" for kind in KINDS)
        yield f"{of['from']:28}-> {of['to']:25}{counts}  {of['mark']}".rstrip()
    marks = Counter(of["mark"] for of in found["arrows"])
    yield f"{marks.total()} arrows, {marks['up']} of them up, {marks['circle']} sideways in a circle"
    yield "\nCIRCLES"
    for graph, groups in found["circles"].items():
        yield f"{graph:34}{len(groups):3} groups {[len(of['members']) for of in groups]}"
        for of in groups if inside else []:
            yield "\n    ".join(["  " + " ".join(of["members"]), *(f"{a} -> {b}" for a, b in of["arrows"])])
    yield "\nLONGEST CLASSES, with their bases: lines, methods"
    for of in found["classes"]:
        lines, methods = (sum(one[what] for one in of) for what in ("lines", "methods"))
        tower = " <- ".join(f"{one['name']} ({one['lines']})" for one in of)
        yield f"{lines:6}{methods:5}  {of[0]['module']}: {tower}"
    yield f"\nFILES OF MORE THAN {LONG_FILE} LINES"
    yield from (f"{lines:6}  {path}" for lines, path in found["long files"])
    yield f"\nLINES  source {found['lines']['source']}, tests {found['lines']['tests']}"
    yield f"\nApiKey.{found['api']['member']} is named in {len(found['api']['modules'])} files"
    yield from (f"  {name}: {numbers}" for name, numbers in found["api"]["modules"].items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house.map", description=__doc__)
    parser.add_argument("--circles", action="store_true", help="print the modules and arrows of circles")
    parser.add_argument("--api", default="DESCRIBE_CLUSTER", help="the member of ApiKey to look for")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    found = gathered((args := parser.parse_args()).api)
    print(json.dumps(found, indent=1) if args.json else "\n".join(told(found, args.circles)))


if __name__ == "__main__":
    main()
