"""What doors ask: who is this, and may he do that? Every refusal is an error for the caller and a line in the log.

A server without access control has no guard. One that has a guard refuses whatever has no right declared.
"""

import base64
import binascii
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Never

from dejamq_proto.access.book import Book
from dejamq_proto.access.call_rights import V1, V2
from dejamq_proto.access.decisions import decide
from dejamq_proto.access.http_rights import HTTP, credentials_of, is_token
from dejamq_proto.access.model import Action, Resource, ResourceType, Status, User
from dejamq_proto.access.needs import (
    FIND,
    PUB,
    SERVER,
    SUB,
    NeededRight,
    Of,
    Right,
    found,
    popped_topic,
    topic_resource,
)
from dejamq_proto.access.refusals import log_refusal
from dejamq_proto.access.remoting_rights import REMOTING
from dejamq_proto.account import (
    ACCESS_KEY,
    DATE_TIME,
    HEADER,
    OURS,
    SIGNATURE,
    Account,
    account_of,
    call_proof,
    fields_proof,
    now_ms,
    v2_proof,
)
from dejamq_proto.account import (
    V2 as V2_SCHEME,
)
from dejamq_proto.codes import PermissionDenied
from dejamq_proto.names import AUTO_CREATE_TOPIC, reply_topic
from dejamq_proto.remoting import bodies
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import REQUESTS

log = logging.getLogger(__name__)
MOST_SKEW_MS = 15 * 60_000
"""Between the clocks of a client and this server, and the time for which a call that somebody saw can be repeated."""
DATE = re.compile(r"\d{4}-?\d\d-?\d\dT[\d:.]{6,20}(Z|[+-]\d\d:?\d\d)?", re.ASCII)
"""A time as RocketMQ 5's clients write it. What else was signed with the same key, a request of remoting, is none."""
UNSAFE = re.compile(r"[^\w.@:*%+|/-]", re.ASCII)
LONGEST_TOLD = 128
NOBODY, TOKEN_HOLDER = "nobody", "token"
V1_PREFIX = "dejamq.v1."
FOR_CLIENTS = "it is a request of brokers to clients"
UNPROVEN = "the access key and the signature do not belong together"
"""Said to whoever did not prove to be a user. The log has which of both was wrong; a stranger learns no user's name."""
HIDDEN = "it is not there, or no rule allows it"
"""Said of a message that was named by its place: its topic is nobody's business who may not see it."""
DECOY = secrets.token_hex(16)
"""The secret of names that nobody has: proofs of them take as long to check as those of users."""


class AccessDenied(PermissionDenied):
    """Access control refuses it: a right is missing."""


class Unauthenticated(AccessDenied):
    """It is not known who asks."""


class Caller(NamedTuple):
    """The sender of a request. ``user`` is None for an address that is asked for nothing."""

    name: str
    address: str
    user: User | None

    @property
    def trusted(self) -> bool:
        """He may do everything."""
        return self.user is None or self.user.trusted


Look = Callable[[int | str, bool], str]
"""The topic of the message at a log offset, or with an offset message id, '' where there is none.

With True the topic that a dead letter was first sent to.
"""


