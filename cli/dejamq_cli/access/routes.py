"""Answers of name servers about a topic: of one, as clients get it, or of all, side by side."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dejamq import Admin
from dejamq.admin.links import BrokerInfo
from dejamq.admin.messages import TopicQueues
from dejamq.values.config import parse_addresses
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound

from dejamq_cli.access.admin_session import Silent, nobody_answers
from dejamq_cli.terminal.output import Format
from dejamq_cli.terminal.tables import cell

ABSENT = "no route"


@dataclass(frozen=True)
class BrokerPart:
    """The topic at one broker name, as one name server tells it."""

    read_queues: int
    write_queues: int
    perm: int
    addresses: tuple[str, ...]

    def __str__(self) -> str:
        queues = (
            f"{self.write_queues}"
            if self.read_queues == self.write_queues
            else f"{self.read_queues}/{self.write_queues}"
        )
        return f"{queues} {cell('perm', self.perm)} {' '.join(self.addresses)}"


@dataclass(frozen=True)
class RouteComparison:
    """``said``: name server -> broker name -> its part; those that did not answer are in ``silent``."""

    said: Mapping[str, Mapping[str, BrokerPart]]
    silent: Silent

    @property
    def agrees(self) -> bool:
        """Those that answered say the same."""
        answers = list(self.said.values())
        return all(answer == answers[0] for answer in answers)

    @property
    def known(self) -> bool:
        """Somebody has a route."""
        return any(self.said.values())

    def rows(self, output: Format) -> list[dict[str, Any]]:
        """A broker a row, in what it is said to have by each name server."""
        names = sorted({name for parts in self.said.values() for name in parts})
        return [self._json(name) if output is Format.JSON else self._row(name) for name in names]

    def _row(self, name: str) -> dict[str, Any]:
        parts = {namesrv: str(parts.get(name, ABSENT)) for namesrv, parts in self.said.items()}
        return {"broker": name, **parts, "agree": len(set(parts.values())) == 1}

    def _json(self, name: str) -> dict[str, Any]:
        parts = {namesrv: parts.get(name) for namesrv, parts in self.said.items()}
        return {
            "broker": name,
            "agree": len(set(parts.values())) == 1,
            "said": [{"namesrv": namesrv, "route": part} for namesrv, part in parts.items()],
        }


async def shown_route(admin: Admin, topic: str) -> list[dict[str, Any]]:
    """Rows of the first name server that answers. Raises RouteNotFound."""
    brokers = {broker.broker_name: broker for broker in await admin.brokers()}
    answer: Sequence[TopicQueues] | None = None
    for told in (await admin.routes(topic)).values():
        if not isinstance(told, DejamqError):
            answer = told
            break
        if not isinstance(told, ConnectionError | TimeoutError):
            raise told
    if answer is None:  # they answered a moment ago
        raise BrokerUnavailable("no name server answers any more", code=Code.NO_NAME_SERVER)
    return [
        {
            "broker": one.broker_name,
            "addresses": _addresses(brokers.get(one.broker_name)),
            "read_queues": one.read_queues,
            "write_queues": one.write_queues,
            "perm": one.perm,
        }
        for one in answer
    ]


def compared(namesrv: str, topic: str) -> RouteComparison:
    """Every name server by itself: they do not know of each other. Raises BrokerUnavailable when none answers."""
    return asyncio.run(_compared(namesrv, topic))


async def _compared(namesrv: str, topic: str) -> RouteComparison:
    addresses = parse_addresses(namesrv)
    answers = await asyncio.gather(*(_parts(address, topic) for address in addresses), return_exceptions=True)
    said, silent = {}, {}
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, DejamqError):
            silent[address] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            said[address] = answer
    if not said:
        raise nobody_answers(namesrv, silent[addresses[0]])
    return RouteComparison(said, silent)


async def _parts(address: str, topic: str) -> dict[str, BrokerPart]:
    async with Admin(address) as admin:
        brokers = {broker.broker_name: broker for broker in await admin.brokers()}
        (told,) = (await admin.routes(topic)).values()
        if isinstance(told, RouteNotFound):
            return {}
        if isinstance(told, DejamqError):
            raise told
        return {
            one.broker_name: BrokerPart(
                one.read_queues, one.write_queues, one.perm, tuple(_addresses(brokers.get(one.broker_name)))
            )
            for one in told
        }


def _addresses(broker: BrokerInfo | None) -> list[str]:
    return [f"{number}={address}" for number, address in sorted(broker.addresses.items())] if broker else []
