"""The events of the journal: one struct each, the audit's schema is made from them.

Fields with one name have one type everywhere. Identity of a message: ``unique_keys`` (UNIQ_KEY), the place it is stored
(``broker_name``, ``topic``, ``queue_id``, queue offset) and, for one delivery, (``boot_id``, delivery id).
Meaning of each event: docs/journal.md. Source of the set: what it takes to attribute a duplicate with certainty.
"""

from dejamq_proto.events.base import SCHEMA_VERSION, ClockJump, Event, Fault, Gap, State
from dejamq_proto.events.broker import (
    Append,
    Boot,
    Claim,
    ClientClash,
    Lock,
    Member,
    MemberList,
    OffFlush,
    OffGet,
    OffIgnored,
    OffLoad,
    OffSet,
    ProgressFlush,
    ProgressLoad,
    Pull,
    Release,
    Unlock,
)
from dejamq_proto.events.consumer import Assign, Deliver, Handout, Persist, PqDrop, PqOpen, Result, Sendback
from dejamq_proto.events.ha import Replica
from dejamq_proto.events.namesrv import Broker, Route
from dejamq_proto.events.producer import SendEnd, SendResult, SendTry
from dejamq_proto.events.transactions import CheckTransaction, EndTransaction, Tx

__all__ = [
    "EVENTS",
    "SCHEMA_VERSION",
    "Append",
    "Assign",
    "Boot",
    "Broker",
    "CheckTransaction",
    "Claim",
    "ClientClash",
    "ClockJump",
    "Deliver",
    "EndTransaction",
    "Event",
    "Fault",
    "Gap",
    "Handout",
    "Lock",
    "Member",
    "MemberList",
    "OffFlush",
    "OffGet",
    "OffIgnored",
    "OffLoad",
    "OffSet",
    "Persist",
    "PqDrop",
    "PqOpen",
    "ProgressFlush",
    "ProgressLoad",
    "Pull",
    "Release",
    "Replica",
    "Result",
    "Route",
    "SendEnd",
    "SendResult",
    "SendTry",
    "Sendback",
    "State",
    "Tx",
    "Unlock",
]

EVENTS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
