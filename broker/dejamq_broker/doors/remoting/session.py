"""One connection of a RocketMQ client: who it is, and the broker's commands to it as remoting requests.

Source: RocketMQ ``Broker2Client``.
"""

import itertools
from collections.abc import Callable
from typing import TypeVar

from dejamq_proto.codes import error_for
from dejamq_proto.journal.writer import new_boot_id
from dejamq_proto.names import PROPERTY_UNIQUE_KEY
from dejamq_proto.records.hosts import host_text
from dejamq_proto.records.record import decode
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.frames import ONEWAY, VERSION, texts_of
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import Fields, RequestKind
from dejamq_proto.serving.acceptor import peer_name
from dejamq_proto.serving.remoting import Answered, Connection

from dejamq_broker.base.identity import peer_host
from dejamq_broker.deferred.transactions.check import CheckProducer
from dejamq_broker.doors.hearing import may_hear
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.commands import ForeignAnswer, PendingCommands, TakeDirectly, TellOffsets, TellRunning
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.pop.waiting import HeldPops
from dejamq_broker.tables.offsets import Asker

Header = TypeVar("Header", bound=Fields)
MOST_ASKED = 100


class ClientSession:
    """Owned by the event loop.

    ``boot_id`` stands for the connection: with the number of a request (``opaque``) it names the request in journals.
    ``born_host`` is the other end as records carry it. A client says its id with its first heartbeat or lock; until
    then its address takes the place.
    """

    def __init__(
        self, connection: "Connection[ClientSession]", clients: Clients, commands: PendingCommands, long_poll: LongPoll,
        held: HeldPops,
    ) -> None:  # fmt: skip
        self.connection, self._clients, self._commands = connection, clients, commands
        self._long_poll, self._held = long_poll, held
        self.boot_id, self.client_id = new_boot_id(), connection.address
        self.born_host = peer_host(peer_name(connection.peer))
        self._numbers = itertools.count(1)
        self._untold: set[str] = set()
        self._asked: dict[int, int] = {}
        """Numbers of requests to the client, and of the commands that wait for their answers."""
        self.channel = clients.open(self._tell, self._push, command=self._command, address=connection.address)

    def closed(self) -> None:
        """The client leaves all its groups at once, and its held pulls are forgotten."""
        self._clients.close(self.channel)
        self._long_poll.forget(self)
        self._held.forget_owner(self)

    def answered(self, command: Command) -> None:
        """An answer that nobody waits for is passed over: to a reply, or one that came late."""
        number = self._asked.pop(command.opaque, None)
        if number is not None:
            refused = error_for(command.code, command.remark or "") if command.code else None
            self._commands.answered(self.client_id, number, refused or ForeignAnswer(command.body))

    def called(self, client_id: str) -> None:
        """The client said its id beside a heartbeat, as a consumer in order does after a lost connection."""
        if self.client_id == self.connection.address:
            self.client_id = client_id

    def asker(self, command: Command) -> Asker:
        """The sender of this request."""
        return Asker(self.client_id, self.boot_id, command.opaque)

    def _tell(self, group: str) -> None:
        """Members of the group came or went; said once to a client that does not read."""
        if group in self._untold:
            return
        self._untold.add(group)

        def say() -> None:
            self._untold.discard(group)
            self._send(requests.NOTIFY_CONSUMER_IDS_CHANGED, requests.GroupChanged(consumer_group=group))

        self.connection.when_it_reads(say)

    def _push(self, record: bytes, group: str) -> bool:
        """A reply of this producer group for a requester of this connection.

        Its answer says nothing that anybody waits for.
        """
        if self.connection.full or not self.connection.hearer.is_there():
            return False
        reply = decode(record, check_crc=False)
        header = requests.ReplyPushed(
            producer_group=group, topic=reply.topic, default_topic=reply.topic,
            default_topic_queue_nums=1, queue_id=reply.queue_id, sys_flag=reply.sys_flag,
            born_timestamp=reply.born_timestamp_ms, flag=reply.flag, born_host=host_text(reply.born_host),
            store_host=host_text(reply.store_host), store_timestamp=reply.store_timestamp_ms,
            properties=reply.raw_properties.decode("utf-8", "replace"), reconsume_times=reply.reconsume_times,
        )  # fmt: skip
        return self._send(requests.PUSH_REPLY, header, reply.body, flag=0)

    def _command(self, command: object) -> bool:
        """False for a client that does not read, and for one whose user may not hear it."""
        if self.connection.full or not may_hear(self.connection.hearer, command):
            return False
        match command:
            case CheckProducer():
                return self._check(command)
            case TellRunning():
                question = requests.RunningQuestion(
                    consumer_group=command.group, client_id=self.client_id, jstack_enable=command.stacks
                )
                return self._ask(command.number, requests.GET_RUNNING_INFO, question)
            case TellOffsets():
                where = requests.OffsetsQuestion(topic=command.topic, group=command.group)
                return self._ask(command.number, requests.GET_OFFSETS_OF_CLIENT, where)
            case TakeDirectly():
                taken = requests.DirectConsumption(
                    consumer_group=command.group, client_id=self.client_id, broker_name=command.broker_name
                )
                return self._ask(command.number, requests.CONSUME_DIRECTLY, taken, command.record)
        return False

    def _check(self, command: CheckProducer) -> bool:
        half = decode(command.record, check_crc=False)
        unique_key = half.properties.get(PROPERTY_UNIQUE_KEY)
        header = requests.CheckTransactionHeader(
            tran_state_table_offset=command.half_queue_offset, commit_log_offset=command.half_log_offset,
            topic=half.topic, msg_id=unique_key, transaction_id=unique_key, offset_msg_id=half.offset_message_id,
        )  # fmt: skip
        return self._send(requests.CHECK_TRANSACTION_STATE, header, command.record)

    def _ask(self, number: int, request: RequestKind[Header], fields: Header, body: bytes = b"") -> bool:
        """Remember for which command the answer is; old ones are forgotten, as clients may never answer."""
        while len(self._asked) >= MOST_ASKED:
            del self._asked[next(iter(self._asked))]
        opaque = next(self._numbers)
        self._asked[opaque] = number
        return self.connection.send(Command(
            code=request.code, opaque=opaque, version=VERSION, ext=texts_of(fields), body=body
        ))  # fmt: skip

    def _send(self, request: RequestKind[Header], fields: Header, body: bytes = b"", flag: int = ONEWAY) -> bool:
        return self.connection.send(Command(
            code=request.code, opaque=next(self._numbers), flag=flag, version=VERSION, ext=texts_of(fields), body=body
        ))  # fmt: skip


Handler = Callable[[ClientSession, Command], Answered]
"""One request of a client, and the answer."""
