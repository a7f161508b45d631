"""What several test files of this tier begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from fake_rank import Rank, soon


@pytest_asyncio.fixture
async def rank() -> AsyncIterator[Rank]:
    rank = Rank()
    yield rank
    await rank.target.close(soon())


@pytest_asyncio.fixture
async def attached(rank: Rank) -> Rank:
    await rank.attach()
    return rank
