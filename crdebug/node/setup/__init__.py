"""`crdebug setup`: programs that crdebug needs, for a user who has no checkout.

The shell scripts in this directory do it; scripts/setup of a checkout uses the same ones, before
there is a Python.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from crdebug.base.errors import NotAvailable

_SCRIPT = Path(__file__).parent / "setup"


def become_setup(*, gdb: bool) -> NoReturn:
    """Replace this process by the setup script, whose exit status is then the program's.

    gdb: install the newer GDB even if the machine's works. Raises NotAvailable without bash.
    """
    arguments = ["--gdb"] if gdb else []
    # CRIU is tried by the Python that runs crdebug: it is there, and new enough
    environment = {**os.environ, "CRDEBUG_PYTHON": sys.executable}
    try:
        os.execvpe("bash", ["bash", str(_SCRIPT), *arguments], environment)
    except OSError as error:
        raise NotAvailable(f"cannot start bash: {error.strerror}", hint="install it") from None
