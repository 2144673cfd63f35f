"""The common part of all blocking clients: their asyncio client in the loop thread, and their life."""

import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from dejamq_proto.codes import ForkedProcess

from dejamq.sync.loop_thread import LoopThread, loop_thread
from dejamq.values.forking import ProcessOrigin

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(Protocol):
    """The life that every asyncio client has."""

    @property
    def closed(self) -> bool: ...

    async def start(self) -> None: ...

    async def close(self, timeout_ms: float | None = None) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


C = TypeVar("C", bound=AsyncClient)


class Facade(Generic[C]):
    """A client whose calls wait; may be used by several threads. ``with`` starts and closes it, as ``start`` does.

    Errors are those of the asyncio client. In a child that was forked after it was made every call raises
    ForkedProcess. A client that the program leaves open is closed at the interpreter's exit.
    """

    def __init__(self, inner: C) -> None:
        self._inner, self._origin = inner, ProcessOrigin()
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """As the asyncio client's; may be called twice."""
        thread = self._loop()
        thread.open(self._close_at_exit)  # before: Ctrl-C may end the wait for a client that has just started
        try:
            thread.call(self._inner.start)
        except Exception:
            thread.closed(self._close_at_exit)
            raise

    def start_later(self) -> C:
        """The asyncio client, for ``run``, which starts it in the loop; closed at exit like all others."""
        self._loop().open(self._close_at_exit)
        return self._inner

    def close(self, timeout_ms: float | None = None) -> None:
        """As the asyncio client's: drains; may be called twice. Ctrl-C ends the wait, not the closing."""
        self._await(self._inner.close, timeout_ms)
        self._loop().closed(self._close_at_exit)

    @property
    def closed(self) -> bool:
        """Closing has begun, or is done."""
        return self._inner.closed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._await(self._inner.__aexit__, kind, error, trace)  # raises what ended the client in the background

    def _await(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop().call(method, *args, **kwargs)

    def _do(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain method of the client where the client lives."""

        async def run() -> T:
            return method(*args, **kwargs)

        return self._loop().call(run)

    def _loop(self) -> LoopThread:
        if not self._origin.here:
            raise ForkedProcess("this client was made before fork; make a new one in the child process")
        if self._thread is None:
            self._thread = loop_thread()
        return self._thread

    def _close_at_exit(self) -> None:
        self.close()
