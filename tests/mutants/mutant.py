"""What a mutant is: one rule of the sources broken, and the tests that have to notice."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Break(NamedTuple):
    """A rule broken: `old` stands in the file exactly once, and `new` takes its place.

    `tests`: arguments for pytest, in the order in which they are run; None: those of the file. `hangs`: the
    tests notice it by never ending, so a run that is out of time counts as killed.
    """

    name: str
    old: str
    new: str
    tests: tuple[str, ...] | None = None
    hangs: bool = False


class Mutant(NamedTuple):
    """A break in its file (a path from the root of the checkout)."""

    file: str
    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    hangs: bool

    @property
    def title(self) -> str:
        """What the table calls it."""
        return f"{self.file.removeprefix('connector/')}: {self.name}"

    def broken(self, root: Path) -> str:
        """The file's text with the rule broken; ValueError where the entry does not fit the source any more."""
        text = (root / self.file).read_text()
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.title}: {self.old!r} is there {found} times; correct the entry")
        if self.old == self.new:
            raise ValueError(f"{self.title}: nothing is broken")
        return text.replace(self.old, self.new)


def mutants_of(file: str, tests: tuple[str, ...], *breaks: Break) -> Iterator[Mutant]:
    """The mutants of one file, with the tests that belong to it."""
    for name, old, new, own, hangs in breaks:
        yield Mutant(file, name, old, new, tests if own is None else own, hangs)
