"""A process that is played inside this one: a context with failpoints, a clock, journals and tasks of its own.

Objects that are made and started in it see these instead of the real process's. It can be left as SIGKILL would leave
it, because its journals and its tasks are gathered here, and nothing else makes it known to others.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from dejamq_proto import failpoints
from dejamq_proto.failpoints import Failpoints
from dejamq_proto.journal.writer import Journal, gather

Given = ParamSpec("Given")
Made = TypeVar("Made")
FIRST_PID = 10_000_000
"""Above all that Linux gives, so that an audit takes no fault of a played process for one of a real process."""
_here: contextvars.ContextVar["PlayedProcess | None"] = contextvars.ContextVar("played process", default=None)
_pids = itertools.count(FIRST_PID)


class PlayedProcess:
    """From a start to an end; another start is another one."""

    def __init__(self, armed: Path | None) -> None:
        """``armed``: the file that arms its failpoints and sets its clock."""
        self.pid = next(_pids)
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.journals: list[Journal] = []
        self._context = contextvars.copy_context()
        self.failpoints = Failpoints(f"@{armed}" if armed else "")
        self._context.run(self._enter)

    def _enter(self) -> None:
        failpoints.carry(self.failpoints)
        self.journals = gather()
        _here.set(self)

    def make(self, what: Callable[Given, Made], *given: Given.args, **more: Given.kwargs) -> Made:
        """Make something of it."""
        return self._context.run(what, *given, **more)

    async def do(self, work: Coroutine[Any, Any, Made]) -> Made:
        """Do something as it."""
        return await asyncio.get_running_loop().create_task(work, context=self._context)

    def fall_silent(self) -> None:
        """Its journals end here, without a word."""
        for journal in self.journals:
            journal.abandon()

    async def vanish(self) -> None:
        """End all its tasks where they are. Call ``fall_silent`` first, and see that they can reach nobody."""
        left = [task for task in self.tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def tracked(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Made] | Generator[Any, None, Made],
    *,
    context: contextvars.Context | None = None,
) -> asyncio.Task[Made]:
    """A loop's task factory that tells each played process of its tasks."""
    task = asyncio.Task(work, loop=loop, context=context)
    process = _here.get() if context is None else context.get(_here)
    if process is not None:
        process.tasks.add(task)
    return task
