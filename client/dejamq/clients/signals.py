"""Signals that ask a client to stop, for as long as somebody waits for them."""

import asyncio
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from dejamq_proto.codes import ConfigError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Inside ``with``: the first signal sets ``stopped``, a further one ``hurried``. Earlier handlers come back."""

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self._signals = tuple(signals)
        self._earlier: dict[signal.Signals, Any] = {}
        self.stopped = asyncio.Event()
        self.hurried = asyncio.Event()

    def __enter__(self) -> "StopSignals":
        """Raises ConfigError outside of the main thread, where no handler can be set, with the earlier ones put
        back.
        """
        loop = asyncio.get_running_loop()
        for number in self._signals:
            earlier = signal.getsignal(number)
            try:
                loop.add_signal_handler(number, self._arrived)
            except (ValueError, RuntimeError) as error:
                self._restore()
                text = f"signals can be handled in the main thread only ({error}); elsewhere pass signals=()"
                raise ConfigError(text) from None
            self._earlier[number] = earlier
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _arrived(self) -> None:
        (self.hurried if self.stopped.is_set() else self.stopped).set()

    def _restore(self) -> None:
        loop = asyncio.get_running_loop()
        for number, earlier in self._earlier.items():
            loop.remove_signal_handler(number)
            if earlier is not None:  # None: installed by something other than Python, which cannot be put back
                signal.signal(number, earlier)
        self._earlier.clear()
