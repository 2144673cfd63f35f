"""Threads for what waits for a disk. One that hangs takes none of the threads that asyncio resolves names with."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

MOST_THREADS = 64
"""More than a broker has files that are written beside its loop. Each file has one write under way at most."""
_threads = ThreadPoolExecutor(MOST_THREADS, "dejamq-disk")


async def beside_loop(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """As ``asyncio.to_thread``, in a thread of these."""
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: function(*arguments, **named))
