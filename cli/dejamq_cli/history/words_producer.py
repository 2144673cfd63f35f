"""What the lines of producers say, and those about transactions."""

from collections.abc import Callable
from typing import Any

from dejamq_proto import events as ev
from dejamq_proto.codes import Code

from dejamq_cli.history.speech import Speech

DOUBT = "; it may be stored all the same"


class ProducerWords:
    """Sentences by event."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.sentences: dict[type[ev.Event], Callable[[Any], str]] = {
            ev.SendTry: self._send_try, ev.SendResult: self._send_result, ev.SendEnd: self._send_end,
            ev.Tx: self._tx, ev.EndTransaction: self._end_transaction, ev.CheckTransaction: self._check_transaction,
        }  # fmt: skip

    def _send_try(self, event: ev.SendTry) -> str:
        number = self._speech.trace.tries[event.boot_id, event.request_seq]
        others = len(event.unique_keys) - 1
        company = f" with {others} other{'s' if others > 1 else ''}" if others else ""
        return f"sends it to {event.broker_name}{company}" + (f", try {number}" if number > 1 else "")

    def _send_result(self, event: ev.SendResult) -> str:
        number = self._speech.trace.tries[event.boot_id, event.request_seq]
        doubt = "" if event.definite else DOUBT
        reason = f": {event.reason}" if event.reason else ""
        answer = "is answered: stored" if event.outcome == "ok" else f"{event.outcome.replace('_', ' ')}{reason}{doubt}"
        if event.outcome == "not_ok_status":
            answer = f"is answered: stored, but {_code(event.code)}"
        return f"try {number} {answer}"

    def _send_end(self, event: ev.SendEnd) -> str:
        return f"gives up: {event.reason}" + ("" if event.definite else DOUBT)

    def _tx(self, event: ev.Tx) -> str:
        why = f" ({event.reason})" if event.reason else ""
        asked = "answers the check" if event.from_check else "ends the transaction"
        return f"{asked}: {event.state}{why}"

    def _end_transaction(self, event: ev.EndTransaction) -> str:
        why = f" ({event.reason})" if event.reason else ""
        return f"is told {event.state} by {self._speech.name_of(event.client_boot_id)}: {event.outcome}{why}"

    def _check_transaction(self, event: ev.CheckTransaction) -> str:
        asked = (
            f"asks {self._speech.name_of(event.client_id)}"
            if event.client_id
            else "would ask a producer, but none is online,"
        )
        return f"{asked} how the transaction ended, check {event.check_times}"


def _code(number: int) -> str:
    return Code(number).name if number in Code._value2member_map_ else str(number)