class Guard:
    """Owned by the event loop."""

    def __init__(
        self, book: Book, cluster: str, look: Look, clock_ms: Callable[[], int] = now_ms, http_token: str = ""
    ) -> None:  # fmt: skip
        """``cluster`` is the name by which rules mean this one. Who has the ``http_token`` may see every HTTP page."""
        self.book, self._cluster, self._look, self._clock_ms = book, cluster, look, clock_ms
        self._http_token = http_token

    def account(self) -> Account | None:
        """By which this server shows others who it is: that of its inner user."""
        user = self.book.inner_user()
        return None if user is None else account_of(user.username, user.secret)

    # one question a door

    def remoting(self, command: Command, address: str) -> Caller:
        """Who sent this request, which he may make. Raises PermissionDenied."""
        request = REQUESTS.get(command.code)
        name = str(command.code) if request is None else request.name
        who, needed = self._sender(command, name, address), REMOTING.get(command.code)
        if needed is not None and needed.never:
            self._refuse(who, name, "", "", FOR_CLIENTS)
        if who.trusted:
            return who
        if needed is None or request is None:
            self._refuse(who, name, "", "", "no right is declared for it")
        self._check(who, name, needed, _Read(request.read(command), command.body, needed.body))
        return who

    def call(self, method: str, metadata: Iterable[Any] | None, address: str) -> Caller:
        """Who makes this call, named in full: of dejamq.v1, or of a service that every user may use.

        Raises Unauthenticated.
        """
        header = _header(metadata, HEADER)
        fields = _fields(header, OURS)
        name, date = fields.get("Credential", ""), fields.get("Date", "")
        if self.book.plain.trusts(address):
            return Caller("white", address, None)
        if not fields:
            self._refuse(Caller(NOBODY, address, None), method, "", "", "no credentials came", known=False)
        skew_ms = abs(self._clock_ms() - int(date)) if date.isdecimal() and len(date) < 16 else None
        user = self.book.user(name)
        proof = call_proof(_secret(user), method, date)
        who = self._proven(user, name, address, method, proof, fields.get("Signature", ""))
        if skew_ms is None or skew_ms > MOST_SKEW_MS:
            reason = f"the call was signed {skew_ms} ms ago or ahead" if skew_ms is not None else "the call has no time"
            self._refuse(who, method, "", "", reason, known=False)
        return who

    def v2_call(self, method: str, metadata: Iterable[Any] | None, address: str) -> Caller:
        """Who makes this call of RocketMQ 5's clients. Raises Unauthenticated.

        They sign the time in the zone of their machine, and nothing else, so only its form is looked at.
        """
        if self.book.plain.trusts(address):
            return Caller("white", address, None)
        fields = _fields(_header(metadata, HEADER), V2_SCHEME)
        if not fields:
            self._refuse(Caller(NOBODY, address, None), method, "", "", "no credentials came", known=False)
        name = fields.get("Credential", "").partition("/")[0]
        user, date = self.book.user(name), _header(metadata, DATE_TIME)
        proof = v2_proof(_secret(user), date) if DATE.fullmatch(date) else ""
        return self._proven(user, name, address, method, proof, fields.get("Signature", "").lower())

    def check_call(self, who: Caller, method: str, request: Any) -> None:
        """Whether he may make this call with this request; of a stream, whether he may say this. Raises
        PermissionDenied.
        """
        service, _, name = method.removeprefix("/").partition("/")
        needed = V1.get(f"{service.removeprefix(V1_PREFIX)}.{name}") if service.startswith(V1_PREFIX) else None
        self._check_declared(who, method, needed, request)

    def check_v2(self, who: Caller, method: str, request: Any) -> None:
        """As ``check_call``, of RocketMQ 5's service."""
        self._check_declared(who, method, V2.get(method), request)

    def http(self, page: str, authorization: str | None, address: str, asked: Any = None) -> Caller:
        """Who asks for this page (``GET /metrics``), which he may. Raises PermissionDenied, and Unauthenticated."""
        if self.book.plain.trusts(address):
            return Caller("white", address, None)
        given, request = credentials_of(authorization), page.replace(" ", ":")
        if given is None:
            self._refuse(Caller(NOBODY, address, None), request, "", "", "no credentials came", known=False)
        if is_token(given, self._http_token):
            return Caller(TOKEN_HOLDER, address, None)
        if not given.name:
            self._refuse(Caller(TOKEN_HOLDER, address, None), request, "", "", "it is not the token", known=False)
        user = self.book.user(given.name)
        who = self._proven(user, given.name, address, request, _secret(user), given.secret)
        if not who.trusted:
            needed = HTTP.get(page)
            if needed is None:
                self._refuse(who, request, "", "", "no right is declared for it")
            self._check(who, request, needed, asked)
        return who

    def still(self, who: Caller) -> bool:
        """Whether he is who he was: neither changed, nor deleted, nor disabled. Nobody is told of a refusal."""
        if who.user is None:
            return self._asked_for_nothing(who)
        return self.book.user(who.name) == who.user and who.user.user_status is not Status.DISABLE

    def may_publish(self, who: Caller, topic: str) -> bool:
        """Whether he may see messages that a producer of this topic is asked about. Nobody is told of a refusal."""
        return self._may(who, topic, PUB)

    def may_consume(self, who: Caller, topic: str) -> bool:
        """Whether he may be handed a message of this topic. Nobody is told of a refusal."""
        return self._may(who, topic, SUB)

    def _may(self, who: Caller, topic: str, actions: frozenset[Action]) -> bool:
        if not self.still(who):
            return False
        rules = self.book.rules(who.name)
        return who.user is None or decide(who.user, rules, topic_resource(topic), actions, who.address).allowed

    # its own

    def _sender(self, command: Command, request: str, address: str) -> Caller:
        plain, name = self.book.plain, command.ext.get(ACCESS_KEY, "")
        if plain.trusts(address):
            return Caller("white", address, None)
        if not name:
            self._refuse(Caller(NOBODY, address, None), request, "", "", "no credentials came", known=False)
        user = self.book.user(name)
        if user is not None and plain.trusts(address, name):
            return Caller(name, address, None)
        proof = fields_proof(_secret(user), command.ext, command.body)
        return self._proven(user, name, address, request, _bytes64(proof), _bytes64(command.ext.get(SIGNATURE, "")))

    def _proven(
        self, user: User | None, name: str, address: str, request: str, proof: str | bytes, given: str | bytes
    ) -> Caller:  # fmt: skip
        who = Caller(name, address, user)
        same = hmac.compare_digest(_raw(proof), _raw(given)) if proof and given else False
        if user is None:
            reason = "there is no such user"
        elif not same:
            reason = "the signature is not the user's"
        elif user.user_status is Status.DISABLE:
            reason = "the user is disabled"
        else:
            reason = ""
        if reason:
            self._refuse(who, request, "", "", reason, known=False, said=reason if same else UNPROVEN)
        return who

    def _asked_for_nothing(self, who: Caller) -> bool:
        """Also now, of an address that was."""
        plain = self.book.plain
        return plain.trusts(who.address) or plain.trusts(who.address, who.name)

    def _check_declared(self, who: Caller, request: str, needed: Right | None, message: Any) -> None:
        if who.user is not None and self.book.user(who.name) != who.user:
            self._refuse(who, request, "", "", "the user was changed or deleted: connect again", known=False)
        if who.user is None and not self._asked_for_nothing(who):
            self._refuse(who, request, "", "", "the address is not asked for nothing any more", known=False)
        if who.trusted:
            return
        if needed is None:
            self._refuse(who, request, "", "", "no right is declared for it")
        if needed.never:
            self._refuse(who, request, "", "", FOR_CLIENTS)
        self._check(who, request, needed, message)

    def _check(self, who: Caller, request: str, needed: Right, message: Any) -> None:
        """Of one who is not trusted."""
        assert who.user is not None
        rules = self.book.rules(who.name)
        for need in needed.needs:
            actions = "|".join(sorted(need.actions))
            for resource in self._resources(need, message):
                verdict = decide(who.user, rules, resource, need.actions, who.address)
                if not verdict.allowed:
                    said = HIDDEN if need.of in (Of.MESSAGE, Of.ORIGIN) else ""
                    self._refuse(who, request, actions, str(resource), verdict.reason, said=said)

    def _resources(self, need: NeededRight, message: Any) -> Iterator[Resource]:
        """Each once. A name that has to be there and is not is an empty one, which only a rule for all covers."""
        if need.of is Of.SERVER:
            yield SERVER
            return
        if need.of is Of.CLUSTER:
            yield Resource(ResourceType.CLUSTER, self._cluster)
            return
        named = {self._resource(need.of, value) for value in found(message, need.path)}
        named.discard(self._resource(need.of, "")) if need.optional else None
        if not named and not need.optional:
            named = {self._resource(need.of, "")}
        if need.actions == FIND:  # by its route clients learn where a new topic would be
            named.discard(Resource(ResourceType.TOPIC, AUTO_CREATE_TOPIC))
        yield from filter(None, named)

    def _resource(self, of: Of, value: Any) -> Resource | None:
        match of:
            case Of.GROUP:
                return Resource(ResourceType.GROUP, value)
            case Of.TOPIC:
                return topic_resource(value)
            case Of.POPPED if value:
                return topic_resource(popped_topic(value.topic, getattr(value, "consumer_group", "") or value.group))
            case Of.MESSAGE:
                topic = self._look(_place(value), False)
                return topic_resource(topic) if topic else SERVER
            case Of.ORIGIN if value and value.to_topic:
                topic = self._look(value.log_offset, True)
                return topic_resource(topic) if topic else SERVER
            case Of.REPLY if value and getattr(value, "reply", True):  # of remoting's requests the number says it
                return topic_resource(reply_topic(self._cluster))
            case Of.ORIGIN | Of.REPLY if value:
                return None
        return SERVER

    def _refuse(
        self, who: Caller, request: str, actions: str, resource: str, reason: str, *, known: bool = True, said: str = ""
    ) -> Never:
        """``said``: what the caller hears, where that is less than the reason."""
        log_refusal(
            log, _told(who.name), who.address, _told(request), reason, actions=actions, resource=_told(resource)
        )
        if not known:
            text = (
                f"{request} from {_told(who.name)}: {said or reason}; give the keys of a user (access_key, secret_key)"
            )
            raise Unauthenticated(text, definite=True)
        what = f"{actions} on that message" if said else f"{actions} on {resource}" if resource else request
        raise AccessDenied(f"{who.name} has no permission: {what} ({said or reason})", definite=True)


