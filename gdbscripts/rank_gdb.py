"""crdebug's part inside the GDB that it starts for a rank, which sources this file."""

import importlib
import os

import gdb

HERE = os.path.dirname(os.path.abspath(os.path.expanduser(__file__)))
gdb.execute(f"source {os.path.join(HERE, 'load.py')}", to_string=True)

import crdebug_gdb  # type: ignore[import-not-found] # noqa: E402, F401 - load.py has made it

PARTS = (
    "addresses arrays breakpoints call_sites checkpoint endings frames index_cache inject jump"
    " python_errors python_leave python_lines snapshot.commands step_ends timed_waits traces"
    " variables"
)
for part in PARTS.split():
    importlib.import_module(f"crdebug_gdb.{part}")
