"""The HTTP pages of a server under test: faults, duplicates, the advertised address, health, and their description."""

from collections.abc import Awaitable, Callable
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import msgspec
from dejamq_proto.access.guard import Guard, Unauthenticated
from dejamq_proto.access.http_rights import CHALLENGE
from dejamq_proto.codes import Code, ConfigError, DejamqError, PermissionDenied
from dejamq_proto.loose_json import BAD_JSON
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dejamq_lab.broker_duplicates import RepeatedHandOut, find_repeats
from dejamq_lab.control import faults
from dejamq_lab.control.server import ServerUnderTest

MOST_BYTES, MOST_SHOWN = 64 << 10, 300
READ = "GET /openapi.json describes every request"
KEYS = "HTTP basic with the access key and the secret of a user, or a bearer token: see access.md"
HEALTH = "/health"
Handler = Callable[[Request], Awaitable[Response]]


class ProblemError(Exception):
    """A request that is answered with a Problem."""

    def __init__(self, status: int, error: str, hint: str = READ, **headers: str) -> None:
        super().__init__(error)
        self.status, self.problem, self.headers = status, faults.Problem(error, hint), headers


class Repeats(msgspec.Struct, frozen=True):
    """The answer on ``/duplicates``."""

    group: str
    duplicates: list[RepeatedHandOut]


class ControlPages:
    """Each method answers one kind of request."""

    def __init__(self, server: ServerUnderTest) -> None:
        self._server = server

    async def strike(self, request: Request) -> Response:
        """Do a fault, and tell which stand."""
        fault = _decoded(await _body(request), faults.AnyFault, "fault", f"fault is one of {', '.join(faults.KINDS)}")
        await self._server.strike(fault)
        return _json(self._server.standing())

    async def clear(self, _: Request) -> Response:
        """End all faults."""
        await self._server.clear()
        return _json(self._server.standing())

    async def standing(self, _: Request) -> Response:
        """Tell which faults stand."""
        return _json(self._server.standing())

    async def duplicates(self, request: Request) -> Response:
        """Tell what the broker handed to a group twice, or stored twice."""
        group = request.query_params.get("group", "")
        if not group:
            raise ProblemError(400, "the consumer group is missing", "GET /duplicates?group=GROUP")
        return _json(Repeats(group, find_repeats(self._server.journal_dir, group, self._server.strikes())))

    async def advertise(self, request: Request) -> Response:
        """Tell clients another address from now on."""
        told = _decoded(await _body(request), faults.Advertise, "address", '{"address": "localhost:32771"}')
        await self._server.advertise(told.address)
        return _json(faults.Address(told.address))

    async def health(self, _: Request) -> Response:
        """200 where clients can use the server, else 503."""
        found = await self._server.health()
        return _json(found, 200 if found.status == "SERVING" else 503)

    async def openapi(self, _: Request) -> Response:
        """The description of all this."""
        return _json(openapi())


def app(server: ServerUnderTest, guard: Guard | None = None) -> Starlette:
    """What a web server runs. No page of another site can use it: browsers say where a request comes from.

    ``guard`` is asked for everything but health; None: whoever reaches it may do everything.
    """
    pages = ControlPages(server)
    table: list[tuple[str, str, Handler]] = [
        ("/faults", "POST", pages.strike), ("/faults", "DELETE", pages.clear), ("/faults", "GET", pages.standing),
        ("/duplicates", "GET", pages.duplicates), ("/advertise", "POST", pages.advertise),
        (HEALTH, "GET", pages.health), ("/openapi.json", "GET", pages.openapi),
    ]  # fmt: skip
    made = Starlette(routes=[_route(path, {m: h for p, m, h in table if p == path}, guard) for path, _, _ in table])
    made.add_exception_handler(404, _not_found)
    return made


def _route(path: str, handlers: dict[str, Handler], guard: Guard | None) -> Route:
    """One path with all its methods, so that another method is answered with those that there are."""

    async def answer(request: Request) -> Response:
        try:
            if "origin" in request.headers:
                raise ProblemError(403, "a web page asked for this", "programs and curl are served, pages are not")
            method = "GET" if request.method == "HEAD" else request.method
            handler = handlers.get(method)
            if guard is not None and path != HEALTH:
                _admit(guard, f"{method} {path}", request)
            if handler is None:
                raise ProblemError(405, f"{path} knows {', '.join(handlers)}, not {request.method}")
            return await handler(request)
        except ProblemError as refused:
            return _json(refused.problem, refused.status, refused.headers)
        except DejamqError as error:
            if isinstance(error, ConfigError) or error.code == Code.INVALID_PARAMETER:
                return _json(faults.Problem(str(error), READ), 400)
            return _json(faults.Problem(str(error), "GET /faults tells what stands; DELETE /faults ends all"), 409)

    return Route(path, answer, methods=["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"])


def _admit(guard: Guard, page: str, request: Request) -> None:
    """Raises ProblemError."""
    asked = SimpleNamespace(group=request.query_params.get("group", ""))
    try:
        guard.http(page, request.headers.get("authorization"), request.client.host if request.client else "", asked)
    except Unauthenticated as error:
        raise ProblemError(401, str(error), KEYS, **{"WWW-Authenticate": CHALLENGE}) from None
    except PermissionDenied as error:
        raise ProblemError(403, str(error), KEYS) from None


async def _not_found(request: Request, _: Exception) -> Response:
    return _json(faults.Problem(f"there is no {request.url.path}", READ), 404)


async def _body(request: Request) -> bytes:
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BYTES:
                raise ProblemError(413, f"a body has at most {MOST_BYTES} bytes")
    except ClientDisconnect:
        raise ProblemError(400, "the body ended early") from None  # nobody hears it
    return body


def _decoded(body: bytes, kind: Any, name: str, example: str) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except BAD_JSON as error:
        text = str(error)[:MOST_SHOWN]  # it quotes what came
        if "$.operation" in text:
            example = f"operation is one of {', '.join(faults.OPERATIONS)}"
        raise ProblemError(400, f"the body is no {name}: {text}", example) from None


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def openapi() -> dict[str, Any]:
    """The description, made of the shapes that are read and written."""
    shapes = (
        faults.AnyFault, faults.Faults, Repeats, faults.Advertise, faults.Address, faults.Health, faults.Problem
    )  # fmt: skip
    schemas, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    fault, standing, repeats, told, address, health, problem = schemas

    def of(summary: str, answer: Any, **more: Any) -> dict[str, Any]:
        refused = {"description": "refused: what is wrong, and what to do", "content": _content(problem)}
        responses = {"200": {"description": "done", "content": _content(answer)}, "default": refused}
        return {"summary": summary, "responses": responses, **more}

    def body(shape: Any) -> dict[str, Any]:
        return {"required": True, "content": _content(shape)}

    group = {"name": "group", "in": "query", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "dejamq dev --control", "version": metadata.version("dejamq")},
        "paths": {
            "/faults": {
                "get": of("Which faults stand", standing),
                "post": of("Do a fault", standing, requestBody=body(fault)),
                "delete": of("End all faults: heal, resume, restart", standing),
            },
            "/duplicates": {"get": of("What a group got twice", repeats, parameters=[group])},
            "/advertise": {"post": of("Tell clients another address", address, requestBody=body(told))},
            "/health": {"get": of("200 where clients can use the server, else 503", health)},
        },
        "components": {"schemas": components},
    }


def _content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
