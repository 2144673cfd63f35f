"""Keeps brokers told that this client lives: a heartbeat to each at once, every 30 s, and again after a break.

The open channel is the membership: its end makes the client leave. Source: RocketMQ ``MQClientInstance`` heartbeats.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from dejamq_proto.client_pb2 import BrokerCommand, CheckTransaction, Heartbeat
from dejamq_proto.codes import Code, DejamqError, SendTimeout
from dejamq_proto.signals import Signal

from dejamq.net.broker import BrokerLink
from dejamq.net.waits import aligned_delay, set_within
from dejamq.values.config import ClientConfig

log = logging.getLogger("dejamq")


class Presence:
    """Heartbeats to a changing set of brokers. Owned by the event loop; ``run`` is its task.

    A broker that refuses a heartbeat or does not answer is asked again after ``reconnect_interval_ms``, and is
    logged once for each outage.
    """

    def __init__(
        self, config: ClientConfig, *, links: Callable[[], list[BrokerLink]], heartbeat: Callable[[], Heartbeat],
        on_ids_changed: Callable[[str], None], on_command: Callable[[BrokerLink, BrokerCommand], None],
    ) -> None:  # fmt: skip
        """``on_command`` is called with every other command, and the broker that gave it."""
        self._interval_s = config.heartbeat_broker_interval_ms / 1000
        self._retry_s = config.reconnect_interval_ms / 1000
        self._timeout_s = config.mq_client_api_timeout_ms / 1000
        self._links, self._heartbeat = links, heartbeat
        self._on_ids_changed, self._on_command = on_ids_changed, on_command
        self._due = asyncio.Event()
        self._silent: set[str] = set()
        self._remarks: dict[str, str] = {}
        self.on_reply = Signal[[bytes]]()
        """Told the record of a reply that a broker pushed."""
        self.on_check = Signal[[BrokerLink, CheckTransaction]]()
        """Told when a broker asks how a transaction ended."""
        self.on_connected = Signal[[str]]()
        """Told a broker's address when it acknowledged the first heartbeat of a connection."""

    async def run(self) -> None:
        """Beat each interval, at once when woken, and soon after a channel broke or stayed silent, until cancelled."""
        while True:
            self._due.clear()
            failed = await self.beat()
            await set_within(self._due, self._retry_s if failed else aligned_delay(self._interval_s))

    def wake(self) -> None:
        """Beat now: a broker appeared, or a subscription changed."""
        self._due.set()

    async def beat(self) -> list[str]:
        """Send one heartbeat to every broker now. Gives the addresses of brokers that did not acknowledge it."""
        links = self._links()
        return [address for address in await asyncio.gather(*map(self._beat_one, links)) if address]

    async def _beat_one(self, link: BrokerLink) -> str:
        """The address when it failed, else "".

        Success of the first heartbeat of a connection is announced: the broker knows this member from now on,
        and a round of allocation may find it in the list.
        """
        # also a connection whose first heartbeats stayed without answer: nobody was told of it yet
        fresh = not link.heartbeats.open or link.address in self._silent
        link.heartbeats.on_push, link.heartbeats.on_break = partial(self._pushed, link), self._broken
        try:
            async with asyncio.timeout(self._timeout_s):
                ack = (await link.heartbeat(self._heartbeat())).heartbeat_ack
            if ack.code != Code.SUCCESS:
                raise DejamqError(ack.remark, code=ack.code)
        except (TimeoutError, DejamqError) as error:
            reason = error if isinstance(error, DejamqError) else SendTimeout("no answer in time")
            if link.address not in self._silent:  # once, not at each of the tries that follow
                log.warning("heartbeat_failed address=%s reason=%s", link.address, reason)
            self._silent.add(link.address)
            return link.address
        link.acknowledged(ack)
        self._silent.discard(link.address)
        if ack.remark and self._remarks.get(link.address) != ack.remark:
            log.warning("group_differs %s", ack.remark)
        self._remarks[link.address] = ack.remark
        if fresh:
            self.on_connected.tell(link.address)
        return ""

    def _pushed(self, link: BrokerLink, command: BrokerCommand) -> None:
        if command.HasField("consumer_ids_changed"):
            self._on_ids_changed(command.consumer_ids_changed.group)
        elif command.HasField("reply"):
            self.on_reply.tell(command.reply.record)
        elif command.HasField("commit_refused"):
            log.warning("oneway_failed address=%s reason=%s", link.address, command.commit_refused.remark)
        elif command.HasField("check_transaction"):
            self.on_check.tell(link, command.check_transaction)
        else:
            self._on_command(link, command)

    def _broken(self, error: DejamqError) -> None:
        asyncio.get_running_loop().call_later(self._retry_s, self._due.set)
