"""Servers that are asked: one connection each, all of them together at a bounded rate."""

import asyncio

from dejamq_proto.codes import BrokerUnavailable, DejamqError, SendTimeout
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import Fields, Header, RequestKind
from dejamq_proto.remoting_client import ANSWER_S, Account, RemotingClient, connect
from dejamq_proto.wire.tls import ClientTls

from dejamq_cli.collecting.files import EvidenceFiles
from dejamq_cli.collecting.lines import Source, Told, now_ms
from dejamq_cli.terminal.output import say

AGAIN_S = 2.0
"""A server that is away is tried again after this time."""


class Pace:
    """So many turns a second, evenly, in the order in which they were asked for."""

    def __init__(self, rate: float) -> None:
        self._gap_s, self._next_s = 1 / rate, 0.0
        self._first = asyncio.Lock()
        self.taken = 0

    async def turn(self) -> None:
        """Wait until it may be. Who asks while the loop stood still does not overtake those who wait."""
        async with self._first:
            now_s = asyncio.get_running_loop().time()
            if self._next_s > now_s:
                await asyncio.sleep(self._next_s - now_s)
            self._next_s = max(self._next_s, now_s) + self._gap_s
            self.taken += 1


class Reconnected(DejamqError):
    """The connection by which a question was to go has ended. It was not asked, or its answer is lost."""


class AskedServer:
    """A broker or a name server. ``away``: why it does not answer, None while it does.

    ``connections`` counts them: after another one the server may have been restarted.
    """

    def __init__(
        self, source: Source, pace: Pace, files: EvidenceFiles, account: Account | None, tls: ClientTls | None = None
    ) -> None:
        """``account``: for servers with access control. ``tls``: None for plain connections."""
        self._tls, self.source, self._pace, self._files, self._account = tls, source, pace, files, account
        self.away: DejamqError | None = None
        self.connections = 0
        self._again_s = 0.0
        self._client: RemotingClient | None = None
        self._connecting = asyncio.Lock()

    async def ask(
        self, request: RequestKind[Header], fields: Fields | None = None, *, timeout_s: float = ANSWER_S
    ) -> Told:
        """The answer, whatever its code. Raises BrokerUnavailable, at once while it is away, or SendTimeout."""
        if self.away is not None and asyncio.get_running_loop().time() < self._again_s:
            raise BrokerUnavailable(str(self.away))
        await self._pace.turn()
        try:
            return await self._asked(request, fields, timeout_s)
        except (BrokerUnavailable, SendTimeout) as error:
            await self._gone(error)
            raise

    async def ask_over(self, connection: int, request: RequestKind[Header], fields: Fields) -> Told:
        """As ``ask``, by the connection with this number. Raises Reconnected when that has ended."""
        await self._pace.turn()
        client = self._client
        if client is None or self.connections != connection:
            raise Reconnected(self.source.address)
        asked_ms = now_ms()
        try:
            answer = await client.ask(request, fields)
        except BrokerUnavailable:
            raise Reconnected(self.source.address) from None
        except SendTimeout as error:
            await self._gone(error)
            raise
        return Told(answer, asked_ms, now_ms())

    async def _asked(self, request: RequestKind[Header], fields: Fields | None, timeout_s: float) -> Told:
        """A connection that was there before may end for being idle, so there is a second try with a new one."""
        earlier = self._client
        client, asked_ms = await self._connected(), now_ms()
        try:
            answer = await client.ask(request, fields, timeout_s=timeout_s)
        except BrokerUnavailable:
            if client is not earlier:
                raise
            client, asked_ms = await self._connected(), now_ms()
            answer = await client.ask(request, fields, timeout_s=timeout_s)
        return Told(answer, asked_ms, now_ms())

    async def _connected(self) -> RemotingClient:
        async with self._connecting:
            if self._client is None or self._client.closed.is_set():
                self._client = await connect(self.source.address, _pass_over, account=self._account, tls=self._tls)
                self.connections += 1
                self._files.note("connected", **self.source.fields())
                if self.away is not None:
                    say(f"{self._name()} answers again")
                    self.away = None
            return self._client

    async def _gone(self, error: DejamqError) -> None:
        """A connection whose answer is late would bring it to the wrong question's time: it ends."""
        self._again_s = asyncio.get_running_loop().time() + AGAIN_S
        if self.away is None:
            self.away = error
            say(f"{self._name()} does not answer ({error}); it is tried again")
            self._files.note("away", **self.source.fields(), error=str(error))
        await self.close()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _name(self) -> str:
        return f"{self.source.broker or 'name server'} {self.source.address}"


def _pass_over(command: Command) -> None:
    """A server asks members of groups only, and this is none."""
