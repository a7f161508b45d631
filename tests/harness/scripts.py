"""Python scripts that replace a program and are started by their path."""

from __future__ import annotations

import sys

# How each begins. In a line that begins with #! the kernel takes what comes before the first blank
# for the interpreter, and a checkout's path may have blanks: so the shell starts it.
BY_PATH = f"""#!/bin/sh
"exec" "{sys.executable}" "-IS" "$0" "$@"
"""
