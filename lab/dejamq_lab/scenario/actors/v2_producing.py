"""A producer of RocketMQ 5: a send whose answer does not come is tried again at the next broker, with the same id.

Source: RocketMQ ``apache/rocketmq-clients``, ``ProducerImpl.send0``.
"""

import itertools
import time

from dejamq import Message
from dejamq.values.producer_config import ProducerConfig
from dejamq.values.unique_id import UniqueIds, local_ip
from dejamq_proto.codes import BrokerUnavailable, DejamqError
from dejamq_proto.journal.events import SendEnd, SendResultEvent, SendTry
from dejamq_proto.v2 import messages_pb2 as pb

from dejamq_lab.scenario.actors.v2_client import V2Client

TRIES = 3
"""``maxAttempts`` of the official producers."""


class V2Producer:
    """Belongs to one event loop."""

    def __init__(self, group: str, topics: tuple[str, ...], namesrv: str, config: ProducerConfig) -> None:
        """``group`` is the journal's; the protocol has none for producers."""
        self._group, self._topics, self._try_s = group, topics, config.send_msg_timeout_ms / 1000
        self._client, self._ids = V2Client(namesrv, config, role="producer"), UniqueIds(config.client_ip or local_ip())
        self._brokers: dict[str, list[tuple[str, str]]] = {}
        self._calls, self._turns = itertools.count(1), itertools.count()

    async def start(self) -> None:
        """Raises DejamqError where the topics have no route."""
        for topic in self._topics:
            self._brokers[topic] = list(dict.fromkeys(await self._client.queues(topic)))
        settings = pb.Settings(
            client_type=pb.PRODUCER, user_agent=pb.UA(language=pb.PYTHON),
            publishing=pb.Publishing(topics=[pb.Resource(name=topic) for topic in self._topics]),
        )  # fmt: skip
        for address in {address for brokers in self._brokers.values() for _, address in brokers}:
            await self._client.settle(address, settings)
        await self._client.started()

    async def close(self) -> None:
        await self._client.close()

    async def send(self, message: Message) -> None:
        """Raises what the last try failed with."""
        brokers, turn = self._brokers[message.topic], next(self._turns)
        request, call_id = self._request(message), next(self._calls)
        for number in range(1, TRIES + 1):
            broker = brokers[(turn + number) % len(brokers)]
            try:
                return await self._try(request, call_id, number, broker)
            except DejamqError as error:
                failure = error
        unique = request.messages[0].system_properties.message_id
        self._client.journal.write(SendEnd(
            call_ids=[call_id], unique_keys=[unique], code=int(failure.code), definite=False, reason=str(failure)
        ))  # fmt: skip
        raise failure

    async def _try(
        self, request: pb.SendMessageRequest, call_id: int, number: int, broker: tuple[str, str]
    ) -> None:  # fmt: skip
        client, seq, (name, address) = self._client, self._client.next_seq(), broker
        system = request.messages[0].system_properties
        client.journal.write(SendTry(
            request_seq=seq, broker_name=name, address=address, group=self._group,
            topics=[request.messages[0].topic.name], call_ids=[call_id], tries=[number],
            unique_keys=[system.message_id], business_keys=list(system.keys[:1]),
        ))  # fmt: skip
        try:
            await client.call(address, "SendMessage", request, seq=seq, timeout_s=self._try_s)
        except DejamqError as error:
            lost = isinstance(error, BrokerUnavailable)
            client.journal.write(SendResultEvent(
                request_seq=seq, outcome="timeout" if lost else "refused", code=int(error.code), definite=not lost,
                reason=str(error),
            ))  # fmt: skip
            raise
        client.journal.write(SendResultEvent(request_seq=seq, outcome="ok"))

    def _request(self, message: Message) -> pb.SendMessageRequest:
        """With one id for all tries."""
        system = pb.SystemProperties(
            message_id=self._ids.take(), message_type=pb.NORMAL, body_encoding=pb.IDENTITY, keys=message.keys,
            tag=message.tags,
        )  # fmt: skip
        system.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
        sent = pb.Message(topic=pb.Resource(name=message.topic), system_properties=system, body=message.body)
        return pb.SendMessageRequest(messages=[sent])
