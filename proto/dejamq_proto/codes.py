"""RocketMQ's response codes, and the errors that carry them between processes.

Source: RocketMQ 5.3 ``ResponseCode``, ``RemotingSysResponseCode``, client ``ClientErrorCode``. An error says what to do
next: ``retriable`` (another broker may do better) and ``definite`` (the operation surely did not happen). Sending again
after an error that is not definite is what stores a message twice.
"""

from enum import IntEnum


class Code(IntEnum):
    """Numbers and names are RocketMQ's; those from 10001 are made by clients and never travel."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    CONNECT_BROKER_EXCEPTION = 10001
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST = 10003
    NO_NAME_SERVER = 10004
    NOT_FOUND_TOPIC = 10005
    REQUEST_TIMEOUT = 10006
    CREATE_REPLY_MESSAGE_EXCEPTION = 10007
    CLIENT_REFUSED = 10100
    """Ours: the client itself refused, nothing was sent."""


SEND_RETRIABLE = frozenset({
    Code.TOPIC_NOT_EXIST, Code.SERVICE_NOT_AVAILABLE, Code.SYSTEM_ERROR, Code.SYSTEM_BUSY, Code.NO_PERMISSION,
    Code.NO_BUYER_ID, Code.NOT_IN_CURRENT_UNIT, Code.GO_AWAY, Code.CONNECT_BROKER_EXCEPTION,
})  # fmt: skip
INDEFINITE = frozenset({
    Code.SYSTEM_ERROR, Code.ACCESS_BROKER_TIMEOUT, Code.REQUEST_TIMEOUT, Code.FLUSH_DISK_TIMEOUT,
    Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.CONSUME_MSG_TIMEOUT,
})  # fmt: skip


LONGEST_TEXT = 2000
"""Of an error, in characters: a text may quote what a stranger has chosen, and travels in a header of gRPC."""


def cut(text: str) -> str:
    """The text, with an end that says so where it is longer than ``LONGEST_TEXT``."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


class DejamqError(Exception):
    """Root of all errors: ``code``, ``retriable`` and ``definite`` (alias ``not_done``).

    ``code`` is RocketMQ's number, SYSTEM_ERROR for one that this version does not know. ``definite`` follows
    from the code unless the place that raises it knows better.
    """

    default_code = Code.SYSTEM_ERROR

    def __init__(self, text: str, *, code: int | None = None, definite: bool | None = None) -> None:
        super().__init__(cut(text))
        self.code = self.default_code if code is None else _known(code)
        self.retriable = self.code in SEND_RETRIABLE
        self.definite = self.code not in INDEFINITE if definite is None else definite

    @property
    def not_done(self) -> bool:
        """Another name for ``definite``: the operation surely did not happen."""
        return self.definite


class SendTimeout(DejamqError, TimeoutError):
    """No answer within the budget: the message may or may not be stored."""

    default_code = Code.ACCESS_BROKER_TIMEOUT


class RequestTimeout(DejamqError, TimeoutError):
    """No reply came in time; whether the request was sent, and handled, is not known."""

    default_code = Code.REQUEST_TIMEOUT


class WaitTimeout(DejamqError, TimeoutError):
    """The result that the program waited for did not come in time; the waiting call did nothing."""

    default_code = Code.CLIENT_REFUSED


class RouteNotFound(DejamqError):
    """No name server knows a broker for the topic."""

    default_code = Code.NOT_FOUND_TOPIC


class BrokerUnavailable(DejamqError, ConnectionError):
    """No connection, or it broke. ``definite`` tells whether the request had left."""

    default_code = Code.CONNECT_BROKER_EXCEPTION


class MessageTooLarge(DejamqError, ValueError):
    """A body, a batch or a property field over a limit of the client, the broker or the record format."""

    default_code = Code.MESSAGE_ILLEGAL


class InvalidName(DejamqError, ValueError):
    """A topic, group, tag or property that breaks RocketMQ's rules for names."""

    default_code = Code.INVALID_PARAMETER


class PermissionDenied(DejamqError):
    """The topic, the group or the broker does not allow this (RocketMQ: NO_PERMISSION)."""

    default_code = Code.NO_PERMISSION


class BacklogFull(DejamqError):
    """More bytes wait to be sent than ``max_pending_bytes``; await ``drain()``."""

    default_code = Code.CLIENT_REFUSED


class ClientClosed(DejamqError):
    """The client was closed, or never started; make a new one."""

    default_code = Code.CLIENT_REFUSED


class ConfigError(DejamqError, ValueError):
    """A setting or an argument that cannot work; nothing was begun."""

    default_code = Code.CLIENT_REFUSED


class ForkedProcess(DejamqError):
    """A client made before ``fork`` cannot be used after it; make a new one."""

    default_code = Code.CLIENT_REFUSED


BY_CODE: dict[int, type[DejamqError]] = {
    Code.NO_PERMISSION: PermissionDenied,
    Code.MESSAGE_ILLEGAL: MessageTooLarge,
    Code.NOT_FOUND_TOPIC: RouteNotFound,
    Code.TOPIC_NOT_EXIST: RouteNotFound,
    Code.CONNECT_BROKER_EXCEPTION: BrokerUnavailable,
    Code.ACCESS_BROKER_TIMEOUT: SendTimeout,
}


def error_for(code: int, remark: str, *, definite: bool | None = None) -> DejamqError:
    """The error that a broker's or name server's answer with this code means."""
    return BY_CODE.get(code, DejamqError)(remark, code=code, definite=definite)


def _known(code: int) -> Code:
    try:
        return Code(code)
    except ValueError:
        return Code.SYSTEM_ERROR
