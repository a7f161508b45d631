"""A real browser, if one is installed: loads a page and returns the result."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def browser() -> str | None:
    """The program, or None if none is installed; then tests that need one are skipped."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def document_after_loading(page: Path, scratch: Path, *, seconds: int = 90) -> str:
    """The document as it is when scripts have run, as HTML. The browser can reach no network."""
    program = browser()
    assert program is not None
    arguments = [
        program,
        "--headless",
        "--no-sandbox",  # tests run as root in containers
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--proxy-server=127.0.0.1:9",  # the discard port: nothing answers
        f"--user-data-dir={scratch}",
        "--window-size=1200,700",
        "--virtual-time-budget=4000",
        "--dump-dom",
        page.as_uri(),
    ]
    # a session of its own: its helpers outlive it for a moment, and nothing may be left
    ran = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        document, said = ran.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)
        ran.wait()
    assert ran.returncode == 0, said
    return document
