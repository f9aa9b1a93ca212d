"""`eoslog` on the command line, in a world: a process of its own, which may be killed at a step."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from click.testing import CliRunner

from eoslog.cli import main
from tests.histories.sim_connection import Killed

if TYPE_CHECKING:
    from tests.histories.world import World


Kill = int | tuple[str, int]
"""As Strike.at."""


@dataclass(frozen=True)
class Said:
    """What a command has said, and its exit status; None: it was killed."""

    status: int | None
    text: str

    @property
    def price(self) -> dict[str, int]:
        """What it asks to accept, by its options; empty: it asks for nothing."""
        asked = re.findall(r"(--accept-\w+) (\d+)", self.text)
        return {name: int(count) for name, count in asked if "if that is what you want" in self.text.lower()}


def command(world: "World", *words: str, kill: Kill | None = None) -> Said:
    """Give it, on the cluster that people look at. `kill`: the step at which it is killed. Raises what it
    does not catch."""
    servers = ("--bootstrap-server", world.servers)
    try:
        with world.ground.shell(kill):
            done = CliRunner().invoke(main, [*words, *servers])
    except Killed:
        return Said(None, "")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.output)


def paid(world: "World", *words: str, kill: Kill | None = None) -> tuple[Said, dict[str, int]]:
    """The same, with the price that it asks for; and that."""
    said = command(world, *words, kill=kill)
    price = said.price
    if price:
        accepted = (word for name, count in price.items() for word in (name, str(count)))
        said = command(world, *words, *accepted, kill=kill)
    return said, price
