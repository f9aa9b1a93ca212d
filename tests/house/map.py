"""`make map`: rooms, arrows and circles of the sources, longest classes and files, lines."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.house.structure import KINDS, Module, arrows, circles, longest, mark, naming, read, sources

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
