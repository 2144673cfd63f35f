"""Decides which failed sends are tried again: pure. Source: RocketMQ ``DefaultMQProducerImpl.sendDefaultImpl``."""

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq.sending.sends import DEDUP, Sends

ASYNC = ("async", "request")
TRANSPORT = frozenset({Code.CONNECT_BROKER_EXCEPTION, Code.ACCESS_BROKER_TIMEOUT})


class RetryRule(msgspec.Struct, frozen=True):
    """How often to try again, and after which of a broker's refusals."""

    times: int
    codes: frozenset[Code]
    async_times: int | None = None
    """Of sends that the program does not wait for, and of requests; None: as often as the others."""

    def again(self, sends: Sends, error: DejamqError, now: float) -> list[bool]:
        """Which to send again, on another broker. ``now`` and deadlines are monotonic seconds.

        A plain time-out used up the budget and so is not followed by another try; one of a try that was given
        less than the budget is.
        """
        if error.code not in self.codes and error.code not in TRANSPORT:
            return [False] * len(sends)
        return [
            patient and now < deadline for patient, deadline in zip(self.patient(sends), sends.deadlines, strict=True)
        ]

    def patient(self, sends: Sends) -> list[bool]:
        """Whether a failure of each may be followed by another try at all.

        A pinned send (explicit queue, selector, sharding key) and a oneway have one: elsewhere the message
        would be where the program did not want it. What its broker would know goes there again and again, in its time.
        """
        dedup, stay = bool(sends.kind & DEDUP), sends.stay
        return [
            (dedup or not pinned) and future is not None and (stay or sends.retries < self._times(mode))
            for pinned, future, mode in zip(sends.pinned, sends.futures, sends.each_mode, strict=True)
        ]

    def _times(self, mode: str) -> int:
        return self.times if self.async_times is None or mode not in ASYNC else self.async_times


def final_error(message_id: str, sends: Sends, error: DejamqError) -> DejamqError:
    """The error for one of these sends: not definite when any try may have stored the message.

    Of the same class and code as the last try's; the text names the message, so that a log tells which one it
    was.
    """
    tries = f" (message {message_id}, tries: {sends.tries})"
    return type(error)(f"{error}{tries}", code=error.code, definite=error.definite and not sends.indefinite)


def outcome_of(error: DejamqError) -> str:
    """The journal's word for how a run without an answer ended."""
    if error.code == Code.CONNECT_BROKER_EXCEPTION:
        return "connect_failed" if error.definite else "connection_lost"
    return "timeout" if error.code == Code.ACCESS_BROKER_TIMEOUT else "refused"
