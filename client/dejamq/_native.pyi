"""What the compiled module offers; ``native.py`` says when it is used."""

import asyncio
from collections.abc import Callable
from typing import Any

class IdSource:
    def __init__(self, advance: Callable[[int], tuple[float, float, int, str]]) -> None: ...
    def take(self) -> str: ...
    def forget(self) -> None: ...

class MessageCheck:
    def __init__(self, slow: Callable[[Any], None]) -> None: ...
    def take(self, message: Any, /) -> None: ...

class Tally:
    bytes: int
    calls: int

class Shortcut:
    def __init__(
        self, message_type: type[Any], tally: Tally, new_future: Callable[[], asyncio.Future[Any]], max_bytes: int,
        call_bytes: int, body_below: int,
    ) -> None: ...  # fmt: skip
    def open(
        self, mode: str, messages: list[Any], commons: list[Any], sizes: list[int], futures: list[Any], /
    ) -> None: ...
    def learn(self, model: Any, common: Any, common_size: int, /) -> None: ...
    def close(self) -> None: ...
    def take(self, message: object, mode: str, /) -> asyncio.Future[Any] | None: ...
