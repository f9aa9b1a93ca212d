"""PySpark from its folder instead of Spark's zip: what is imported from a zip is compiled at every start."""

import os

_VERSION = "pyspark/version.py"


def prefer_installed(path: list[str]) -> None:
    """Take PySpark's zip from the path where a folder on it holds the very same version."""
    for archive in [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]:
        if any(_is_same(archive, folder) for folder in path):
            path.remove(archive)


def _is_same(archive: str, folder: str) -> bool:
    import zipfile

    installed = os.path.join(folder, _VERSION)
    if not os.path.isfile(installed) or not zipfile.is_zipfile(archive):
        return False
    with zipfile.ZipFile(archive) as packed, open(installed, "rb") as file:
        return packed.read(_VERSION) == file.read()
