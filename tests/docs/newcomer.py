"""A newcomer's path, as README.md has it under its first heading: typed in an empty folder, and timed.

Every block of that section is typed, in one shell, but the broker's, which gets a terminal of its own.
For the repository's address this clone's stands (its last commit), for port 9092 a free one. With `--own` the
first block is that of docs/installing.md, "In a project of your own", with the wheel of this checkout. Run by
`make newcomer`; the same blocks, but the first, are typed by README.md's test in the suite.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.reader import ROOT, Block, blocks_of

README, INSTALLING = ROOT / "README.md", ROOT / "docs" / "installing.md"
HOME = "https://github.com/eoslog/eoslog"
ADDRESS = "127.0.0.1:9092"
LIMIT_S = 300

_BEFORE = """\
set -eo pipefail
trap 'test -z "$broker" || {{ kill $broker; wait $broker || true; }}' EXIT
eoslog() {{
    if [ $1 = broker ]; then exec eoslog "$@"; else command eoslog "$@" --bootstrap-server {address}; fi
}}"""
_UNTIL_READY = "until grep -q ready broker.out; do kill -0 $broker; sleep 0.1; done"


def path_of(page: Path) -> list[Block]:
    """The blocks of a page's first section."""
    lines = page.read_text().splitlines()
    headings = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    return [block for block in blocks_of(page) if headings[0] < block.line < headings[1]]


def own_path(page: Path) -> list[Block]:
    """A wheel in place of the repository: how eoslog comes into an empty folder, and README from there."""
    (install,) = (block for block in blocks_of(INSTALLING) if block.code.startswith("python3 -m venv"))
    return [install, *path_of(page)[1:]]


def wheel() -> str:
    """This checkout as a wheel: its path."""
    subprocess.run(["make", "dist"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (found,) = (ROOT / "dist").glob("*.whl")
    return str(found)


def script_of(blocks: list[Block], home: str, address: str) -> str:
    """What is typed, as one script for bash."""
    lines = [_BEFORE.format(address=address)]
    for block in blocks:
        code = block.code.replace(HOME, home).replace(ADDRESS, address)
        lines.append('echo "--- after $SECONDS s"; set -x')
        if block.mark == "file":
            lines.append(f"{{ set +x; }} 2> /dev/null; cat > {block.says} <<'END OF FILE'\n{code}END OF FILE")
        elif code.startswith("eoslog broker"):
            lines.append(
                f"{{ set +x; }} 2> /dev/null; {code.strip()} > broker.out & broker=$!\n{_UNTIL_READY}"
            )
        else:
            lines.append(f"{code}{{ set +x; }} 2> /dev/null")
    return "\n".join([*lines, 'echo "--- first rows after $SECONDS s"'])


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def main() -> int:
    """Type it; the exit status says whether it worked, and in time."""
    with tempfile.TemporaryDirectory(prefix="eoslog-newcomer-") as place:
        own = "--own" in sys.argv[1:]
        blocks = own_path(README) if own else path_of(README)
        script = script_of(blocks, f"file://{ROOT}", f"127.0.0.1:{free_port()}")
        if own:
            script = script.replace(f"git+file://{ROOT}", wheel())
        began = time.monotonic()
        done = subprocess.run(["bash", "-c", script], cwd=place, check=False)
        took = time.monotonic() - began
        print(f"exit status {done.returncode}, {took:.0f} s of {LIMIT_S}")
        return done.returncode or int(took > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
