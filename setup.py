"""Adds packaging/eoslog.pth to the wheel, beside the package: setup.cfg has no word for that."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithStartHook(build_py):  # type: ignore[misc]  # setuptools has no types here
    """Python's site module executes *.pth files beside packages at each start."""

    def run(self) -> None:
        """Copy the packages, and the hook beside them."""
        super().run()
        if not self.editable_mode:
            shutil.copy2(Path("packaging", "eoslog.pth"), self.build_lib)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Name the hook among the files of the wheel."""
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib, "eoslog.pth"))]

    def get_source_files(self) -> list[str]:
        """Name the hook among the files of the sdist."""
        return [*super().get_source_files(), "packaging/eoslog.pth"]


setup(cmdclass={"build_py": BuildWithStartHook})
