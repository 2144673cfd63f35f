"""Who looks at the pages: where the cluster has access control, one of its users, who may look at the cluster.

The console knows no users itself. It shows the visitor's keys to a name server, as it does for each question of a page.
So the servers decide, and their logs have the refusals.
"""

import logging
import time

from dejamq.values.config import parse_addresses
from dejamq_proto import namesrv_pb2
from dejamq_proto.access.http_rights import CHALLENGE, credentials_of, is_token
from dejamq_proto.access.refusals import log_refusal
from dejamq_proto.account import KEY_NAMES, Account, account_of_environment
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.names import AUTO_CREATE_TOPIC
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.tls import ClientTls
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dejamq_cli.console.settings import ConsoleSettings

log = logging.getLogger(__name__)
VISITOR = "dejamq.account"
OPEN_TO_ALL = "/static/"
TIMEOUT_MS, KEPT_S = 3_000, 5.0
WHO_ARE_YOU = "Sign in with the access key and the secret of a user, or give the console's token.\n"


class Unknown(Exception):
    """It is not known who asks. The text is for the log."""


class Visitors:
    """Between the guard of names and the pages. Owned by the event loop."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app, self._namesrv, self._token = app, settings.namesrv, settings.http_token
        self._asks, self._until_s = False, 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(OPEN_TO_ALL):
            await self._app(scope, receive, send)
            return
        answer: ASGIApp = self._app
        try:
            scope = {**scope, VISITOR: await self._visitor(HTTPConnection(scope))}
        except Unknown as error:
            _tell(scope, str(error))
            answer = PlainTextResponse(WHO_ARE_YOU, 401, {"WWW-Authenticate": CHALLENGE})
        except PermissionDenied as error:
            _tell(scope, str(error))
            answer = PlainTextResponse(f"{error}\n", 403)
        except DejamqError as error:
            answer = PlainTextResponse(f"Nobody can tell who you are: {error}\n", 502)
        await answer(scope, receive, send)

    async def _visitor(self, request: HTTPConnection) -> Account | None:
        """None for one who sees what the console's own keys see. Raises Unknown and DejamqError."""
        given = credentials_of(request.headers.get("authorization"))
        if given is not None and is_token(given, self._token):
            return None
        if self._namesrv is None or not await self._cluster_asks(self._namesrv):
            if self._token:
                raise Unknown("no credentials came" if given is None else "it is not the token")
            return None
        if given is None or not KEY_NAMES.fullmatch(given.name):
            raise Unknown("no credentials came" if given is None else "they are no keys of a user")
        visitor = Account(given.name, given.secret)
        if not await _is_user(self._namesrv, visitor):
            raise Unknown("a name server refused these keys")
        await _may_look(self._namesrv, visitor)
        return visitor

    async def _cluster_asks(self, namesrv: str) -> bool:
        """Whether it has access control. Raises DejamqError while nobody says, where it had, or where the console has
        keys.
        """
        if self._asks or time.monotonic() < self._until_s:
            return self._asks
        try:
            self._asks = not await _is_user(namesrv, None)
        except DejamqError:
            if account_of_environment() is not None:
                raise
        self._until_s = time.monotonic() + KEPT_S
        return self._asks


def visitor_of(request: Request) -> Account | None:
    """Whose keys the questions of this page show; None: the console's own."""
    found: Account | None = request.scope.get(VISITOR)
    return found


async def _is_user(namesrv: str, account: Account | None) -> bool:
    """Whether a name server takes these keys, None for none. What is asked every user may ask."""
    try:
        await _asked(namesrv, "GetRoute", namesrv_pb2.GetRouteRequest(topic=AUTO_CREATE_TOPIC), account)
    except DejamqError as error:
        if error.code == Code.NO_PERMISSION:
            return False
        if error.code != Code.TOPIC_NOT_EXIST:
            raise
    return True


async def _may_look(namesrv: str, account: Account) -> None:
    """Every page tells of the whole cluster. Raises PermissionDenied."""
    await _asked(namesrv, "GetClusterInfo", namesrv_pb2.GetClusterInfoRequest(), account)
    await _asked(namesrv, "ListConfig", namesrv_pb2.ListConfigRequest(), account)


async def _asked(namesrv: str, method: str, request: object, account: Account | None) -> None:
    """Of the first name server that answers."""
    addresses = parse_addresses(namesrv)
    for address in addresses:
        channel = dial(address, ClientTls.from_environment(), account)
        try:
            ask = getattr(NameServerStub(channel), method)
            await call(ask, request, address=address, timeout_ms=TIMEOUT_MS)
            return
        except DejamqError as error:
            if error.code in (Code.NO_PERMISSION, Code.TOPIC_NOT_EXIST) or address == addresses[-1]:
                raise
        finally:
            await channel.close(None)


def _tell(scope: Scope, reason: str) -> None:
    request = HTTPConnection(scope)
    given = credentials_of(request.headers.get("authorization"))
    name = given.name if given is not None and KEY_NAMES.fullmatch(given.name) else "nobody"
    log_refusal(log, name, request.client.host if request.client else "", scope["method"], reason)
