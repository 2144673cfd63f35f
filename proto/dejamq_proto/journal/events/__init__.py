"""The events of the journal: one struct each, the audit's schema is made from them.

Fields with one name have one type everywhere. Identity of a message: ``unique_keys`` (UNIQ_KEY), the place it is stored
(``broker_name``, ``topic``, ``queue_id``, queue offset) and, for one delivery, (``boot_id``, delivery id). Meaning of
each event: docs/journal.md. Source of the set: the facts needed to attribute a duplicate with certainty.

Each process writes its own events. Enter at ``base``.
"""

from dejamq_proto.journal.events.base import SCHEMA_VERSION, ClockJump, Event, Fault, Gap, State
from dejamq_proto.journal.events.broker import (
    Append,
    Boot,
    ClaimEvent,
    ClientClash,
    Lock,
    MemberEvent,
    MemberList,
    OffFlush,
    OffGet,
    OffIgnored,
    OffLoad,
    OffSet,
    ProgressFlush,
    ProgressLoad,
    Pull,
    ReleaseEvent,
    Repeat,
    Unlock,
)
from dejamq_proto.journal.events.consumer import Assign, Deliver, Handout, Persist, PqDrop, PqOpen, Result, Sendback
from dejamq_proto.journal.events.ha import ReplicaEvent
from dejamq_proto.journal.events.namesrv import BrokerEvent, Route
from dejamq_proto.journal.events.pop import Ack, AckTry, Change, Pop, PopDrop, Revive
from dejamq_proto.journal.events.producer import SendEnd, SendResultEvent, SendTry
from dejamq_proto.journal.events.transactions import CheckTransaction, EndTransaction, Tx

__all__ = [
    "EVENTS",
    "SCHEMA_VERSION",
    "Ack",
    "AckTry",
    "Append",
    "Assign",
    "Boot",
    "BrokerEvent",
    "Change",
    "CheckTransaction",
    "ClaimEvent",
    "ClientClash",
    "ClockJump",
    "Deliver",
    "EndTransaction",
    "Event",
    "Fault",
    "Gap",
    "Handout",
    "Lock",
    "MemberEvent",
    "MemberList",
    "OffFlush",
    "OffGet",
    "OffIgnored",
    "OffLoad",
    "OffSet",
    "Persist",
    "Pop",
    "PopDrop",
    "PqDrop",
    "PqOpen",
    "ProgressFlush",
    "ProgressLoad",
    "Pull",
    "ReleaseEvent",
    "Repeat",
    "ReplicaEvent",
    "Result",
    "Revive",
    "Route",
    "SendEnd",
    "SendResultEvent",
    "SendTry",
    "Sendback",
    "State",
    "Tx",
    "Unlock",
]

EVENTS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
