"""The doors for users and rules: the Access service of both servers, and RocketMQ 5's requests to brokers."""

from collections.abc import Awaitable, Callable
from typing import Any

from dejamq_proto.access.book import Book
from dejamq_proto.access.changes import created, deleted, rule_of, ruled, subject_name, unruled, updated
from dejamq_proto.access.guard import Guard
from dejamq_proto.access.model import Rule, User
from dejamq_proto.access_pb2 import (
    AccessRule,
    AccessUser,
    DeleteRulesRequest,
    DeleteRulesResponse,
    DeleteUserRequest,
    DeleteUserResponse,
    ListRulesRequest,
    ListRulesResponse,
    ListUsersRequest,
    ListUsersResponse,
    PutRulesRequest,
    PutRulesResponse,
    PutUserRequest,
    PutUserResponse,
)
from dejamq_proto.access_pb2_grpc import AccessServicer
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting import access_requests as asked
from dejamq_proto.remoting import bodies
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command

OFF = "access control is off at this server; acl_enable turns it on when it starts"
Handler = Callable[[Any, Command], Awaitable[Command]]


def _book(guard: Guard | None) -> Book:
    """Raises REQUEST_CODE_NOT_SUPPORTED without access control."""
    if guard is None:
        raise DejamqError(OFF, code=Code.REQUEST_CODE_NOT_SUPPORTED, definite=True)
    return guard.book


