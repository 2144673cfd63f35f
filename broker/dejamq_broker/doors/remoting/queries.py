"""Messages for operators, by key and by place, and questions to a connected client.

Source: RocketMQ ``QueryMessageProcessor``, ``AdminBrokerProcessor.callConsumer``.
"""

import asyncio

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.loose_json import pairs_of_field
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command

from dejamq_broker.base.identity import Site
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.commands import ForeignAnswer, PendingCommands, TakeDirectly, TellOffsets, TellRunning
from dejamq_broker.operators.queries import Inspector
from dejamq_broker.store import KeyQuery

MOST_BYTES = 8 << 20
"""Of the records of one answer, besides the first: a client's frame holds 16 MiB."""


class Queries:
    """Owned by the event loop."""

    def __init__(self, inspector: Inspector, commands: PendingCommands, clients: Clients, site: Site) -> None:
        self._inspector, self._commands, self._clients, self._site = inspector, commands, clients, site

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        return {
            requests.VIEW_MESSAGE.code: self._view, requests.QUERY_MESSAGE.code: self._query,
            requests.GET_RUNNING_INFO.code: self._running, requests.CONSUME_DIRECTLY.code: self._consume,
            requests.GET_OFFSETS_OF_MEMBERS.code: self._offsets,
        }  # fmt: skip

    def _view(self, _: ClientSession, command: Command) -> Command:
        offset = requests.VIEW_MESSAGE.read(command).offset
        try:
            return answer(command, body=self._inspector.record(offset))
        except DejamqError:
            text = f"can not find message by the offset, {offset}"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True) from None

    async def _query(self, _: ClientSession, command: Command) -> Command:
        asked = requests.QUERY_MESSAGE.read(command)
        found = await self._inspector.query(KeyQuery(
            asked.topic, asked.key, begin_ms=asked.begin_timestamp, end_ms=asked.end_timestamp,
            max_messages=asked.max_num, unique=asked.unique,
        ))  # fmt: skip
        fields = requests.KeyFound(
            index_last_update_timestamp=found.index_timestamp_ms, index_last_update_phyoffset=found.index_log_offset
        )
        return answer(command, fields=fields, body=b"".join(_that_fit(found.records)))

    async def _running(self, _: ClientSession, command: Command) -> Command:
        asked = requests.GET_RUNNING_INFO.read(command)
        told = await self._commands.ask(
            asked.consumer_group, asked.client_id,
            lambda number: TellRunning(number, asked.consumer_group, asked.jstack_enable),
        )  # fmt: skip
        return _relayed(command, told)

    async def _consume(self, _: ClientSession, command: Command) -> Command:
        asked = requests.CONSUME_DIRECTLY.read(command)
        record = self._inspector.record_by_id(asked.msg_id or "")
        told = await self._commands.ask(
            asked.consumer_group, asked.client_id,
            lambda number: TakeDirectly(number, asked.consumer_group, self._site.broker_name, record),
        )  # fmt: skip
        return _relayed(command, told)

    async def _offsets(self, _: ClientSession, command: Command) -> Command:
        """Of each member that answers, as RocketMQ; of a group whose members are all ours nobody can."""
        asked = requests.GET_OFFSETS_OF_MEMBERS.read(command)
        members = self._clients.groups.members(asked.group)
        if not members:
            text = f"No Any Consumer online in the consumer group: [{asked.group}]"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        wanted = sorted({one for one in members if asked.client_addr in (None, "", one)})
        answers = await asyncio.gather(*(self._ask_offsets(one, asked) for one in wanted))
        given = [(client_id, told) for client_id, told in zip(wanted, answers, strict=True) if told is not None]
        tables = [(client_id, _offsets_told(told)) for client_id, told in given if isinstance(told, ForeignAnswer)]
        if given and not tables:
            raise _one_of_ours()
        found = {client_id: table for client_id, table in tables if table is not None}
        if sum(map(len, found.values())) > MOST_BYTES:
            text = f"the members' answers have more than {MOST_BYTES} bytes; ask for one of them"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        return answer(command, body=bodies.write(bodies.MemberOffsets(
            consumer_table={client_id: msgspec.Raw(table) for client_id, table in found.items()}
        )))  # fmt: skip

    async def _ask_offsets(self, client_id: str, asked: requests.OffsetsOfMembers) -> object:
        """The member's answer, of either kind; None for one that refuses, leaves or takes too long."""
        try:
            return await self._commands.ask(
                asked.group, client_id, lambda number: TellOffsets(number, asked.group, asked.topic)
            )
        except DejamqError:
            return None


def _offsets_told(told: ForeignAnswer) -> bytes | None:
    """The table of offsets by queue, as tools read it; None for an answer that has none."""
    try:
        pairs = pairs_of_field(told.body.decode(), "messageQueueTable")
        return bytes(bodies.with_object_keys(
            (msgspec.convert(queue, bodies.MessageQueueBody), msgspec.convert(offset, int)) for queue, offset in pairs
        ))  # fmt: skip
    except (ValueError, RecursionError):
        return None


def _relayed(command: Command, told: object) -> Command:
    """RocketMQ's clients answer what its tools read. Ours answer in a form of their own."""
    if isinstance(told, ForeignAnswer):
        return answer(command, body=told.body)
    raise _one_of_ours()


def _one_of_ours() -> DejamqError:
    text = "the client is one of dejamq's, whose answer is for `dejamq client`"
    return DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)


def _that_fit(records: list[bytes]) -> list[bytes]:
    """The newest that one answer can carry, in the order of the log."""
    kept, size = 0, 0
    for record in reversed(records):
        size += len(record)
        if kept and size > MOST_BYTES:
            break
        kept += 1
    return records[len(records) - kept :]
