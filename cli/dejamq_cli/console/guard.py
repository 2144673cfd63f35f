"""Who may ask, what a browser may do with the answer, and who may change something."""

import secrets
from collections.abc import Collection, Iterable
from urllib.parse import parse_qsl

from dejamq_proto.texts import number_of
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejamq_cli.console.settings import is_address

POLICY = "; ".join([
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
])  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
JSON_PATH, WANTS_JSON = ".json", "dejamq.json"
TOKEN_HEADER, TOKEN_FIELD = "X-Dejamq-Token", "token"
FORM_TYPE, MOST_FORM_BYTES = "application/x-www-form-urlencoded", 64 << 10


class HostGuard:
    """Refuses names that are not the console's own, against DNS rebinding. Sets the headers of every answer.

    A path that ends with ``.json`` goes on without it, as one that wants JSON.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        app = self._app if self._is_known(Headers(scope=scope).get("host", "")) else _misdirected
        path = scope["path"]
        if path.endswith(JSON_PATH):
            scope = {**scope, "path": path.removesuffix(JSON_PATH) or "/", WANTS_JSON: True}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await app(scope, receive, guarded)

    def _is_known(self, host: str) -> bool:
        """An address cannot be rebound: only a name leads elsewhere from one moment to the next."""
        name = host_name(host)
        return name in self._names or is_address(name)


async def _misdirected(scope: Scope, receive: Receive, send: Send) -> None:
    text = "This is no name of this console. Its owner can add it: dejamq console --host-name NAME\n"
    await PlainTextResponse(text, status_code=421)(scope, receive, send)


def host_name(host: str) -> str:
    """Of a Host header, without its port."""
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


async def check_change(request: Request, token: str | None) -> None:
    """Raise HTTPException unless changes are allowed, the request comes from the console's own page, or from no page,
    and has the token.
    """
    if token is None:
        raise HTTPException(403, "This console changes nothing. Start it with --allow-changes.")
    if not _is_own(request.headers):
        raise HTTPException(403, "Another site asked for this.")
    given = request.headers.get(TOKEN_HEADER)
    if given is None:
        given = (await form_of(request)).get(TOKEN_FIELD, "")
    if not secrets.compare_digest(given.strip().encode(), token.encode()):
        raise HTTPException(403, "The token is not that of this console: it was printed when the console started.")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of an urlencoded form, the last of each name. Raises HTTPException for anything else."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise HTTPException(415, f"This takes {FORM_TYPE}.")
    if number_of(request.headers.get("content-length"), MOST_FORM_BYTES) is None:
        raise HTTPException(413, "That is more than a form has.")
    try:
        body = await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "The form ended early.") from None  # nobody hears it
    return dict(parse_qsl(body.decode(errors="replace")))


OWN_SITES: Collection[str | None] = (None, "same-origin", "none")


def _is_own(headers: Headers) -> bool:
    """Browsers say where a change comes from."""
    origin = headers.get("origin")
    same = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
    return same and headers.get("sec-fetch-site") in OWN_SITES
