"""Threads for plain handlers, which the end of the program waits for, unless somebody is in a hurry."""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Work = tuple["Future[Any]", Callable[[], Any]] | None
"""What a thread does next; None: it ends."""

_awaited: dict[threading.Thread, "SimpleQueue[Work]"] = {}
"""The threads that the end of the program waits for, and where they get their work."""


class HandlerThreads(Executor):
    """Threads made as they are needed, kept until ``shutdown``, and forgotten by ``abandon``.

    Those of ``ThreadPoolExecutor`` cannot be left behind: a handler that blocks would keep the process after a second
    Ctrl-C. Like them, these are waited for before ``atexit``, so that handlers still find a whole interpreter.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._idle, self._lock = threading.Semaphore(0), threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = self._abandoned = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have it called by a thread. Raises RuntimeError after ``shutdown``."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads take no more work")
            self._work.put((future, partial(fn, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                self._start_one()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; threads end with what they do. May be called twice."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def abandon(self) -> None:
        """The end of the program waits for none of these threads: it cuts off what they still do."""
        with self._lock:
            self._abandoned = True
            for thread in self._threads:
                _awaited.pop(thread, None)

    def _start_one(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=_serve, args=(self._work, self._idle), name=name, daemon=True)
        self._threads.append(thread)
        if not self._abandoned:
            _awaited[thread] = self._work
        thread.start()

    def _cancel_waiting(self) -> None:
        try:
            while True:
                work = self._work.get_nowait()
                if work is not None:
                    work[0].cancel()
        except Empty:
            return


def _serve(works: "SimpleQueue[Work]", idle: threading.Semaphore) -> None:
    while (work := works.get()) is not None:
        _do(*work)
        del work  # or an idle thread would keep the last message in memory
        idle.release()
    _awaited.pop(threading.current_thread(), None)


def _do(future: "Future[Any]", call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        answer = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(answer)


def _wait_at_exit() -> None:
    waiting = dict(_awaited)
    for works in waiting.values():
        works.put(None)
    for thread in waiting:
        thread.join()


_register_at_exit: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_register_at_exit(_wait_at_exit)
