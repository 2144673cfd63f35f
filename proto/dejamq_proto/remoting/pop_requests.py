"""The requests for messages that groups pop. Their numbers do not fit a binary header, so they come in JSON.

Source: RocketMQ ``RequestCode`` and the classes of its headers.
"""

from dejamq_proto.remoting.header import I32, I64
from dejamq_proto.remoting.requests import Fields, declare


class PopMessage(Fields):
    """``queue_id`` -1: any. ``init_mode`` 0: a group without an offset begins with the oldest message."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64
    init_mode: I32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class MessagePopped(Fields):
    """The texts name, for each queue, a kind of topic and what belongs to it."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Fields):
    """``topic`` is that of the queue in which the message lies; ``extra_info`` is a receipt handle."""

    consumer_group: str
    topic: str
    queue_id: I32
    offset: I64
    extra_info: str


class ChangeInvisible(AckMessage):
    invisible_time: I64


class InvisibleChanged(Fields):
    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class PopQuestion(Fields):
    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64
    order: bool | None = None
    attempt_id: str | None = None


class PopAnswered(Fields):
    has_msg: bool
    polling_full: bool = False


POP_MESSAGE = declare(200050, "POP_MESSAGE", PopMessage, MessagePopped)
ACK_MESSAGE = declare(200051, "ACK_MESSAGE", AckMessage)
BATCH_ACK_MESSAGE = declare(200151, "BATCH_ACK_MESSAGE", Fields)
CHANGE_INVISIBLE = declare(200053, "CHANGE_MESSAGE_INVISIBLETIME", ChangeInvisible, InvisibleChanged)
NOTIFICATION = declare(200054, "NOTIFICATION", PopQuestion, PopAnswered)
QUERY_ASSIGNMENT = declare(400, "QUERY_ASSIGNMENT", Fields)
SET_REQUEST_MODE = declare(401, "SET_MESSAGE_REQUEST_MODE", Fields)
GET_ALL_REQUEST_MODES = declare(402, "GET_ALL_MESSAGE_REQUEST_MODE", Fields)
