"""Commands of brokers to this client, for an operator: report its state, or handle one message.

Source: RocketMQ ``ClientRemotingProcessor``.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from dejamq_proto.client_pb2 import BrokerCommand, TakeDirectly
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.running_pb2 import ClientInfo, CommandAnswer, DirectResult

log = logging.getLogger("dejamq")


class Answering(Protocol):
    """The broker that asked."""

    address: str

    async def answer_command(self, answer: CommandAnswer) -> None: ...


class Commands:
    """Answers of one client, each in a task of its own. Owned by the event loop.

    Nothing that goes wrong here reaches the client: the operator hears of it, or the broker gives up waiting.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._spawn = spawn
        self.info: dict[str, Callable[[bool], ClientInfo]] = {}
        """By group, as brokers know it: how the client is; True wants what its tasks and threads do as well."""
        self.direct: dict[str, Callable[[TakeDirectly], Awaitable[DirectResult]]] = {}
        """By group: have this message handled."""

    def received(self, link: Answering, command: BrokerCommand) -> None:
        """A command came; unknown commands are ignored."""
        kind = command.WhichOneof("command")
        if kind == "tell_running_info":
            self._spawn(self._answer(link, command.tell_running_info.number, self._tell(command)), "running-info")
        elif kind == "take_directly":
            self._spawn(self._answer(link, command.take_directly.number, self._take(command)), "direct")

    async def _answer(self, link: Answering, number: int, work: Awaitable[CommandAnswer]) -> None:
        try:
            answer = await work
        except DejamqError as error:
            answer = CommandAnswer(code=int(error.code), remark=str(error))
        except Exception as error:
            log.exception("command_failed address=%s", link.address)
            answer = CommandAnswer(code=int(Code.SYSTEM_ERROR), remark=f"the client failed: {error!r:.200}")
        answer.number = number
        try:
            await link.answer_command(answer)
        except DejamqError as error:
            log.warning("command_not_answered address=%s reason=%s", link.address, error)

    async def _tell(self, command: BrokerCommand) -> CommandAnswer:
        wanted = command.tell_running_info
        tell = self.info.get(wanted.group)
        if tell is None:
            raise DejamqError(f"this client is not in group {wanted.group!r}", code=Code.CONSUMER_NOT_ONLINE)
        return CommandAnswer(info=tell(wanted.stacks))

    async def _take(self, command: BrokerCommand) -> CommandAnswer:
        wanted = command.take_directly
        take = self.direct.get(wanted.group)
        if take is None:
            text = f"this client has no handler for group {wanted.group!r}; choose a push consumer"
            raise DejamqError(text, code=Code.REQUEST_CODE_NOT_SUPPORTED, definite=True)
        return CommandAnswer(direct=await take(wanted))
