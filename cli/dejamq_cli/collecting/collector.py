"""One session of collecting: rounds of questions at an interval, and the trace topic followed beside them."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from dejamq_proto.journal.writer import new_boot_id
from dejamq_proto.remoting_client import Account
from dejamq_proto.wire.tls import ClientTls

from dejamq_cli.collecting.files import EvidenceFiles
from dejamq_cli.collecting.lines import Source, now_ms
from dejamq_cli.collecting.rounds import Rounds
from dejamq_cli.collecting.servers import AskedServer, Pace
from dejamq_cli.collecting.trace import Begin, TraceFollower
from dejamq_cli.terminal.output import say
from dejamq_cli.terminal.stopping import until


@dataclass(frozen=True)
class CollectOptions:
    """What the command line says. Without ``groups`` all are asked about."""

    namesrvs: tuple[str, ...]
    folder: Path
    begin: Begin
    interval_s: float
    rate: float
    most_bytes: int
    trace_topic: str
    groups: tuple[str, ...] = ()
    running_info: bool = False
    account: Account | None = None
    tls: ClientTls | None = None


@dataclass
class Summary:
    """What a session did: answers by kind, those that refuse among them. ``silent``: who does not answer, and why."""

    evidence: str
    seconds: float = 0.0
    brokers: int = 0
    rounds: int = 0
    longest_round_s: float = 0.0
    requests: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    trace_messages: int = 0
    trace_messages_missed: int = 0
    bytes: int = 0
    files_removed: int = 0
    silent: dict[str, str] = field(default_factory=dict)


class Collector:
    """Made inside of a running loop, and closed after ``once`` or ``forever``."""

    def __init__(self, options: CollectOptions, wrote: Callable[[int], None]) -> None:
        """``wrote`` gets the number of new lines. Raises as ``EvidenceFiles``."""
        self._options = options
        self._began_ms, self._session = now_ms(), new_boot_id()
        self._pace = Pace(options.rate)
        self._files = EvidenceFiles(options.folder, options.most_bytes, options.trace_topic, self._head, wrote)
        self._rounds = Rounds(
            options.namesrvs, options.groups, options.trace_topic, self._server, self._files,
            running_info=options.running_info,
        )  # fmt: skip
        self._trace = TraceFollower(options.trace_topic, options.begin, self._files)
        self._longest_s = 0.0

    async def once(self) -> None:
        """One round, and the trace topic to its present end."""
        await asyncio.gather(*map(self._trace.catch_up, await self._round()))

    async def forever(self) -> None:
        """Until it is cancelled. Raises OSError when evidence cannot be written."""
        loop = asyncio.get_running_loop()
        followers: list[asyncio.Task[None]] = []
        try:
            while True:
                next_s = loop.time() + self._options.interval_s
                followers += [loop.create_task(self._trace.follow(broker)) for broker in await self._round()]
                await _wait(next_s - loop.time(), followers)
        finally:
            for task in followers:
                task.cancel()
            await asyncio.gather(*followers, return_exceptions=True)

    def ended(self, why: str) -> Summary:
        """Write that the session ended, and how it stands. Raises OSError."""
        rounds, trace, files = self._rounds, self._trace, self._files
        summary = Summary(
            evidence=str(self._options.folder), seconds=round((now_ms() - self._began_ms) / 1000, 1),
            brokers=len(rounds.brokers), rounds=rounds.number, longest_round_s=round(self._longest_s, 1),
            requests=self._pace.taken, answers=rounds.counts, refused=rounds.refused, trace_messages=trace.messages,
            trace_messages_missed=trace.missed, bytes=files.size(), files_removed=files.removed,
            silent={one.source.address: str(one.away) for one in rounds.servers if one.away is not None},
        )  # fmt: skip
        files.note("ended", why=why, summary=summary)
        return summary

    async def close(self) -> None:
        """Raises OSError for evidence that could not be gzipped."""
        await self._rounds.close()
        await self._files.close()

    def _server(self, source: Source) -> AskedServer:
        return AskedServer(source, self._pace, self._files, self._options.account, self._options.tls)

    def _head(self) -> dict[str, Any]:
        """What the first line of each file says of the session."""
        options = self._options
        return {
            "version": metadata.version("dejamq"), "session": self._session, "host": socket.gethostname(),
            "pid": os.getpid(), "began_ms": self._began_ms, "namesrv": options.namesrvs,
            "interval_s": options.interval_s, "groups": options.groups, "running_info": options.running_info,
        }  # fmt: skip

    async def _round(self) -> list[str]:
        """The brokers whose trace topic is not followed yet."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        await self._rounds.one()
        self._longest_s = max(self._longest_s, loop.time() - begin_s)
        if self._rounds.number == 1:
            self._say_absent()
        return self._trace.learn(self._rounds.trace_route, self._rounds.brokers)

    def _say_absent(self) -> None:
        """What somebody who waits for evidence should know at once."""
        if all(one.away is not None for one in self._rounds.namesrvs):
            return  # that is said already
        if not self._rounds.brokers:
            say("no name server knows a broker")
        elif not self._rounds.trace_route.queue_datas:
            topic = self._options.trace_topic
            say(f"no name server has a route of {topic}; brokers with traceTopicEnable=true have it")


async def _wait(seconds: float, followers: "list[asyncio.Task[None]]") -> None:
    """A follower ends only by an error, which ends all."""
    if not followers:
        await asyncio.sleep(seconds)
        return
    ended, _ = await asyncio.wait(followers, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


async def collect(
    options: CollectOptions, stopped: asyncio.Event, wrote: Callable[[int], None], *, once: bool
) -> Summary:
    """Until ``stopped``, or once. Raises ConfigError as ``EvidenceFiles``, OSError when evidence cannot be written."""
    collector = Collector(options, wrote)
    try:
        done = await until(collector.once() if once else collector.forever(), stopped)
        return collector.ended("once" if done else "signal")
    finally:
        await collector.close()