class _Read:
    """A remoting request: its fields, and its body as declared, which is read when it is asked for."""

    def __init__(self, fields: Any, raw: bytes, kind: "type[Any] | None") -> None:
        self._fields, self._raw, self._kind = fields, raw, kind

    def __getattr__(self, name: str) -> Any:
        if name == "body" and self._kind is not None:
            return bodies.read(self._raw, self._kind)
        return getattr(self._fields, name)


def _place(value: Any) -> int | str:
    """Of a stored message: its log offset or its id, or a request that has one of them."""
    return value if isinstance(value, int | str) else value.message_id or value.log_offset


def _secret(user: User | None) -> str:
    return DECOY if user is None else user.secret


def _header(metadata: Iterable[Any] | None, name: str) -> str:
    """The last one of this name; '' for none."""
    values = [value for key, value in metadata or () if key == name and isinstance(value, str)]
    return values[-1] if values else ""


def _fields(header: str, scheme: str) -> dict[str, str]:
    """``scheme A=1, B=2`` as a mapping; nothing for another scheme."""
    told, _, rest = header.partition(" ")
    if told != scheme:
        return {}
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in rest.split(","))}


def _bytes64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _raw(proof: str | bytes) -> bytes:
    return proof if isinstance(proof, bytes) else proof.encode()


def _told(text: str) -> str:
    """A stranger's word as a log line can hold it."""
    return UNSAFE.sub("?", text[:LONGEST_TOLD])
