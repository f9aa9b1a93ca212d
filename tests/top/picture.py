"""The picture of `eoslog top` in docs/: a real cluster at work, drawn as an SVG. make top-picture."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.testing import EmbeddedBroker
from eoslog.top.cluster_snapshot import look
from eoslog.top.figures import figures
from eoslog.top.view import picture
from tests.svg import PICTURES, save
from tests.top.busy import TOPICS, Busy

SVG = PICTURES / "top.svg"
LARGEST = 100_000  # bytes
_WIDTH, _LINES = 104, 40


def draw(busy: Busy, path: Path) -> None:
    """Two looks, with records written between them."""
    with Cluster(client_config(busy.bootstrap, None, 60.0)) as cluster:
        before = look(cluster)
        for n, topic in enumerate(TOPICS):
            busy.write(topic, 4000 // (n + 1))
        shown = figures(look(cluster), before)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(picture(shown, lines=_LINES))
    save(console, path, "eoslog top")


if __name__ == "__main__":
    with EmbeddedBroker() as broker, Busy(broker.bootstrap) as busy:
        draw(busy, SVG)
    print(f"{SVG}: {SVG.stat().st_size} bytes")
