"""What a failed try means for its call: pure. Source: RocketMQ ``DefaultMQProducerImpl.sendDefaultImpl``."""

from dejamq_proto.codes import SEND_RETRIABLE, Code, DejamqError

from dejamq.batching import Call


def may_retry(call: Call, error: DejamqError, *, now: float, retry_times: int) -> bool:
    """Whether to send again, on another broker. A time-out is not retried: it used up the budget.

    RocketMQ: retryResponseCodes of DefaultMQProducer and transport failures. A pinned call (explicit queue,
    sharding key) and a oneway have one try. ``now`` and the deadline are monotonic seconds.
    """
    return (
        not call.pinned
        and call.future is not None
        and call.retries < retry_times
        and now < call.deadline
        and error.code in SEND_RETRIABLE
    )


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
