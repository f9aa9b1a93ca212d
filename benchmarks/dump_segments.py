"""Reads every file of a broker's log folder with Kafka's own DumpLogSegments; any complaint is a failure.

`make dump-segments` gets Kafka's tools and runs this over what the demo left.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

TOOL = "org.apache.kafka.tools.DumpLogSegments"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPLAINTS = re.compile(
    r"exception|error|mismatch|corrupt|invalid|isvalid: false|Could not|not found|Non-sequential"
    r"|Found .* bytes|Misaligned|no messages",
    re.IGNORECASE,
)
FILES_PER_CALL = 200
DECODERS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}


def groups(data: Path) -> dict[str | None, list[Path]]:
    """The log files by the decoder that Kafka's tool needs for them."""
    found: dict[str | None, list[Path]] = {}
    for path in sorted(data.glob("*/*")):
        if path.suffix in SUFFIXES:
            topic = path.parent.name.rsplit("-", 1)[0]
            decoder = DECODERS.get(topic) if path.suffix == ".log" else None
            found.setdefault(decoder, []).append(path)
    return found


def dump(kafka: Path, files: list[Path], decoder: str | None) -> tuple[int, list[str]]:
    """Runs the tool over the files; returns the number of lines printed and the complaints among them."""
    names = ",".join(str(f) for f in files)
    command = ["java", "-cp", f"{kafka}/*", TOOL, "--deep-iteration", "--files", names]
    if decoder is not None:
        command.append(decoder)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines() + [line for line in done.stderr.splitlines() if "SLF4J" not in line]
    bad = [line for line in lines if COMPLAINTS.search(line) and "isvalid: true" not in line]
    if done.returncode != 0:
        bad.append(f"exit status {done.returncode}")
    return len(lines), bad


def main() -> int:
    """Command line; exit status 0 only if the tool read every file without a complaint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, required=True, help="folder with Kafka's jars")
    parser.add_argument("--data", type=Path, required=True, help="the broker's data folder")
    args = parser.parse_args()
    files = lines = 0
    complaints: list[str] = []
    for decoder, paths in groups(args.data).items():
        for at in range(0, len(paths), FILES_PER_CALL):
            count, bad = dump(args.kafka, paths[at : at + FILES_PER_CALL], decoder)
            lines += count
            complaints += bad
        files += len(paths)
        print(f"{len(paths)} files read with {decoder or 'no decoder'}")
    print(f"{files} files, {lines} lines, {len(complaints)} complaints")
    for line in complaints[:20]:
        print("  " + line)
    return 0 if files and not complaints else 1


if __name__ == "__main__":
    sys.exit(main())
