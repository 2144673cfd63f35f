"""The right that each page needs that a server serves over HTTP, and how a request over HTTP says who sends it.

A browser or a scraper gives a user's keys as HTTP basic credentials (RFC 7617), or a token (RFC 6750).
"""

import base64
import binascii
import hmac
from typing import NamedTuple

from dejamq_proto.access.needs import GET, UPDATE, USER, Right, cluster, group, right

HTTP: dict[str, Right] = {
    "GET /metrics": cluster(GET),
    "GET /faults": cluster(GET),
    "POST /faults": cluster(UPDATE),
    "DELETE /faults": cluster(UPDATE),
    "GET /duplicates": right(group(GET)),
    "POST /advertise": cluster(UPDATE),
    "GET /openapi.json": USER,
}
"""``GET /health`` of the control pages is not here: whoever watches a server has no keys."""
CHALLENGE = 'Basic realm="dejamq", charset="UTF-8"'
"""Of the header ``WWW-Authenticate``, by which a browser knows that it should ask."""
SHORTEST_TOKEN = 16


class Credentials(NamedTuple):
    """``name`` is empty for a token, which is the secret then."""

    name: str
    secret: str

    def __repr__(self) -> str:
        """Without the secret: this may come into a log."""
        return f"Credentials({self.name!r}, ***)"


def credentials_of(header: str | None) -> Credentials | None:
    """Of the header ``Authorization``; None for none, and for one that is no such credentials."""
    scheme, _, given = (header or "").strip().partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return Credentials("", given.strip())
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return Credentials(name, secret) if colon and secret else None


def is_token(given: Credentials, token: str) -> bool:
    """Whether this is the token. Without one nothing is."""
    return bool(token) and not given.name and hmac.compare_digest(given.secret.encode(), token.encode())
