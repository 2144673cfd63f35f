"""What the compiled module offers; ``native.py`` says when it is used."""

from typing import Any

def join(
    headers: list[bytes], bodies: list[bytes], before_ids: list[bytes], ids: list[str], rests: list[bytes], crcs: Any,
    queue_ids: Any, born_ms: int, /,
) -> bytes | None: ...  # fmt: skip
def scan(data: Any, sizes: Any, /) -> bytearray | None: ...
