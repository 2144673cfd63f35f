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
        self._producers[channel] = told = ProducerChannel(client_id, frozenset(groups), now_ms, boot_id)
        return known is None or known.groups != told.groups

    def leave(self, channel: Channel) -> None:
        """The channel ended; no error for one that is not known."""
        self._producers.pop(channel, None)

    def unregister(self, client_id: str, group: str) -> None:
        """The client's producers of this group end, its channels may stay."""
        for channel, producer in tuple(self._producers.items()):
            if producer.client_id == client_id and group in producer.groups:
                producer.groups -= {group}
                if not producer.groups:
                    del self._producers[channel]

    def users(self, group: str, client_id: str) -> list[tuple[Channel, str]]:
        """The channels of this client id in the group, each with the start of the client that it belongs to."""
        found = self._producers.items()
        return [(at, one.boot_id) for at, one in found if one.client_id == client_id and group in one.groups]

    def expire(self, now_ms: int, timeout_ms: int) -> list[str]:
        """Forget channels that were silent for longer than this; their client ids."""
        silent = [channel for channel, producer in self._producers.items() if now_ms - producer.seen_ms > timeout_ms]
        return [self._producers.pop(channel).client_id for channel in silent]

    def channel_of(self, client_id: str) -> Channel | None:
        """The client's newest channel, None for a client that is not connected."""
        return max((channel for channel, one in self._producers.items() if one.client_id == client_id), default=None)

    def channels_of(self, group: str) -> list[Channel]:
        """Every channel of the group's producers, in the order in which they came."""
        return sorted(channel for channel, one in self._producers.items() if group in one.groups)
