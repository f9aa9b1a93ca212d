"""The picture of `eoslog top` in docs/: a real cluster at work, drawn as an SVG. make top-picture."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from eoslog.commands.session import client_config
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.testing import EmbeddedBroker
from eoslog.top.figures import figures
from eoslog.top.look import look
from eoslog.top.view import picture
from tests.top.busy import TOPICS, Busy

SVG = Path(__file__).parents[2] / "docs" / "pictures" / "top.svg"
LARGEST = 100_000  # bytes
_WIDTH, _LINES = 104, 40
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)  # they would be fetched from elsewhere


def draw(busy: Busy, path: Path) -> None:
    """Two looks, with records written between them."""
    with Cluster(client_config(busy.bootstrap, None, 60.0)) as cluster:
        before = look(cluster)
        for n, topic in enumerate(TOPICS):
            busy.write(topic, 4000 // (n + 1))
        shown = figures(look(cluster), before)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(picture(shown, lines=_LINES))
    drawn = console.export_svg(
        title="eoslog top", code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT), unique_id="top"
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(drawn)


if __name__ == "__main__":
    with EmbeddedBroker() as broker, Busy(broker.bootstrap) as world:
        draw(world, SVG)
    print(f"{SVG}: {SVG.stat().st_size} bytes")
