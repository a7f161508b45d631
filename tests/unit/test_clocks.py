"""The clocks of ranks, from outside."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from crdebug.base.errors import CrdebugError
from crdebug.job import clocks
from crdebug.job.waitpoint import WaitpointHold

pytestmark = pytest.mark.unit


def test_of_a_rank_that_is_gone_there_is_a_clock_that_says_so() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (clock,) = clocks.find([cast(WaitpointHold, SimpleNamespace(rank=3, pid=gone.pid))], "/pmpi.so")
    assert clock.rank == 3
    for look in (clock.read, lambda: clock.set_stop(clocks.NEVER)):
        with pytest.raises(ProcessLookupError) as error:
            look()
        # whoever did not expect it says it in words
        assert isinstance(error.value, CrdebugError)
        assert str(error.value).startswith("rank 3: it has ended")
