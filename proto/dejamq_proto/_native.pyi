"""What the compiled module offers; ``native.py`` says when it is used."""

from collections.abc import Callable
from typing import Any

def join(
    alike: list[tuple[bytes, bytes, bytes, int]], bodies: list[bytes], ids: list[str], crc32: Callable[[Any], int],
    queue_ids: Any, born_ms: int, /,
) -> bytes | None: ...  # fmt: skip
def scan(data: Any, sizes: Any, /) -> bytearray | None: ...
def crcs_fit(data: Any, positions: Any, crc32: Callable[[Any], int], /) -> bool: ...
def counted(first: int, end: int, /) -> bytes: ...
def numbers(column: Any, first: int, end: int, /) -> bytes: ...
def keys(data: Any, properties_at: Any, first: int, end: int, /) -> bytes | None: ...
def announced(
    positions: Any, topic_at: Any, topic_size: Any, properties_at: Any, properties_size: Any, index: Any, codes: Any,
    data: Any, queues: list[tuple[str, int]], most_body: int, /,
) -> bool: ...  # fmt: skip
