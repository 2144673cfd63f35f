"""Where a server's metrics are exported to."""

import msgspec


class OtlpTarget(msgspec.Struct, frozen=True):
    """``address``: ``http://host:port`` is without TLS, ``https://host:port`` and no scheme are with it."""

    address: str
    headers: tuple[tuple[str, str], ...]
    interval_ms: int
    timeout_ms: int
