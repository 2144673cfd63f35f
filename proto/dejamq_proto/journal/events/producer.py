"""Lines of a producer on a message: tries, answers, and the end for the program."""

from dejamq_proto.journal.events.base import Event

CLOSED_BY_A_TIMEOUT = "closed after a time-out"
"""In the reason of runs that failed with their connection, which the client closed because another took too long."""


class SendTry(Event, tag="SEND_TRY"):
    """A run leaves for a broker. (boot_id, request_seq) meets the broker's APPEND. ``tries`` counts from 1 a call.

    ``modes``: sync, async, batch, request or oneway; of each call, once where all are the same, none if all are sync.
    """

    request_seq: int
    broker_name: str
    address: str
    group: str
    topics: list[str]
    call_ids: list[int]
    tries: list[int]
    unique_keys: list[str]
    business_keys: list[str] = []
    modes: list[str] = []


class SendResultEvent(Event, tag="SEND_RESULT"):
    """How a run ended: ``outcome`` is ok, not_ok_status, refused, connection_lost, timeout or connect_failed."""

    request_seq: int
    outcome: str
    code: int = 0
    definite: bool = True
    reason: str = ""


class SendEnd(Event, tag="SEND_END"):
    """Calls that ended with an error for the caller."""

    call_ids: list[int]
    unique_keys: list[str]
    code: int
    definite: bool
    reason: str = ""
