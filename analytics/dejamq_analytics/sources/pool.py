"""Processes of this machine that read files side by side."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

from dejamq_analytics.sources.interrupts import held_back

Task = TypeVar("Task")
Told = TypeVar("Told")


@contextmanager
def pool_for(tasks: int) -> Iterator[Executor]:
    """As many processes as there are cores, or tasks. Raises ChildProcessError when one of them is killed."""
    pool = ProcessPoolExecutor(min(_cores(), max(tasks, 1)), get_context("spawn"), _end_with_parent)
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError("a process that read files was killed: is there too little memory?") from None
    finally:
        pool.shutdown(cancel_futures=True)


def each(pool: Executor, work: Callable[[Task], Told], tasks: Sequence[Task]) -> list[Told]:
    """What the work on each task tells, in the order of the tasks."""
    with _no_interrupt():  # the pool starts processes when it is given work
        told = [pool.submit(work, task) for task in tasks]
    # none is cancelled here: the pool's thread stumbles over those while it tells that a process died
    ended, _ = wait(told, return_when=FIRST_EXCEPTION)
    for one in ended:
        one.result()
    return [one.result() for one in told]


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """A process of the pool would otherwise wait for work for ever when its parent is killed."""
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    Thread(target=end, daemon=True).start()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C counts when the block has ended. Processes that begin in it never hear of Ctrl-C: their parent does.

    They inherit the mask. Where a thread of a library takes the signal, whose mask is its own, it is held back, too.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with held_back():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
