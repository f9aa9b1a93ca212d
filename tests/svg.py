"""What a console has recorded, as a picture for docs/pictures: nothing in it is fetched from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)  # they would be fetched


def save(console: Console, path: Path, title: str) -> None:
    """Write it as a terminal's window with this title."""
    text = console.export_svg(
        title=title, code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT), unique_id=path.stem
    )
    path.write_text(text)
