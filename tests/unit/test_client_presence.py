"""Heartbeats: whom they tell of a connection, and when."""

import asyncio
from typing import Any

from dejamq.net.presence import Presence
from dejamq.values.config import ClientConfig
from dejamq_proto.client_pb2 import BrokerCommand, Heartbeat, HeartbeatAck


class Channel:
    """A heartbeat channel that opens with the first beat."""

    def __init__(self) -> None:
        self.open = False
        self.on_push = self.on_break = None


class Link:
    """A broker that answers heartbeats once it was woken."""

    def __init__(self) -> None:
        self.address, self.heartbeats, self.awake = "h:1", Channel(), False

    async def heartbeat(self, beat: Heartbeat) -> BrokerCommand:
        self.heartbeats.open = True
        if not self.awake:
            await asyncio.Event().wait()
        return BrokerCommand(heartbeat_ack=HeartbeatAck(seq=1))

    def acknowledged(self, ack: HeartbeatAck) -> None: ...


async def test_a_connection_whose_first_heartbeat_had_no_answer_is_announced_with_the_first_one_that_has() -> None:
    link: Any = Link()
    presence = Presence(
        ClientConfig(mq_client_api_timeout_ms=20), links=lambda: [link], heartbeat=Heartbeat,
        on_ids_changed=lambda group: None, on_command=lambda link, command: None,
    )  # fmt: skip
    connected: list[str] = []
    presence.on_connected.connect(connected.append)
    assert await presence.beat() == ["h:1"]
    link.awake = True
    assert await presence.beat() == []
    assert await presence.beat() == []
    assert connected == ["h:1"]
