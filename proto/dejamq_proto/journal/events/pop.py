"""Lines on popped messages, of brokers and consumers. (topic, queue id, queue offset, ``pop_time``) names one delivery.

``topic`` is that of the queue in which the message lies, so it may be a retry topic of the group. With ``start_offset``
and ``invisible_ms`` these are the fields of RocketMQ's receipt handle.
"""

from dejamq_proto.journal.events.base import Event


class Pop(Event, tag="POP"):
    """Messages of a queue were given to a consumer until ``pop_time`` + ``invisible_ms`` (ms since 1970)."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    request_seq: int
    start_offset: int
    queue_offsets: list[int]
    pop_time: int
    invisible_ms: int
    next_offset: int
    ordered: bool = False


class Ack(Event, tag="ACK"):
    """A consumer is done with popped messages. ``outcome``: ok, again (it said so before), refused."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    request_seq: int
    queue_offsets: list[int]
    pop_time: int
    outcome: str = "ok"
    reason: str = ""


class Change(Event, tag="CHANGE"):
    """A popped message is invisible for another time, counted from ``new_pop_time``.

    ``how``: visible (earlier than before, or at once), renewed (later), again (the same question once more, and the
    same answer). ``pop_time`` names the delivery that ends with it. ``asked_pop_time`` names the one by whose handle
    the consumer asked, where that is an earlier one: an answer was lost, or the broker had renewed the message.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    request_seq: int
    queue_offset: int
    pop_time: int
    new_pop_time: int
    invisible_ms: int
    how: str
    asked_pop_time: int = 0


class Revive(Event, tag="REVIVE"):
    """Nobody acknowledged a popped message in time: a copy was stored, a dead letter where ``dead``.

    ``attempt`` counts the deliveries, the one that the copy is for included.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    pop_time: int
    invisible_ms: int
    target_topic: str
    target_queue_id: int
    target_offset: int
    attempt: int
    dead: bool = False


class PopDrop(Event, tag="POP_DROP"):
    """Popped messages are in flight no more, though nobody acknowledged them and no copy was stored.

    ``reason``: reset (an operator sent the group elsewhere: they come again, or are passed over), deleted (the group or
    the topic is), gone (the message, its topic or its group was, when its time was over).
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    queue_offsets: list[int]
    pop_time: int
    reason: str


class AckTry(Event, tag="ACK_TRY"):
    """A program says that popped messages are done, and its consumer is about to tell the broker.

    Without an ``ACK`` of the broker before their time is over, they come again.
    """

    group: str
    topic: str
    broker_name: str
    queue_id: int
    client_id: str
    delivery_ids: list[int]
    queue_offsets: list[int]
    pop_times: list[int]
    """By which the broker knows the delivery of each."""
