"""Make this directory the package `crdebug_gdb` of GDB's Python; the other scripts source it.

Not through sys.path, where modules of ours would hide others of the same name.
"""

from __future__ import annotations

import importlib.util
import os
import sys


def load_crdebug(home: str) -> None:
    if "crdebug_gdb" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "crdebug_gdb", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["crdebug_gdb"] = package
    spec.loader.exec_module(package)


load_crdebug(os.path.dirname(os.path.abspath(os.path.expanduser(__file__))))
