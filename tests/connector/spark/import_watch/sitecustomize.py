"""Notes in every Python process of an application what eoslog imports of what is slow to import.

Python imports this module by itself where its folder is on PYTHONPATH. A line of the file that
EOSLOG_IMPORTS names: the process (pyspark's module), the module that is imported, who imports it.
"""

import os
import sys
from types import FrameType

SLOW = frozenset(
    {
        "pandas", "numpy", "pyarrow", "pyarrow.compute", "pyarrow.fs", "ssl", "urllib.request", "http.client",
        "importlib.metadata", "zipfile", "asyncio", "multiprocessing",
    }
)  # fmt: skip


class _Watch:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name not in SLOW:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        who = frame.f_code.co_filename if frame is not None else ""
        if "/connector/" in who or "/protocol/" in who:
            process = next((arg for arg in reversed(sys.orig_argv) if arg.startswith("pyspark")), "driver")
            with open(os.environ["EOSLOG_IMPORTS"], "a") as notes:
                notes.write(f"{process} {name} {who.rpartition('/')[2]}\n")


if "EOSLOG_IMPORTS" in os.environ:
    sys.meta_path.insert(0, _Watch())
