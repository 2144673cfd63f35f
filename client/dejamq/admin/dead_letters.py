"""Dead letters of groups: read with the known facts, and sent again, each dead letter once."""

from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.dead_letters_pb2 import ReplayRequest

from dejamq.admin.messages import StoredMessages
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue


class LetterFacts(msgspec.Struct, frozen=True):
    """The facts in a dead letter's properties; times are ms since 1970.

    ``topic`` is the one it was first sent to ("" where a foreign program wrote none), ``tries`` the failures that were
    counted. ``reason`` is why the last one failed, "" where nobody told the broker: RocketMQ's clients do not.
    ``replay_of`` is the dead letter that this one was before it was sent again.
    """

    group: str
    topic: str
    tries: int
    reason: str
    born_ms: int
    died_ms: int
    message_id: str
    offset_message_id: str
    first_offset_message_id: str
    replay_of: str

    @classmethod
    def of(cls, letter: ReceivedMessage) -> Self:
        """Read them from its properties."""
        own = letter.properties
        return cls(
            group=letter.queue.topic.removeprefix(names.DLQ_PREFIX), topic=own.get(names.PROPERTY_RETRY_TOPIC, ""),
            tries=letter.reconsume_times, reason=own.get(names.PROPERTY_DEAD_LETTER_REASON, ""),
            born_ms=letter.born_timestamp_ms, died_ms=letter.store_timestamp_ms, message_id=letter.message_id,
            offset_message_id=letter.offset_message_id,
            first_offset_message_id=own.get(names.PROPERTY_ORIGIN_MESSAGE_ID, ""),
            replay_of=own.get(names.PROPERTY_REPLAY_OF, ""),
        )  # fmt: skip


def export_row(letter: ReceivedMessage) -> dict[str, Any]:
    """One dead letter for a file: its facts, where it lies, tags, keys, all properties, and the body.

    ``body`` is text where it is UTF-8, else None; ``body_base64`` is always there. Everything is what JSON can hold.
    """
    row: dict[str, Any] = msgspec.to_builtins(LetterFacts.of(letter))
    row |= {"broker_name": letter.queue.broker_name, "queue_id": letter.queue.queue_id}
    row |= {"queue_offset": letter.queue_offset, "tags": letter.tags, "keys": letter.keys}
    row |= {"properties": dict(letter.properties), "body": None, "body_base64": msgspec.to_builtins(letter.body)}
    try:
        row["body"] = letter.body.decode()
    except UnicodeDecodeError:
        pass
    return row


class Replay(msgspec.Struct, frozen=True):
    """The outcome of one dead letter that was to be sent again.

    ``topic`` is where it went, or would go. ``queue`` and what follows name the new record; without one there is none:
    it was replayed before, at ``replayed_ms`` (ms since 1970, 0 for never), or this was a dry run.
    """

    letter: ReceivedMessage
    topic: str
    replayed_ms: int
    queue: MessageQueue | None = None
    queue_offset: int = -1
    offset_message_id: str = ""

    @property
    def stored(self) -> bool:
        """A new record is stored."""
        return self.queue is not None


class DeadLetterOffice(StoredMessages):
    """The part of ``Admin`` that is about dead letters."""

    async def dead_letters(
        self, group: str, *, topic: str | None = None, begin_ms: int = 0, end_ms: int = 0
    ) -> AsyncIterator[ReceivedMessage]:
        """The group's dead letters, from all brokers, queue by queue. Nothing is taken away.

        ``topic`` keeps those that were first sent to it; ``begin_ms`` and ``end_ms`` are when they died, both
        included, 0 is no bound. ``LetterFacts.of`` says what is known of one. Raises InvalidName.
        """
        names.check_group(group)
        place = names.dlq_topic(group)
        for one in await self.topic(place):
            for queue_id in range(one.write_queues):
                async for letter in self.read(MessageQueue(place, one.broker_name, queue_id)):
                    if topic in (None, letter.properties.get(names.PROPERTY_RETRY_TOPIC)) and (
                        begin_ms <= letter.store_timestamp_ms <= (end_ms or letter.store_timestamp_ms)
                    ):
                        yield letter

    async def replay_dead_letter(
        self, group: str, letter: ReceivedMessage | str, *, to_topic: bool = False, again: bool = False,
        dry_run: bool = False,
    ) -> Replay:  # fmt: skip
        """Send one dead letter (or the one with this offset message id) again, to its group alone.

        A new record is stored by the dead letter's broker, with the same id, body and birth, no tries, and the
        properties REPLAY_OF and REPLAYED_FROM; the dead letter stays. ``to_topic`` sends it to the topic it was first
        sent to, so that every group of it gets it. One that was replayed before, by whomever, is not stored again
        unless ``again``. Raises DejamqError: QUERY_NOT_FOUND for what is no dead letter of the group,
        TOPIC_NOT_EXIST, INVALID_PARAMETER for a group without retry queues.
        """
        names.check_group(group)
        if isinstance(letter, str):
            letter = await self.message(letter)
        queue = letter.queue
        if queue.topic != names.dlq_topic(group):
            text = f"message {letter.offset_message_id} of {queue.topic} is no dead letter of group {group!r}"
            raise DejamqError(text, code=Code.QUERY_NOT_FOUND)
        (address,) = (await self._open().masters([queue.broker_name])).values()
        answer = await self._open().admin(address).replay(ReplayRequest(
            group=group, log_offset=letter.log_offset, to_topic=to_topic, again=again, dry_run=dry_run
        ))  # fmt: skip
        if not answer.stored:
            return Replay(letter, answer.topic, answer.replayed_ms)
        place = MessageQueue(answer.topic, queue.broker_name, answer.queue_id)
        return Replay(letter, answer.topic, answer.replayed_ms, place, answer.queue_offset, answer.offset_message_id)

    async def replay_dead_letters(
        self, group: str, *, topic: str | None = None, begin_ms: int = 0, end_ms: int = 0, to_topic: bool = False,
        again: bool = False, dry_run: bool = False,
    ) -> AsyncIterator[Replay]:  # fmt: skip
        """Send all (chosen as in ``dead_letters``) again, one after the other in the order of their queues.

        Those that die again meanwhile are left for the next time. Stop and go on as you like: what was replayed is
        passed over. Raises as ``replay_dead_letter``.
        """
        async for letter in self.dead_letters(group, topic=topic, begin_ms=begin_ms, end_ms=end_ms):
            yield await self.replay_dead_letter(group, letter, to_topic=to_topic, again=again, dry_run=dry_run)
