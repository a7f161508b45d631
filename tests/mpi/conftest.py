"""Every test of this tier has its own state directory, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.jobs import state_directory
from harness.leaks import no_leaks  # noqa: F401


@pytest.fixture(autouse=True)
def home(
    no_leaks: None,  # noqa: F811 - torn down after this one
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """An empty state directory; tmp_path is the working directory, where programs leave files."""
    monkeypatch.chdir(tmp_path)
    with state_directory(tmp_path / "home", monkeypatch) as path:
        yield path
