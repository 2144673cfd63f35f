"""Pulls: headers become queries, answers carry records as they lie in the log, and ``traceable``.

Source: RocketMQ ``PullMessageProcessor``.
"""

from functools import partial

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command
from dejamq_proto.wire.messages import PullAnswer

from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.doors.remoting.traceable import traceable
from dejamq_broker.paths.long_poll import HeldRequest, LongPoll
from dejamq_broker.paths.pull import Puller
from dejamq_broker.paths.rules import PullQuery

MOST_BYTES = 4 << 20
"""Of one answer, besides a last message: Java's clients close a connection that brings 16 MiB at once."""
SENT_ON = (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_OFFSET_MOVED)
"""Answers that say where to go on."""
MOST_HELD = 10_000
"""Pulls of one connection that wait for messages. More are answered POLLING_FULL, and RocketMQ's clients pull again
1 to 3 s later. After PULL_NOT_FOUND they would do so at once, again and again.
"""
LITE = requests.LITE_PULL_MESSAGE.code


class Pulling:
    """Owned by the event loop."""

    def __init__(self, puller: Puller, long_poll: LongPoll, max_suspend_ms: int | None) -> None:
        """``max_suspend_ms`` bounds how long a pull may be held; None: clients decide."""
        self._puller, self._long_poll, self._max_suspend_ms = puller, long_poll, max_suspend_ms

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        return {requests.PULL_MESSAGE.code: self._pull, LITE: self._pull}

    def _pull(self, client: ClientSession, command: Command) -> Command | None:
        request = requests.LITE_PULL_MESSAGE if command.code == LITE else requests.PULL_MESSAGE
        pull = query_of(request.read(command), client, command)
        self._puller.begin(pull, self._long_poll.now_ms(), self._max_suspend_ms)
        return self._look(client, command, pull, first=True, last=False)

    def _look(
        self, client: ClientSession, command: Command, pull: PullQuery, *, first: bool, last: bool
    ) -> Command | None:
        """The answer, or None: it is held until something arrives or its time is over."""
        found = self._puller.look(pull, first=first, last=last)
        if found is not None:
            return _answer(command, found)
        if self._long_poll.full:
            text = "[POLLING_FULL]as many pulls wait for messages here as may (max_held_pulls): pull again later"
            raise DejamqError(text, code=Code.POLLING_FULL)
        if self._long_poll.waiting_of(client) >= MOST_HELD:
            text = f"[POLLING_FULL]{MOST_HELD} pulls of this connection wait for messages already: pull again later"
            raise DejamqError(text, code=Code.POLLING_FULL)
        key = pull.topic, pull.queue_id
        wake = partial(self._wake, client, command, pull)
        self._long_poll.park(HeldRequest(key, pull.deadline_ms, wake, client))
        return None

    def _wake(self, client: ClientSession, command: Command, pull: PullQuery, timed_out: bool) -> None:
        """Whoever's message or deadline wakes it does not wait for the look."""
        look = partial(self._look, client, command, pull, first=False, last=timed_out)
        client.connection.answer_later(command, look)


def query_of(header: requests.PullMessage, client: ClientSession, command: Command) -> PullQuery:
    """The request as the domain knows it. A commit below 0 is none."""
    flag = header.sys_flag
    commits = bool(flag & requests.HAS_COMMIT) and header.commit_offset >= 0
    own = bool(flag & requests.HAS_SUBSCRIPTION)
    return PullQuery(
        asker=client.asker(command), group=header.consumer_group, topic=header.topic, queue_id=header.queue_id,
        queue_offset=header.queue_offset, max_messages=max(header.max_msg_nums, 1),
        max_bytes=min(header.max_msg_bytes or 0, MOST_BYTES) if (header.max_msg_bytes or 0) > 0 else 0,
        suspend_ms=max(header.suspend_timeout_millis, 0) if flag & requests.MAY_SUSPEND else 0,
        commit_offset=header.commit_offset if commits else None,
        expression=(header.subscription or "*") if own else "",
        expression_type=(header.expression_type or "TAG") if own else "", registered=not own,
        subscription_version=header.sub_version, lite=command.code == LITE or bool(flag & requests.LITE),
    )  # fmt: skip


def _answer(command: Command, found: PullAnswer) -> Command:
    code = Code(found.code)
    fields = requests.MessagePulled(
        suggest_which_broker_id=found.suggest_broker_id, next_begin_offset=found.next_offset,
        min_offset=found.min_offset, max_offset=found.max_offset,
    )  # fmt: skip
    remark = found.remark or ("FOUND" if code is Code.SUCCESS else None)
    return answer(command, code, remark, fields if code in SENT_ON else None, traceable(b"".join(found.records)))
