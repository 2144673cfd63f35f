"""dejamq: send and receive messages as with RocketMQ, from asyncio programs.

A program owns its clients. Enter at ``clients.producer`` and ``clients.consumer``.
"""

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

from dejamq.admin.admin import Admin
from dejamq.clients.consumer import PushConsumer
from dejamq.clients.producer import Producer
from dejamq.clients.runner import run
from dejamq.inbox import Inbox
from dejamq.lite.consumer import LitePullConsumer
from dejamq.net.instance import VERSION
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel
from dejamq.receiving.handlers import BatchHandler, BatchResult, ConsumeStatus, DeadLetter, Handler, RetryLater
from dejamq.receiving.hooks import ConsumeContext, ConsumeHook
from dejamq.receiving.ordered_answers import OrderedStatus, SuspendQueue
from dejamq.receiving.received import ReceivedMessage
from dejamq.sending.batches import BatchIncomplete
from dejamq.sending.hooks import SendContext, SendHook
from dejamq.sending.requests import reply_to
from dejamq.simple.consumer import SimpleConsumer
from dejamq.transactions.hooks import EndTransactionContext, EndTransactionHook
from dejamq.transactions.producer import TransactionProducer
from dejamq.transactions.states import TransactionResult, TransactionState
from dejamq.values.allocation import ByConfig, Strategy
from dejamq.values.hash_ring import ConsistentHash
from dejamq.values.machine_rooms import ByMachineRoom, ByMachineRoomNearby
from dejamq.values.message import Message, MessageQueue, SendResult, SendStatus
from dejamq.values.selectors import Selector, select_by_hash, select_machine_room, select_random

__version__ = VERSION

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
    "SimpleConsumer",
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
