"""The time that jobs wait for leaves on hosts."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.service.leaves import Leaves


@pytest.mark.parametrize("starts", [False, True])
def test_a_job_goes_on_once_a_leaf_starts_or_its_time_is_over(starts: bool) -> None:
    async def story() -> list[bool]:
        ready: set[str] = set()
        trees: Any = SimpleNamespace(leaves_of=lambda record: {"rack"})
        job: Any = SimpleNamespace(record=None, present=lambda: (), reason="")
        over = asyncio.Event()
        leaves = Leaves(trees, cast(Any, SimpleNamespace(ready=ready)), 0.01, over.set)
        waits = [leaves.wait_for(job)]
        assert job.reason == "the switch rack for ranks that share a host starts"
        if starts:
            ready.add("rack")
            await asyncio.sleep(0.02)
            assert not over.is_set(), "the switch that is ready has said so itself"
        else:
            await asyncio.wait_for(over.wait(), 30.0)
        return [*waits, leaves.wait_for(job)]

    assert asyncio.run(story()) == [True, False]
