"""The life of an admin: its settings, its connections, start and end."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from dejamq_proto.codes import ClientClosed

from dejamq.admin.links import AdminLinks
from dejamq.values.config import ClientConfig, client_config
from dejamq.values.forking import ProcessOrigin


class AdminLife:
    """The base of every part of ``Admin``. Belongs to one event loop."""

    def __init__(self, namesrv: str | Sequence[str] | None = None, **settings: Any) -> None:
        """``settings`` are fields of ``ClientConfig``. Raises ConfigError."""
        self.config = client_config(ClientConfig, namesrv, settings)
        self._links: AdminLinks | None = None
        self._closed = False
        self._origin = ProcessOrigin()

    # life

    @property
    def closed(self) -> bool:
        """Closing has begun, or is done."""
        return self._closed

    async def start(self) -> None:
        """Nobody is asked before the first question. May be called twice."""
        self._check()
        if self._links is None:
            self._links = AdminLinks(self.config)

    async def close(self, timeout_ms: float | None = None) -> None:
        """Questions under way fail. May be called twice."""
        self._origin.check("admin")
        self._closed = True
        if self._links is not None:
            await self._links.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self) -> AdminLinks:
        self._check()
        if self._links is None:
            raise ClientClosed("this admin is not started; use `async with admin:` or await start()")
        return self._links

    def _check(self) -> None:
        """Raise ForkedProcess or ClientClosed."""
        self._origin.check("admin")
        if self._closed:
            raise ClientClosed("this admin is closed; make a new one")
