"""Users and rules of the servers of a cluster: each server keeps its own, and a change goes to all that were asked."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from dejamq_proto import access_pb2 as pb
from dejamq_proto.access_pb2_grpc import AccessStub
from dejamq_proto.account import Account
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.tls import ClientTls

from dejamq.admin.cluster import RunningCluster
from dejamq.net.identity import Identity


class AccessUser(msgspec.Struct, frozen=True):
    """A user as a server tells it: never with a secret. ``file`` is '' for one that can be changed here."""

    name: str
    type: str
    status: str
    file: str


class AccessRule(msgspec.Struct, frozen=True):
    """What one user may do, or may not: see docs/access.md for the words."""

    user: str
    resource: str
    actions: Sequence[str]
    decision: str = "Allow"
    source_ips: Sequence[str] = ()
    policy_type: str = "Custom"


class AccessLink:
    """The Access service of one server. ``async with`` closes it."""

    def __init__(
        self, address: str, identity: Identity, timeout_ms: float, tls: ClientTls | None, account: Account | None
    ) -> None:
        self.address, self.identity, self._timeout_ms = address, identity, timeout_ms
        self._channel = dial(address, tls, account)
        self.stub: Any = AccessStub(self._channel)

    async def __aenter__(self) -> "AccessLink":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def ask(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        """The answer. Raises DejamqError."""
        request.caller.CopyFrom(self.identity.caller())
        return await call(method, request, address=self.address, timeout_ms=self._timeout_ms)


class RunningAccess(RunningCluster):
    """A part of ``Admin``. Servers without access control are left out; where all are, DejamqError is raised."""

    async def create_user(self, name: str, secret: str, *, type: str = "Normal", status: str = "enable") -> None:
        """At every server that has access control. Refused with INVALID_PARAMETER for a user that is there."""
        user = pb.AccessUser(name=name, secret=secret, type=type, status=status)
        await self._at_all("PutUser", pb.PutUserRequest(user=user, create=True))

    async def update_user(self, name: str, *, secret: str = "", type: str = "", status: str = "") -> None:
        """What is given; the rest stays. Refused with QUERY_NOT_FOUND."""
        user = pb.AccessUser(name=name, secret=secret, type=type, status=status)
        await self._at_all("PutUser", pb.PutUserRequest(user=user))

    async def delete_user(self, name: str) -> None:
        """With its rules. Refused with QUERY_NOT_FOUND, and for the last super user."""
        await self._at_all("DeleteUser", pb.DeleteUserRequest(name=name))

    async def users(self, filter: str = "") -> dict[str, list[AccessUser]]:
        """Of each server by its address; those whose name has the filter in it."""
        answers = await self._at_all("ListUsers", pb.ListUsersRequest(filter=filter))
        return {
            address: [AccessUser(one.name, one.type, one.status, one.file) for one in answer.users]
            for address, answer in answers.items()
        }

    async def put_rules(self, rules: Sequence[AccessRule]) -> None:
        """Each takes the place of the rule of the same user, kind and resource. Refused with INVALID_PARAMETER."""
        told = [
            pb.AccessRule(
                user=one.user, resource=one.resource, actions=one.actions, decision=one.decision,
                source_ips=one.source_ips, policy_type=one.policy_type,
            )
            for one in rules
        ]  # fmt: skip
        await self._at_all("PutRules", pb.PutRulesRequest(rules=told))

    async def delete_rules(self, user: str, resource: str = "") -> None:
        """The user's rules for the resource, all of the user's for ''. Refused with QUERY_NOT_FOUND."""
        await self._at_all("DeleteRules", pb.DeleteRulesRequest(user=user, resource=resource))

    async def rules(self, user: str = "", resource: str = "") -> dict[str, list[AccessRule]]:
        """Of each server by its address; those whose user and resource have these texts in them."""
        answers = await self._at_all("ListRules", pb.ListRulesRequest(user=user, resource=resource))
        return {
            address: [
                AccessRule(
                    one.user, one.resource, tuple(one.actions), one.decision, tuple(one.source_ips), one.policy_type
                )
                for one in answer.rules
            ]
            for address, answer in answers.items()
        }  # fmt: skip

    async def _at_all(self, method: str, request: Any) -> dict[str, Any]:
        """The answer of each server that has access control. All are asked before the first refusal is raised."""
        links = self._open()
        brokers = await links.brokers()
        addresses = [link.address for link in links.namesrvs]
        addresses += [address for broker in brokers.values() for address in broker.addresses.values()]
        addresses = list(dict.fromkeys(addresses))
        answers = await asyncio.gather(*(self._ask_one(address, method, request) for address in addresses))
        found: dict[str, Any] = {}
        without: list[DejamqError] = []
        for address, answer in zip(addresses, answers, strict=True):
            if not isinstance(answer, DejamqError):
                found[address] = answer
            elif answer.code in (Code.REQUEST_CODE_NOT_SUPPORTED, Code.QUERY_NOT_FOUND):
                without.append(answer)  # it has no access control, or shares the file of another one
            else:
                raise answer
        if not found:
            raise without[0]
        return found

    async def _ask_one(self, address: str, method: str, request: Any) -> Any:
        links = self._open()
        asked = type(request)()
        asked.CopyFrom(request)
        timeout_ms = self.config.mq_client_api_timeout_ms
        async with AccessLink(address, links, timeout_ms, links.tls, links.account) as link:
            try:
                return await link.ask(getattr(link.stub, method), asked)
            except DejamqError as error:
                return error
