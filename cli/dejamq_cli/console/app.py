"""The console as an application: its parts, and which address shows which page."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dejamq_cli.console import duplicates, groups, messages, overview
from dejamq_cli.console.answers import STATIC, shown, troubled
from dejamq_cli.console.audits import Audits
from dejamq_cli.console.guard import HostGuard
from dejamq_cli.console.live import Bell, Watch
from dejamq_cli.console.settings import ConsoleSettings


class Console:
    """What pages read: the last look at the cluster, and the last audit."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.bell = Bell()
        self.watch = Watch(settings.namesrv, settings.refresh_s, self.bell)
        self.audits = Audits(settings, lambda: self.bell.ring("audit"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(one.run()) for one in (self.watch, self.audits)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def frame(self, request: Request) -> Mapping[str, Any]:
        """What every page has around it."""
        raw = request.scope["raw_path"].decode("ascii", "replace")
        path = "/" + raw.lstrip("/\\")  # two of them would lead to another host
        asked = f"?{request.url.query}" if request.url.query else ""
        return {
            "here": path + asked, "path": request.url.path, "audit": self.audits.state(),
            "allowed": self.settings.token is not None, "namesrv": self.settings.namesrv,
            "cluster_error": self.watch.error,
            "json_here": f"{path}.json{asked}",
        }  # fmt: skip


async def events(request: Request) -> Response:
    """What is new, as it happens."""
    bell: Bell = request.app.state.console.bell
    if bell.is_full:
        raise HTTPException(503, "Too many pages listen.")
    return StreamingResponse(bell.events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _trouble(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return troubled(request, error.detail, error.status_code)


def application(console: Console) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with console.running():
            yield

    pages = {
        "/": overview.overview,
        "/overview": overview.overview,
        "/topics/{topic}": messages.topic,
        "/messages/{message}": messages.message,
        "/groups/{group}": groups.group,
        "/groups/{group}/dead-letters": groups.dead_letters,
        "/duplicates": duplicates.duplicates,
        "/duplicates/compare": duplicates.compare,
        "/duplicates/{finding}": duplicates.pair,
        "/causes": duplicates.catalogue,
    }
    app = Starlette(
        routes=[
            *(Route(path, shown(handler)) for path, handler in pages.items()),
            Route("/groups/{group}/replay", groups.replay, methods=["POST"]),
            Route("/events", events),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(HostGuard, names=console.settings.names)],
        exception_handlers={HTTPException: _trouble},
        lifespan=lifespan,
    )
    app.state.console = console
    return app
