"""What a failed try means for its call: pure. Source: RocketMQ ``DefaultMQProducerImpl.sendDefaultImpl``."""

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq.call import Call

ASYNC = ("async", "request")
TRANSPORT = frozenset({Code.CONNECT_BROKER_EXCEPTION, Code.ACCESS_BROKER_TIMEOUT})


class RetryRule(msgspec.Struct, frozen=True):
    """How often to try again, and after which of a broker's refusals."""

    times: int
    codes: frozenset[Code]
    async_times: int | None = None
    """Of calls that the program does not wait for, and of requests; None: as often as the others."""

    def again(self, call: Call, error: DejamqError, now: float) -> bool:
        """Whether to send again, on another broker. ``now`` and the deadline are monotonic seconds.

        A plain time-out used up the budget and so is not followed by another try; one of a try that was given
        less than the budget is.
        """
        return self.patient(call) and now < call.deadline and (error.code in self.codes or error.code in TRANSPORT)

    def patient(self, call: Call) -> bool:
        """Whether a failure may be followed by another try at all.

        A pinned call (explicit queue, selector, sharding key) and a oneway have one: elsewhere the message
        would be where the program did not want it.
        """
        times = self.times if self.async_times is None or call.mode not in ASYNC else self.async_times
        return not call.pinned and call.future is not None and call.retries < times


def final_error(call: Call, error: DejamqError) -> DejamqError:
    """The error for the caller: not definite when any try may have stored the message.

    Of the same class and code as the last try's; the text names the message, so that a log tells which one it
    was.
    """
    tries = f" (message {call.message.message_id}, tries: {call.tries})"
    definite = error.definite and not call.indefinite
    return type(error)(f"{error}{tries}", code=error.code, definite=definite)


def outcome_of(error: DejamqError) -> str:
    """The journal's word for how a run without an answer ended."""
    if error.code == Code.CONNECT_BROKER_EXCEPTION:
        return "connect_failed" if error.definite else "connection_lost"
    return "timeout" if error.code == Code.ACCESS_BROKER_TIMEOUT else "refused"
