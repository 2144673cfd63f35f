"""A consumer's requests to a broker every few seconds, idle or not: its commits, and the query for the group's members.

They go as frames of the heartbeats' channel, which is open anyway, to brokers that read them there. To other brokers,
and before the first heartbeat was acknowledged, they go as calls. A call costs both ends three times a frame, and
these requests are most of the work of idle consumers. Awaited commits stay calls.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dejamq_proto.client_pb2 import (
    BrokerCommand,
    Commits,
    ConsumerListRequest,
    Heartbeat,
    QueueCommit,
    UpdateOffsetRequest,
)
from dejamq_proto.codes import Code, SendTimeout, error_for
from dejamq_proto.common_pb2 import QueueKey

from dejamq.net.identity import Identity
from dejamq.net.stream import AnswerStream


class Upkeep:
    """Owned by the event loop."""

    def __init__(
        self, channel: AnswerStream[BrokerCommand], identity: Identity,
        commit_by_call: Callable[[Sequence[UpdateOffsetRequest]], None],
        members_by_call: Callable[[ConsumerListRequest], Awaitable[list[str]]], timeout_ms: float,
    ) -> None:  # fmt: skip
        """``timeout_ms`` is for answers on the channel."""
        self._channel, self._identity, self._timeout_s = channel, identity, timeout_ms / 1000
        self._commit_by_call, self._members_by_call = commit_by_call, members_by_call
        self._commits: dict[str, list[QueueCommit]] = {}
        self._reading = 0

    def acknowledged(self, *, takes_more: bool) -> None:
        """The broker took a heartbeat, and said whether it reads all this there: on this connection, not the next."""
        self._reading = self._channel.connections if takes_more else 0

    def commit(self, group: str, commit: QueueCommit) -> None:
        """Oneway. Those of one iteration of the loop leave together."""
        if not self._commits:
            asyncio.get_running_loop().call_soon(self.flush)
        self._commits.setdefault(group, []).append(commit)

    def flush(self) -> None:
        """Let commits leave now."""
        gathered, self._commits = self._commits, {}
        for group, queues in gathered.items():
            if self._by_channel:
                commits = Commits(caller=self._identity.caller(queues[0].seq), group=group, queues=queues)
                self._channel.tell(Heartbeat(commits=commits).SerializeToString())
            else:
                self._commit_by_call([self._as_call(group, commit) for commit in queues])

    async def members(self, request: ConsumerListRequest) -> list[str]:
        """The group's client ids. Raises what the broker refuses it with, SendTimeout and BrokerUnavailable."""
        if not self._by_channel:
            return await self._members_by_call(request)
        asked = self._channel.ask(request.caller.seq, Heartbeat(consumer_list=request).SerializeToString())
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = (await asked).consumer_list
        except TimeoutError:
            raise SendTimeout(f"{self._channel.address} did not answer in time") from None
        if answer.code != Code.SUCCESS:
            raise error_for(answer.code, answer.remark)
        return list(answer.client_ids)

    @property
    def _by_channel(self) -> bool:
        """Never opened for this: a channel whose first frame is no heartbeat would make nobody a member."""
        return self._channel.open and self._reading == self._channel.connections

    def _as_call(self, group: str, commit: QueueCommit) -> UpdateOffsetRequest:
        return UpdateOffsetRequest(
            caller=self._identity.caller(commit.seq), group=group, offset=commit.offset, oneway=True,
            queue=QueueKey(topic=commit.topic, queue_id=commit.queue_id),
        )  # fmt: skip
