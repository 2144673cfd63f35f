"""A broker's commands to a connected client through its channel, and the answers that come back.

An operator cannot reach a client, which may sit behind anything; its broker can. Source: RocketMQ ``Broker2Client``.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.members.clients import Clients
from dejamq_broker.members.groups import Channel


class TellRunning(msgspec.Struct, frozen=True):
    """Say how you are; ``stacks`` also what your tasks and threads do."""

    number: int
    group: str
    stacks: bool


class TellOffsets(msgspec.Struct, frozen=True):
    """Say where you go on in the topic's queues. A client of ours tells all of itself, as to ``TellRunning``."""

    number: int
    group: str
    topic: str


class TakeDirectly(msgspec.Struct, frozen=True):
    """Give this record to the group's handler; whatever comes of it, no progress moves."""

    number: int
    group: str
    broker_name: str
    record: bytes


class ForeignAnswer(msgspec.Struct, frozen=True):
    """What a RocketMQ client answered, as it came: tools of RocketMQ read it."""

    body: bytes


MOST_NUMBER = 1 << 53
Make = Callable[[int], TellRunning | TellOffsets | TakeDirectly]


class PendingCommands:
    """Numbered commands that wait for their answer. Owned by the event loop.

    A client that goes away, or takes longer than ``timeout_ms``, leaves no waiting command behind.
    """

    def __init__(self, clients: Clients, timeout_ms: float) -> None:
        self._clients, self._timeout_ms = clients, timeout_ms
        self._waiting: dict[int, tuple[Channel, str, asyncio.Future[Any]]] = {}
        clients.on_closed.connect(self._closed)

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, group: str, client_id: str, make: Make) -> Any:
        """This member's answer to the command that ``make`` makes of a number.

        Raises CONSUMER_NOT_ONLINE for a client that is not in the group here, and the error with which the client
        refused. Raises CONSUME_MSG_TIMEOUT for a client that does not answer; it may do the command all the same.
        """
        channel = self._clients.channel_of(group, client_id)
        if channel is None:
            text = f"client {client_id!r} is not in group {group!r} at this broker; connections() lists who is"
            raise DejamqError(text, code=Code.CONSUMER_NOT_ONLINE, definite=True)
        number = secrets.randbelow(MOST_NUMBER)  # nobody else can guess it, and answer in the client's place
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = channel, client_id, answer
        try:
            if not self._clients.command(channel, make(number)):
                text = f"client {client_id!r} has left, or does not read what waits for it"
                raise DejamqError(text, code=Code.CONSUMER_NOT_ONLINE, definite=True)
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await answer
        except TimeoutError:
            text = f"client {client_id!r} did not answer within {self._timeout_ms:g} ms; it may do it later"
            raise DejamqError(text, code=Code.CONSUME_MSG_TIMEOUT, definite=False) from None
        finally:
            del self._waiting[number]

    def answered(self, client_id: str, number: int, answer: object) -> None:
        """An answer came, or the DejamqError that the client refused with.

        An answer that nobody waits for, or that comes from another client, is passed over: the asker has gone, or the
        answer is made up.
        """
        _, asked, future = self._waiting.get(number, (0, "", None))
        if future is None or future.done() or asked != client_id:
            return
        if isinstance(answer, DejamqError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _closed(self, channel: Channel) -> None:
        for asked, client_id, future in self._waiting.values():
            if asked == channel and not future.done():
                text = f"client {client_id!r} went away before it answered"
                future.set_exception(DejamqError(text, code=Code.CONSUMER_NOT_ONLINE, definite=False))
