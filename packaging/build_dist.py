"""Builds the sdist, and the wheel from the sdist, from the working tree as it is.

Files that git ignores (build/, an old *.egg-info) are left out. Run it as `make dist`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MADE = ("protocol/typed.pyi",)
_NOT_PACKED = ("benchmarks/", "docs/", "examples/", "tests/")


def build(out: Path, *, isolated: bool = True) -> tuple[Path, Path]:
    """Build wheel and sdist into a folder without older ones.

    `isolated`: with the build system that pyproject.toml asks for, fetched by pip; otherwise with that of the
    running Python. Raises subprocess.CalledProcessError with the build's messages on standard error.
    """
    shutil.rmtree(out, ignore_errors=True)
    ours = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
    }  # the schemas of this checkout
    subprocess.run([sys.executable, ROOT / "packaging" / "message_types.py"], check=True, env=ours)
    with tempfile.TemporaryDirectory(prefix="eoslog-dist-") as copy:
        _copy_source(Path(copy))
        options = ["--quiet", "--outdir", str(out)] + ([] if isolated else ["--no-isolation"])
        subprocess.run(
            [sys.executable, "-m", "build", *options, copy], check=True, env=os.environ | _last_change()
        )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def _copy_source(to: Path) -> None:
    for name in source_files():
        if name.startswith(_NOT_PACKED):
            continue
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def source_files() -> list[str]:
    """The files that git tracks, or would add, and those that `build` makes."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in (*listed.split("\0"), *_MADE) if name and _is_there(ROOT / name)})


def _is_there(path: Path) -> bool:
    return path.is_file() or path.is_symlink()


def _last_change() -> dict[str, str]:
    """The time of the wheel's files: the last commit's, so that building again gives the same wheel."""
    last = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=True, capture_output=True)
    return {"SOURCE_DATE_EPOCH": last.stdout.decode().strip()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    for path in build(parser.parse_args().out):
        print(path)


if __name__ == "__main__":
    main()
