"""Calls from other threads into the controller's event loop, which may have ended."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

RESULT_TIMEOUT_S: Final = 5.0

Result = TypeVar("Result")


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function in the loop, and do not wait; do nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


async def result_in(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in the loop of another thread and return its result.

    Raises TimeoutError if it took longer than `RESULT_TIMEOUT_S`. Raises RuntimeError if the loop has ended.
    """
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()  # Otherwise Python warns that the coroutine was never awaited.
        raise
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), RESULT_TIMEOUT_S)
    except TimeoutError:
        raise TimeoutError(
            f"the controller did not answer within {RESULT_TIMEOUT_S:g} s: try again"
        ) from None
