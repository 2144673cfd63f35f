"""dejamq: send and receive messages as with RocketMQ, from asyncio programs."""

from dejamq_proto.codes import (
    BacklogFull,
    BrokerUnavailable,
    ClientClosed,
    Code,
    ConfigError,
    DejamqError,
    ForkedProcess,
    InvalidName,
    MessageTooLarge,
    PermissionDenied,
    RouteNotFound,
    SendTimeout,
)

from dejamq.consume_from import ConsumeFrom, MessageModel
from dejamq.consumer import PushConsumer
from dejamq.handlers import BatchHandler, BatchResult, ConsumeStatus, DeadLetter, Handler, RetryLater
from dejamq.message import Message, MessageQueue, SendResult, SendStatus
from dejamq.producer import Producer
from dejamq.received import ReceivedMessage
from dejamq.runner import run

__all__ = [
    "BacklogFull",
    "BatchHandler",
    "BatchResult",
    "BrokerUnavailable",
    "ClientClosed",
    "Code",
    "ConfigError",
    "ConsumeFrom",
    "ConsumeStatus",
    "DeadLetter",
    "DejamqError",
    "ForkedProcess",
    "Handler",
    "InvalidName",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageTooLarge",
    "PermissionDenied",
    "Producer",
    "PushConsumer",
    "ReceivedMessage",
    "RetryLater",
    "RouteNotFound",
    "SendResult",
    "SendStatus",
    "SendTimeout",
    "run",
]
