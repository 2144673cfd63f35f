"""A client's connections to brokers, from the first call to an address until no route names it any more."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from dejamq.rpc_broker import BrokerLink


class Links(dict[str, BrokerLink]):
    """One connection to each address, made when somebody looks for it. Owned by the event loop."""

    def __init__(
        self, dial: Callable[[str], BrokerLink], *, named: Callable[[], set[str]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object], idle_ms: float,
    ) -> None:  # fmt: skip
        """``named``: what routes name now; a connection is closed when they have not named it for ``idle_ms``."""
        super().__init__()
        self._dial, self._named, self._spawn, self._idle_s = dial, named, spawn, idle_ms / 1000
        self._retiring: set[str] = set()
        self._given_up: set[BrokerLink] = set()

    def __missing__(self, address: str) -> BrokerLink:
        link = self[address] = self._dial(address)
        return link

    def give_up(self, address: str, reason: str) -> bool:
        """What waits on the connection fails, and the next call dials anew. False: there is none."""
        link = self.pop(address, None)
        if link is None:
            return False
        link.break_sends(reason)
        self._given_up.add(link)
        self._spawn(self._end(link), f"reconnect-{address}")
        return True

    def retire(self) -> None:
        """Close connections that no route names, if that lasts: a name server may lose a broker for a while.

        Their end makes this client leave there, and members that ask that broker then take its queues.
        """
        for address in self.keys() - self._named() - self._retiring:
            self._retiring.add(address)
            self._spawn(self._retire(address), f"retire-{address}")

    async def close(self) -> None:
        """All of them, those given up included; when nothing that was spawned here runs any more."""
        await asyncio.gather(*(link.close() for link in (*self.values(), *self._given_up)))

    async def _retire(self, address: str) -> None:
        await asyncio.sleep(self._idle_s)
        link = self.get(address)
        if link is not None and address not in self._named():
            await link.close()  # cut off by the end of the client, this is done again there
            if self.get(address) is link:  # not given up meanwhile
                del self[address]
        self._retiring.discard(address)

    async def _end(self, link: BrokerLink) -> None:
        await link.close()  # cut off by the end of the client, this is done again there
        self._given_up.discard(link)
