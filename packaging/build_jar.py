"""Puts the packages of a wheel into a jar, and the jar into a Maven repository that is a folder.

Spark imports Python packages from the root of a jar, so nothing in it is compiled: `_2.13` is only the name
that Spark's users expect. Run it as `make jar`; give the folder to `--repositories file://...`.
"""

import argparse
import hashlib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from xml.sax.saxutils import escape

GROUP, ARTIFACT = "io.github.eoslog", "eoslog_2.13"
ROOT = Path(__file__).parents[1]

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0"
         xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
         xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 http://maven.apache.org/xsd/maven-4.0.0.xsd">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>eoslog</name>
  <description>{summary}</description>
  <url>{url}</url>
  <licenses>
    <license>
      <name>{licence}</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
  </licenses>
</project>
"""
_METADATA = """<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <versioning>
    <latest>{version}</latest>
    <release>{version}</release>
    <versions>
      <version>{version}</version>
    </versions>
  </versioning>
</metadata>
"""


def install(wheel: Path, repository: Path) -> Path:
    """Install the jar with its pom, its metadata and the checksums of all three. Returns the jar's path."""
    about = wheel_metadata(wheel)
    artifact = repository.joinpath(*GROUP.split("."), ARTIFACT)
    words = {
        "group": GROUP,
        "artifact": ARTIFACT,
        "version": about["Version"],
        "summary": escape(about["Summary"]),
        "url": project_url(about),
        "licence": about["License-Expression"],
    }
    folder = artifact / about["Version"]
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{ARTIFACT}-{about['Version']}"
    jar, pom, index = Path(f"{stem}.jar"), Path(f"{stem}.pom"), artifact / "maven-metadata.xml"
    write_jar(wheel, jar)
    pom.write_text(_POM.format(**words))
    index.write_text(_METADATA.format(**words))
    for path in (jar, pom, index):
        _write_checksums(path)
    return jar


def write_jar(wheel: Path, jar: Path) -> None:
    """Write the wheel's packages in the wheel's order, with its times and its licence; a manifest comes
    first.
    """
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as target:
        version, when = wheel_metadata(wheel)["Version"], source.infolist()[0].date_time
        manifest = (
            "Manifest-Version: 1.0\r\n"
            f"Implementation-Title: {ARTIFACT}\r\n"
            f"Implementation-Version: {version}\r\n\r\n"
        )
        _add(target, "META-INF/MANIFEST.MF", when, manifest.encode())
        for entry in source.infolist():
            home, _, rest = entry.filename.partition("/")
            if not home.endswith((".dist-info", ".data", ".pth")):  # commands and hooks are not modules
                _add(target, entry.filename, entry.date_time, source.read(entry))
            elif rest.startswith("licenses/"):
                _add(target, f"META-INF/{Path(rest).name}", entry.date_time, source.read(entry))


def wheel_metadata(wheel: Path) -> Message:
    """The wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def project_url(about: Message) -> str:
    """The first of the project's URLs."""
    return str(about["Project-URL"]).partition(",")[2].strip()


def _add(jar: zipfile.ZipFile, name: str, when: tuple[int, int, int, int, int, int], data: bytes) -> None:
    entry = zipfile.ZipInfo(name, when)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
    jar.writestr(entry, data)


def _write_checksums(path: Path) -> None:
    for kind in ("md5", "sha1"):
        digest = hashlib.new(kind, path.read_bytes(), usedforsecurity=False).hexdigest()
        path.with_name(f"{path.name}.{kind}").write_text(digest)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--repository", type=Path, default=ROOT / "build" / "maven")
    given = parser.parse_args()
    print(install(given.wheel, given.repository))


if __name__ == "__main__":
    main()
