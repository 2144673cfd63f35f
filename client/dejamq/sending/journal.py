"""A producer's journal lines about its sends: each try before it leaves, each outcome, each failed send."""

from collections.abc import Sequence

from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import SendEnd, SendResultEvent, SendTry
from dejamq_proto.journal.writer import Journal
from dejamq_proto.names import PROPERTY_KEYS
from dejamq_proto.records.json_columns import Listed, counted

from dejamq.sending.batching import Flight
from dejamq.sending.sends import Sends
from dejamq.values.message import Message, SendStatus


class SendJournal:
    """Writes the producer's events; does nothing where the journal is off.

    RocketMQ's trace records a try only after it returned (AsyncTraceDispatcher), so that lost ones leave no
    line; here the line stands before the try leaves.
    """

    def __init__(self, journal: Journal, group: str, business_key: str | None) -> None:
        self._journal, self._group, self._business_key = journal, group, business_key

    def leaving(self, flight: Flight) -> None:
        """Before a run leaves: at ``forensic`` the line survives what happens next."""
        if not self._journal.on:
            return
        sends = flight.sends
        self._journal.write(
            SendTry(
                request_seq=flight.seq, broker_name=flight.lane.broker_name, address=flight.address, group=self._group,
                topics=sorted(sends.topics),
                call_ids=_listed(sends.call_ids),
                tries=[sends.tries] * len(sends),
                unique_keys=sends.message_ids,
                business_keys=list(map(self._key_of, sends.messages)) if self._business_key else [],
                modes=_modes(sends),
            )
        )  # fmt: skip

    def stored(self, flight: Flight, status: SendStatus) -> None:
        """A run was answered as stored."""
        if self._journal.on:
            outcome = "ok" if status is SendStatus.SEND_OK else "not_ok_status"
            self._journal.write(SendResultEvent(request_seq=flight.seq, outcome=outcome, code=int(status)))

    def result(self, flight: Flight, error: DejamqError, outcome: str) -> None:
        """A run was refused, lost or given up."""
        if self._journal.on:
            self._journal.write(
                SendResultEvent(
                    request_seq=flight.seq, outcome=outcome, code=int(error.code), definite=error.definite,
                    reason=str(error),
                )
            )  # fmt: skip

    def failed(self, sends: Sends, error: DejamqError) -> None:
        """These failed for good."""
        if not self._journal.on or not sends:
            return
        self._journal.write(
            SendEnd(
                call_ids=_listed(sends.call_ids), unique_keys=sends.message_ids, code=int(error.code),
                definite=error.definite and not sends.indefinite, reason=str(error),
            )
        )  # fmt: skip

    def _key_of(self, message: Message) -> str:
        if self._business_key == PROPERTY_KEYS:
            return next(iter(message.keys), "")
        return message.properties.get(self._business_key or "", "")


def _listed(call_ids: Sequence[int]) -> Listed:
    """Without an object for each, where they follow one another."""
    return counted(call_ids.start, call_ids.stop) if isinstance(call_ids, range) else call_ids


def _modes(sends: Sends) -> list[str]:
    """As short as ``SendTry`` allows: nearly every run has sends of one mode."""
    modes = sends.modes or [sends.mode]
    different = set(modes)
    return modes if len(different) > 1 else [] if different == {"sync"} else modes[:1]
