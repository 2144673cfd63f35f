"""The one event loop thread of a process that uses the blocking clients."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any, ParamSpec, TypeVar

from dejamq_proto.codes import Code, DejamqError, ForkedProcess

P = ParamSpec("P")
T = TypeVar("T")

SIGNALS_EACH_S = 0.2
"""The kernel may hand a signal to another thread; the main one, which runs Python's handlers, would wait on."""


class LoopThread:
    """A daemon thread with an event loop, started at first use; all clients of the process live in it.

    Ended at the interpreter's exit, after the clients that the program left open.
    """

    def __init__(self) -> None:
        self._started = threading.Event()
        self._at_exit: set[Callable[[], None]] = set()
        self._thread = threading.Thread(target=self._serve, name="dejamq-loop", daemon=True)
        self._thread.start()
        self._started.wait()

    def call(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in the loop and wait for its result. What interrupts the wait, such as Ctrl-C, cancels it."""
        if threading.current_thread() is self._thread:
            raise DejamqError(
                "a blocking call in the loop's own thread would wait for itself; use plain functions as handlers and "
                "callbacks of dejamq.sync, or the asyncio clients in `async def` ones",
                code=Code.SYSTEM_ERROR,
                definite=True,
            )
        future: Future[T] = Future()
        try:
            # the coroutine is made in the loop: Ctrl-C could come between its making and its start
            self.loop.call_soon_threadsafe(self._begin, future, partial(method, *args, **kwargs))
            if threading.current_thread() is threading.main_thread():
                while not future.done():
                    wait((future,), SIGNALS_EACH_S)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _begin(self, future: "Future[T]", call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        task = self.loop.create_task(call())
        task.add_done_callback(partial(_tell, future))
        future.add_done_callback(lambda done: self.soon(task.cancel) if done.cancelled() else None)

    def soon(self, callback: Callable[[], object]) -> None:
        """Run it in the loop, from any thread, without waiting."""
        self.loop.call_soon_threadsafe(callback)

    def open(self, close: Callable[[], None]) -> None:
        """``close`` is called at exit, unless ``closed`` was told before."""
        self._at_exit.add(close)

    def closed(self, close: Callable[[], None]) -> None:
        """This client is closed."""
        self._at_exit.discard(close)

    def end(self) -> None:
        """Close what is open, end the loop and wait for the thread."""
        for close in tuple(self._at_exit):
            close()
        self.soon(self.loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner() as runner:  # its end cancels the remaining tasks and closes the loop
            self.loop = runner.get_loop()
            self._started.set()
            self.loop.run_forever()


def _tell(future: "Future[T]", task: "asyncio.Task[T]") -> None:
    """The answer of the loop's task, for a thread that may have given up waiting for it."""
    error = CancelledError() if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


_current: LoopThread | None = None
_lock = threading.Lock()
_forked_from_running = False


def loop_thread() -> LoopThread:
    """The process's thread; started by the first who asks. Raises ForkedProcess where none can live."""
    global _current
    with _lock:
        if _forked_from_running:
            raise ForkedProcess(
                "this process was forked from one in which dejamq.sync was in use, and gRPC cannot go on in it; start "
                "clients after the fork only, or begin processes by 'spawn'"
            )
        if _current is None:
            _current = LoopThread()
            _register_at_exit(_end)
        return _current


def _end() -> None:
    global _current
    with _lock:
        ending, _current = _current, None
    if ending is not None:
        ending.end()


def _forked() -> None:
    """The child has neither the thread nor, maybe, the lock's holder."""
    global _current, _lock, _forked_from_running
    _forked_from_running = _forked_from_running or _current is not None
    _current, _lock = None, threading.Lock()


# Threads of handlers are given up before ``atexit``: messages that came after that would fail, and count as tries.
_register_at_exit: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
os.register_at_fork(after_in_child=_forked)
