"""An answer as a page for people, or as JSON for programs. Templates escape whatever they show."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from dejamq_proto.codes import BrokerUnavailable, Code, ConfigError, DejamqError, InvalidName
from dejamq_proto.texts import printable
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dejamq_cli.console.guard import WANTS_JSON

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
NOT_FOUND = frozenset({Code.QUERY_NOT_FOUND, Code.TOPIC_NOT_EXIST})
CLASSES = 8


@dataclass(frozen=True)
class Page:
    """``data`` is the JSON; the template sees it too, with ``view``, which is made for people only."""

    template: str
    data: Mapping[str, Any]
    view: Callable[[], Mapping[str, Any]] = field(default=dict)


Handler = Callable[[Request], Awaitable[Page]]


def clean(value: Any) -> Any:
    """What a template shows: nothing for None, and of a text no character that would do something."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def layout(text: str) -> Markup:
    """A text in lines, for ``pre``: its line ends and tabs stay."""
    return Markup("\n").join(escape(Markup("\t").join(map(printable, line.split("\t")))) for line in text.splitlines())


def utc(micros: int | None, digits: int = 3) -> str:
    """A moment as people read it."""
    if micros is None:
        return ""
    try:
        text = datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    except (ValueError, OverflowError, OSError):
        return f"{micros} µs"
    return text[: len(text) - 6 + digits] if digits else text[:-7]


def utc_ms(millis: int | None, digits: int = 3) -> str:
    return utc(None if not millis else millis * 1000, digits)


def iso(micros: int) -> str:
    """A moment that the console reads again."""
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number(value: float | None, digits: int = 0) -> str:
    """With thin spaces between thousands."""
    return "" if value is None else f"{value:,.{digits}f}".replace(",", "\u2009")


def seconds(value: float) -> str:
    """How long ago, in words."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if value < limit:
            return f"{value / size:.0f} {unit}"
    return f"{value / 86_400:.0f} days"


def segment(text: str) -> str:
    """A name as one step of a path."""
    return quote(text, safe="")


def query(**given: Any) -> str:
    """The end of an address; what is None or empty is left out."""
    told = {name.rstrip("_"): value for name, value in given.items() if value not in (None, "", False)}
    return "?" + urlencode(told) if told else ""


ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, finalize=clean,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
# the thin space is the console's own, so these come as Markup
ENVIRONMENT.filters |= {
    "utc": utc, "utc_ms": utc_ms, "iso": iso, "number": lambda *given: Markup(number(*given)), "ago": seconds,
    "segment": segment, "layout": layout,
}  # fmt: skip
ENVIRONMENT.globals |= {"query": query}


def wants_json(request: Request) -> bool:
    """By the path's end, or by an Accept header that prefers it."""
    if request.scope.get(WANTS_JSON):
        return True
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def render(template: str, context: Mapping[str, Any]) -> str:
    return ENVIRONMENT.get_template(template).render(context)


def as_json(value: Any, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value), status, media_type="application/json", headers={"Cache-Control": "no-store"}
    )


def answered(request: Request, page: Page, status: int = 200) -> Response:
    if wants_json(request):
        return as_json(page.data, status)
    frame = request.app.state.console.frame(request)
    text = render(page.template, {**frame, **page.data, **page.view()})
    return HTMLResponse(text, status, headers={"Cache-Control": "no-store", "Vary": "Accept"})


def shown(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """The handler as Starlette calls it. What a cluster cannot answer becomes a page that says so."""

    async def endpoint(request: Request) -> Response:
        try:
            return answered(request, await handler(request))
        except HTTPException as error:
            return troubled(request, error.detail, error.status_code)
        except DejamqError as error:
            return troubled(request, str(error), status_of(error))

    return endpoint


def status_of(error: DejamqError) -> int:
    if isinstance(error, BrokerUnavailable):
        return 502
    if error.code == Code.NO_PERMISSION:
        return 403
    if error.code in NOT_FOUND:
        return 404
    bad_use = isinstance(error, ConfigError | InvalidName) or error.code == Code.INVALID_PARAMETER
    return 400 if bad_use else 502


def troubled(request: Request, text: str, status: int) -> Response:
    return answered(request, Page("trouble.html", {"error": text, "status": status}), status)


def seen(address: str) -> Response:
    """After a change: a reload does not repeat it."""
    return RedirectResponse(address, 303)
