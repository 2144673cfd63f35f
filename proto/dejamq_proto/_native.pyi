"""What the compiled module offers; ``compiled.py`` says when it is used."""

from typing import Any

def scan(data: Any, sizes: Any, /) -> bytearray | None: ...