class AccessService(AccessServicer):
    """Owned by the event loop. The gate before it lets in super users alone."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard

    async def PutUser(self, request: PutUserRequest, _: Any) -> PutUserResponse:
        user = request.user
        put = created if request.create else updated
        await _book(self._guard).change(put(user.name, user.secret, user.type, user.status))
        return PutUserResponse()

    async def DeleteUser(self, request: DeleteUserRequest, _: Any) -> DeleteUserResponse:
        await _book(self._guard).change(deleted(request.name))
        return DeleteUserResponse()

    async def ListUsers(self, request: ListUsersRequest, _: Any) -> ListUsersResponse:
        """Without secrets."""
        book = _book(self._guard)
        own = [_told(user, "") for user in book.contents.users]
        plain = [_told(user, "plain_acl") for user in book.plain.users]
        return ListUsersResponse(users=[user for user in (*own, *plain) if request.filter in user.name])

    async def PutRules(self, request: PutRulesRequest, _: Any) -> PutRulesResponse:
        rules = [
            rule_of(each.user, each.resource, each.actions, each.decision, each.source_ips, each.policy_type)
            for each in request.rules
        ]
        await _book(self._guard).change(ruled(rules))
        return PutRulesResponse()

    async def DeleteRules(self, request: DeleteRulesRequest, _: Any) -> DeleteRulesResponse:
        await _book(self._guard).change(unruled(request.user, request.resource, request.policy_type))
        return DeleteRulesResponse()

    async def ListRules(self, request: ListRulesRequest, _: Any) -> ListRulesResponse:
        book = _book(self._guard)
        return ListRulesResponse(rules=[
            AccessRule(
                user=rule.username, resource=rule.resource, actions=list(map(str, rule.actions)),
                decision=str(rule.decision), source_ips=rule.source_ips, policy_type=str(rule.policy_type),
            )
            for rule in (*book.contents.rules, *book.plain.rules)
            if request.user in rule.username and request.resource in rule.resource
        ])  # fmt: skip


def _told(user: User, file: str) -> AccessUser:
    return AccessUser(name=user.username, type=str(user.user_type), status=str(user.user_status), file=file)


class AccessRequests:
    """RocketMQ 5's requests about users and rules (``mqadmin createUser``, ``createAcl`` and others).

    The answers of GET and LIST have no passwords. So ``copyUser`` cannot copy one. Source: RocketMQ
    ``AdminBrokerProcessor``.
    """

    def __init__(self, guard: Callable[[], Guard | None]) -> None:
        """``guard`` is that of the door, which knows it later than its handlers."""
        self._guard = guard

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        table = (
            (asked.CREATE_USER, self._create_user), (asked.UPDATE_USER, self._update_user),
            (asked.DELETE_USER, self._delete_user), (asked.GET_USER, self._get_user),
            (asked.LIST_USERS, self._list_users), (asked.CREATE_ACL, self._put_acl),
            (asked.UPDATE_ACL, self._put_acl), (asked.DELETE_ACL, self._delete_acl),
            (asked.GET_ACL, self._get_acl), (asked.LIST_ACLS, self._list_acls),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    @property
    def _book(self) -> Book:
        return _book(self._guard())

    async def _create_user(self, _: Any, command: Command) -> Command:
        name, info = asked.CREATE_USER.read(command).username, bodies.read(command.body, asked.UserInfo)
        change = created(name, info.password or "", info.user_type or "", info.user_status or "")
        await self._book.change(change)
        return answer(command, Code.SUCCESS)

    async def _update_user(self, _: Any, command: Command) -> Command:
        name, info = asked.UPDATE_USER.read(command).username, bodies.read(command.body, asked.UserInfo)
        change = updated(name, info.password or "", info.user_type or "", info.user_status or "")
        await self._book.change(change)
        return answer(command, Code.SUCCESS)

    async def _delete_user(self, _: Any, command: Command) -> Command:
        await self._book.change(deleted(asked.DELETE_USER.read(command).username))
        return answer(command, Code.SUCCESS)

    async def _get_user(self, _: Any, command: Command) -> Command:
        user = self._book.user(asked.GET_USER.read(command).username)
        return answer(command, Code.SUCCESS, body=b"" if user is None else bodies.write(_info(user)))

    async def _list_users(self, _: Any, command: Command) -> Command:
        wanted = asked.LIST_USERS.read(command).filter or ""
        found = [user for user in self._book.contents.users if wanted in user.username]
        return answer(command, Code.SUCCESS, body=asked.list_of(list(map(_info, found))))

    async def _put_acl(self, _: Any, command: Command) -> Command:
        name = subject_name(asked.CREATE_ACL.read(command).subject)
        info = bodies.read(command.body, asked.AclInfo)
        rules = [
            rule_of(name, resource, entry.actions or (), entry.decision or "", entry.source_ips or (),
                    policy.policy_type or "")
            for policy in info.policies or ()
            for entry in policy.entries or ()
            for resource in (entry.resources or ([entry.resource] if entry.resource else []))
        ]  # fmt: skip
        if not rules:
            raise DejamqError("no rule came", code=Code.INVALID_PARAMETER, definite=True)
        await self._book.change(ruled(rules))
        return answer(command, Code.SUCCESS)

    async def _delete_acl(self, _: Any, command: Command) -> Command:
        wanted = asked.DELETE_ACL.read(command)
        name = subject_name(wanted.subject)
        await self._book.change(unruled(name, wanted.resource or "", wanted.policy_type or ""))
        return answer(command, Code.SUCCESS)

    async def _get_acl(self, _: Any, command: Command) -> Command:
        name = subject_name(asked.GET_ACL.read(command).subject)
        found = _acls([rule for rule in self._book.contents.rules if rule.username == name])
        return answer(command, Code.SUCCESS, body=bodies.write(found[0]) if found else b"")

    async def _list_acls(self, _: Any, command: Command) -> Command:
        wanted = asked.LIST_ACLS.read(command)
        found = [
            rule
            for rule in self._book.contents.rules
            if (wanted.subject_filter or "") in f"User:{rule.username}"
            and (wanted.resource_filter or "") in rule.resource
        ]
        return answer(command, Code.SUCCESS, body=asked.list_of(list(_acls(found))))


def _info(user: User) -> asked.UserInfo:
    return asked.UserInfo(username=user.username, user_type=str(user.user_type), user_status=str(user.user_status))


def _acls(rules: list[Rule]) -> list[asked.AclInfo]:
    """One a user, one policy a kind."""
    table: dict[str, dict[str, list[asked.PolicyEntry]]] = {}
    for rule in rules:
        table.setdefault(rule.username, {}).setdefault(str(rule.policy_type), []).append(asked.PolicyEntry(
            resource=rule.resource, actions=list(map(str, rule.actions)), source_ips=list(rule.source_ips),
            decision=str(rule.decision),
        ))  # fmt: skip
    return [
        asked.AclInfo(
            subject=f"User:{name}",
            policies=[asked.Policy(policy_type=kind, entries=entries) for kind, entries in kinds.items()],
        )
        for name, kinds in table.items()
    ]
