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
    RequestTimeout,
    RouteNotFound,
    SendTimeout,
    WaitTimeout,
)

from dejamq.admin import Admin
from dejamq.allocation import ByConfig, Strategy
from dejamq.allocation_hash import ConsistentHash
from dejamq.allocation_rooms import ByMachineRoom, ByMachineRoomNearby
from dejamq.consume_from import ConsumeFrom, MessageModel
from dejamq.consumer import PushConsumer
from dejamq.handlers import BatchHandler, BatchResult, ConsumeStatus, DeadLetter, Handler, RetryLater
from dejamq.hooks import ConsumeContext, ConsumeHook
from dejamq.inbox import Inbox
from dejamq.lite_pull import LitePullConsumer
from dejamq.message import Message, MessageQueue, SendResult, SendStatus
from dejamq.ordered_handlers import OrderedStatus, SuspendQueue
from dejamq.producer import Producer
from dejamq.received import ReceivedMessage
from dejamq.requests import reply_to
from dejamq.runner import run
from dejamq.selectors import Selector, select_by_hash, select_machine_room, select_random
from dejamq.send_batches import BatchIncomplete
from dejamq.send_hooks import SendContext, SendHook
from dejamq.transaction import TransactionResult, TransactionState
from dejamq.transaction_hooks import EndTransactionContext, EndTransactionHook
from dejamq.transaction_producer import TransactionProducer

__all__ = [
    "Admin",
    "BacklogFull",
    "BatchHandler",
    "BatchIncomplete",
    "BatchResult",
    "BrokerUnavailable",
    "ByConfig",
    "ByMachineRoom",
    "ByMachineRoomNearby",
    "ClientClosed",
    "Code",
    "ConfigError",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeHook",
    "ConsumeStatus",
    "DeadLetter",
    "DejamqError",
    "EndTransactionContext",
    "EndTransactionHook",
    "ForkedProcess",
    "Handler",
    "Inbox",
    "InvalidName",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageTooLarge",
    "OrderedStatus",
    "PermissionDenied",
    "Producer",
    "PushConsumer",
    "ReceivedMessage",
    "RequestTimeout",
    "RetryLater",
    "RouteNotFound",
    "Selector",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SendTimeout",
    "Strategy",
    "SuspendQueue",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "WaitTimeout",
    "reply_to",
    "run",
    "select_by_hash",
    "select_machine_room",
    "select_random",
]
