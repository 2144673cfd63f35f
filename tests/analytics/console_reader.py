"""A reader of the console's pages: asks over HTTP, and looks whether a page holds anything that could run."""

import asyncio
import http.client
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
OWN_SCRIPTS = {"/static/htmx.min.js", "/static/console.js"}
KNOWN_TAGS = {
    "a", "b", "body", "br", "button", "circle", "code", "dd", "div", "dl", "dt", "figure", "footer", "form", "h1",
    "h2", "h3", "head", "header", "html", "i", "input", "label", "li", "line", "link", "main", "meta", "nav", "ol",
    "p", "path", "polyline", "pre", "rect", "script", "section", "small", "span", "svg", "table", "tbody", "td",
    "text", "th", "thead", "title", "tr", "ul",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "' onmouseover=alert(1) x='",
    '" autofocus onfocus=alert(1) "', "\x1b[31mred\x1b[0m\x07", "\u202egnp.exe", "{{7*7}}{% raw %}",
    "javascript:alert(1)", "</title></pre></svg><svg onload=alert(1)>",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def _ask(address: str, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=50)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


async def get(address: str, path: str, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await asyncio.to_thread(_ask, address, "GET", path, None, named)


async def post(address: str, path: str, fields: dict[str, str], **headers: str) -> Answer:
    named = {"Content-Type": "application/x-www-form-urlencoded"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await asyncio.to_thread(_ask, address, "POST", path, urlencode(fields), named)


class Seen(HTMLParser):
    """What a browser would make of a page. ``wrong`` names everything that is not the console's own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.wrong = [f"control character {found[0]!r}" for found in CONTROL.finditer(page)]
        self.feed(page)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in KNOWN_TAGS or (tag == "script" and given.get("src") not in OWN_SCRIPTS):
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith(("on", "hx-on")) or name == "style":
                self.wrong.append(f"{name}={value}")
            if name in ("href", "src", "action"):
                self.links.append(value or "")
                if not (value or "").startswith(("/", "#")) or (value or "").startswith("//"):
                    self.wrong.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)
