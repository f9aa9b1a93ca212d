"""What a mutant is: one rule of the sources broken, and the tests that have to notice.

An entry says where a rule stands by names and by the shape of the code: so the code may move and be formatted.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_ROOMS = ("protocol", "broker", "client", "connector", "eoslog", "benchmarks")
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Break(NamedTuple):
    """A rule broken: in `symbol` the code `old` stands once, and `new` takes its place.

    `symbol`: a function, method, class, constant or module, as `Runner.run`. Where several have the name, one of
    them has `old`; else more of its full name is given, as `runner.Runner.run`. `old`, `new`: an expression, or
    statements. `tests`: arguments for pytest, in the order in which they are run; None: those of the group.
    `hangs`: the tests notice it by never ending, so a run that is out of time counts as killed.
    """

    name: str
    symbol: str
    old: str
    new: str
    tests: tuple[str, ...] | None = None
    hangs: bool = False


class _Place(NamedTuple):
    """Where code stands: in a field of a node, which is a list unless `at` is None."""

    node: ast.AST
    field: str
    at: slice | None

    def put(self, code: Sequence[ast.AST]) -> None:
        """Replace what stands there."""
        if self.at is None:
            setattr(self.node, self.field, code[0])
        else:
            getattr(self.node, self.field)[self.at] = code


class Mutant(NamedTuple):
    """A break with the tests that belong to it."""

    name: str
    symbol: str
    old: str
    new: str
    tests: tuple[str, ...]
    hangs: bool

    @property
    def file(self) -> str:
        """The path, from the root of the checkout, of the file that has the rule. ValueError: see `broken`."""
        return _file(self)

    @property
    def title(self) -> str:
        """What the table calls it."""
        return f"{self.file.removeprefix('connector/')}: {self.name}"

    def broken(self) -> str:
        """The file's code with the rule broken; ValueError where the entry does not fit the sources any more."""
        file, tree, place = _found(self)
        tree, place = deepcopy((tree, place))  # of one parse: in another tree the place is none
        place.put(_code(self.old, self.new)[1])
        text = ast.unparse(tree)
        compile(text, file, "exec")
        return text


def mutants_of(tests: tuple[str, ...], *breaks: Break) -> Iterator[Mutant]:
    """The mutants of rules that share their tests."""
    for name, symbol, old, new, own, hangs in breaks:
        yield Mutant(name, symbol, old, new, tests if own is None else own, hangs)


def whole(file: str) -> str:
    """The file's code with nothing broken, written as `Mutant.broken` writes it."""
    return ast.unparse(_parsed(file)[0])


@cache
def _file(mutant: Mutant) -> str:
    return _found(mutant)[0]


def _found(mutant: Mutant) -> tuple[str, ast.Module, _Place]:
    old, new = _code(mutant.old, mutant.new)
    if _same(old, new):
        raise ValueError(f"{mutant.symbol}: {mutant.name}: nothing is broken")
    found = [
        (file, tree, place)
        for file, full in _symbols()[mutant.symbol.rpartition(".")[2]]
        if f".{full}".endswith(f".{mutant.symbol}")
        for tree, names in [_parsed(file)]
        for name, node in names
        if name == full
        for place in _places(node, old)
    ]
    if len(found) != 1:
        raise ValueError(f"{mutant.symbol}: {mutant.name}: {mutant.old!r} is there {len(found)} times; correct the entry")
    return found[0]


@lru_cache(64)
def _parsed(file: str) -> tuple[ast.Module, list[tuple[str, ast.AST]]]:
    """A file, and its nodes that have names."""
    tree = ast.parse((ROOT / file).read_text())
    return tree, list(_named(tree, _module(file)))


@cache
def _symbols() -> dict[str, set[tuple[str, str]]]:
    """The files and the full names of all that has a name, by the last part of the name."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for room in _ROOMS:
        for path in (ROOT / room).rglob("*.py"):  # links to the other rooms are passed over
            file = str(path.relative_to(ROOT))
            for name, _ in _named(ast.parse(path.read_text()), _module(file)):
                found[name.rpartition(".")[2]].add((file, name))
    return found


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _named(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """What has a name in a node of that name, itself included."""
    yield name, node
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, _NAMED):
            yield from _named(inner, f"{name}.{inner.name}")
        elif isinstance(node, ast.Module):
            targets = getattr(inner, "targets", [getattr(inner, "target", None)])
            yield from ((f"{name}.{one.id}", inner) for one in targets if isinstance(one, ast.Name))


def _code(old: str, new: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """Both as statements, unless both are expressions."""
    match ast.parse(old).body, ast.parse(new).body:
        case [ast.Expr(one)], [ast.Expr(two)]:
            return [one], [two]
        case one, two:
            return [*one], [*two]


def _places(node: ast.AST, wanted: Sequence[ast.AST]) -> Iterator[_Place]:
    """Where in a node code of that shape stands."""
    kind = type(wanted[0])
    for outer in ast.walk(node):
        for field, value in ast.iter_fields(outer):
            if not isinstance(value, list):
                if type(value) is kind and _same([value], wanted):
                    yield _Place(outer, field, None)
                continue
            for at in range(len(value) - len(wanted) + 1):
                part = slice(at, at + len(wanted))
                if type(value[at]) is kind and _same(value[part], wanted):
                    yield _Place(outer, field, part)


def _same(code: Sequence[object], other: Sequence[ast.AST]) -> bool:
    return len(code) == len(other) and all(type(one) is type(two) and ast.dump(one) == ast.dump(two) for one, two in zip(code, other, strict=True))
