"""The connected producers that can be reached, by client id and by group. Pure, the time is an argument.

Source: RocketMQ ``ProducerManager``.
"""

from collections.abc import Iterator, Sequence

import msgspec

Channel = int


class ProducerChannel(msgspec.Struct):
    """One channel that a producer opened."""

    client_id: str
    groups: frozenset[str]
    seen_ms: int
    boot_id: str = ""


class ProducerTable:
    """Channels by number. Owned by the event loop.

    A client id may have several channels for a moment, when a connection was replaced. The newest is used, and the end
    of the older one takes nothing from it.
    """

    def __init__(self) -> None:
        self._producers: dict[Channel, ProducerChannel] = {}
        self._by_client: dict[str, tuple[Channel, ...]] = {}

    def __iter__(self) -> Iterator[tuple[Channel, ProducerChannel]]:
        return iter(self._producers.items())

    def heartbeat(
        self, channel: Channel, client_id: str, groups: Sequence[str], now_ms: int, boot_id: str = ""
    ) -> bool:
        """A heartbeat named these producer groups; one without any is a consumer's and says nothing here.

        True when that is news: a channel that came, or other groups than before.
        """
        if not groups:
            return False
        known = self._producers.get(channel)
        if known is not None and known.client_id != client_id:
            self.leave(channel)
        self._producers[channel] = told = ProducerChannel(client_id, frozenset(groups), now_ms, boot_id)
        if known is None or known.client_id != client_id:
            self._by_client[client_id] = (*self._by_client.get(client_id, ()), channel)
        return known is None or known.groups != told.groups

    def leave(self, channel: Channel) -> None:
        """The channel ended; no error for one that is not known."""
        producer = self._producers.pop(channel, None)
        if producer is not None:
            left = tuple(each for each in self._by_client.pop(producer.client_id) if each != channel)
            if left:
                self._by_client[producer.client_id] = left

    def unregister(self, client_id: str, boot_id: str, group: str) -> None:
        """The producers of this group end of one start of the client, its channels may stay.

        A start of a remoting client is its connection: no other one ends its producers, as in RocketMQ.
        """
        for channel, producer in self._of(client_id):
            if producer.boot_id == boot_id and group in producer.groups:
                producer.groups -= {group}
                if not producer.groups:
                    self.leave(channel)

    def users(self, group: str, client_id: str) -> list[tuple[Channel, str]]:
        """The channels of this client id in the group, each with the start of the client that it belongs to."""
        return [(at, one.boot_id) for at, one in self._of(client_id) if group in one.groups]

    def expire(self, now_ms: int, timeout_ms: int) -> list[str]:
        """Forget channels that were silent for longer than this; their client ids."""
        silent = [channel for channel, producer in self._producers.items() if now_ms - producer.seen_ms > timeout_ms]
        ids = [self._producers[channel].client_id for channel in silent]
        for channel in silent:
            self.leave(channel)
        return ids

    def channel_of(self, client_id: str) -> Channel | None:
        """The client's newest channel, None for a client that is not connected."""
        return max(self._by_client.get(client_id, ()), default=None)

    def channels_of(self, group: str) -> list[Channel]:
        """Every channel of the group's producers, in the order in which they came."""
        return sorted(channel for channel, one in self._producers.items() if group in one.groups)

    def _of(self, client_id: str) -> list[tuple[Channel, ProducerChannel]]:
        return [(channel, self._producers[channel]) for channel in self._by_client.get(client_id, ())]
