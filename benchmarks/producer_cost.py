"""What a send costs in the producer's process without a network: encode, build, journal, tell, by processor time.

A link that answers every run in the next turn of the loop stands for the broker. In a deep bulk send it answers one in
four turns. The producer then takes on as much as it may, and what leaves is in no cache any more. A bare future is
measured in the same run, so that a slow machine does not look like a slow program. The lowest of the rounds counts.
"""

import argparse
import asyncio
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from dejamq import Message, Producer
from dejamq.net.routes import BrokerQueues, TopicRoute
from dejamq.net.stream import AnswerCallback
from dejamq.sending.sender import Sender
from dejamq_lab.bench.client.own import flood
from dejamq_lab.bench.client.worker import collect_rarely
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.wire.messages import SendRun, SendRunResult

QUEUES = 4
BURST = 4096
"""Messages that are submitted before the loop has its turn; a flood that waits for room has as many."""
TURNS_OF_A_RUN = 4
"""Of a deep flood; in so many turns it submits more messages than a run has."""


class Echo:
    """A broker's link that stores nothing: the frame is made. All answers come in the next turn of the loop, or one in
    so many turns.
    """

    def __init__(self, turns: int = 1) -> None:
        self._turns, self._turn = turns, 0
        self._answers: deque[tuple[AnswerCallback[SendRunResult], SendRunResult]] = deque()

    def send_run_for(self, told: AnswerCallback[SendRunResult], run: SendRun) -> None:
        run.pieces()
        answer = SendRunResult(
            seq=run.seq, store_host="127.0.0.1:1", queue_offsets=np.arange(len(run.sizes), dtype="<u8"),
            span_starts=np.zeros(1, "<u4"), span_log_offsets=np.zeros(1, "<u8"),
        )  # fmt: skip
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._answer)
        self._answers.append((told, answer))

    def _answer(self) -> None:
        self._turn += 1
        for _ in range(len(self._answers) if self._turns == 1 else self._turn % self._turns == 0):
            told, answer = self._answers.popleft()
            told.set_result(answer)
        if self._answers:
            asyncio.get_running_loop().call_soon(self._answer)


def producer(
    journal: Journal, link: Echo, topics: Sequence[str], *, idempotent: bool, telemetry: Any = None
) -> Producer:
    """One that has their routes and is wired to the link."""
    numbers = iter(range(1, 1 << 60))
    routes: Any = SimpleNamespace(on_change=[], master_address=lambda name: "127.0.0.1:1")
    instance: Any = SimpleNamespace(
        routes=routes, journal=journal, link=lambda address: link, client_id="bench", boot_id="0" * 16,
        next_seq=lambda: next(numbers), check=lambda: None, fail=print, fatal=None,
    )  # fmt: skip
    made = Producer("bench-producer", idempotent=idempotent, telemetry=telemetry)
    sender = Sender(instance, made.config, "bench-producer", made._hooks, plain_below=made._intake.plain_below)
    made._instance, made._sender = instance, sender
    if telemetry is None:
        made._take = sender.take
    queues = (BrokerQueues("broker-a", QUEUES, QUEUES, 6),)
    for topic in topics:
        routes.on_change[0](TopicRoute(topic, queues, {"broker-a": {0: "127.0.0.1:1"}}))
    return made


async def submits(sending: Producer, body: bytes, messages: int, topics: Sequence[str]) -> None:
    """Messages to the topics in turn."""
    turns = cycle(topics)
    for _ in range(messages // BURST):
        pending = [sending.submit(Message(next(turns), body)) for _ in range(BURST)]
        await sending.flush()
        for future in pending:
            future.result()


async def awaits(sending: Producer, body: bytes, messages: int, topics: Sequence[str]) -> None:
    turns = cycle(topics)

    async def sender() -> None:
        for _ in range(messages // 256):
            await sending.send(Message(next(turns), body))

    async with asyncio.TaskGroup() as group:
        for _ in range(256):
            group.create_task(sender())


async def core_us(work: Callable[[], Awaitable[None]], messages: int) -> float:
    began = time.process_time()
    await work()
    return (time.process_time() - began) / messages * 1e6


async def bare_futures(messages: int) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(messages):
        loop.create_future().set_result(None)


def recording() -> Any:
    """Telemetry whose spans and metrics are made and not exported."""
    from dejamq.telemetry import Telemetry
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    return Telemetry(tracer_provider=TracerProvider(), meter_provider=MeterProvider([InMemoryMetricReader()]))


async def measure(given: argparse.Namespace, folder: Path) -> None:
    messages, topics = given.messages, [f"bench-{number}" for number in range(given.topics)]
    body = bytes(range(256)) * (given.body_bytes // 256 + 1)
    body = body[: given.body_bytes]
    journal = Journal(folder / "j.jsonl", role="producer", process="p", boot_id="0" * 16, level=given.level)
    telemetry = recording() if given.telemetry else None
    sending, flooding = (
        producer(journal, Echo(turns), topics, idempotent=given.idempotent, telemetry=telemetry)
        for turns in (1, TURNS_OF_A_RUN)
    )
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "a bare future": lambda: bare_futures(messages),
        "submit": lambda: submits(sending, body, messages, topics),
        "submit, a deep flood": lambda: flood(flooding, cycle(topics), body, messages),
        "256 × await send": lambda: awaits(sending, body, messages, topics),
    }
    if given.telemetry:
        del works["submit, a deep flood"]  # its time-outs are for producers that are some ten times as fast
    found: dict[str, list[float]] = {name: [] for name in works}
    collect_rarely()
    for _ in range(given.rounds):
        for name, work in works.items():
            found[name].append(await core_us(work, messages))
    for name, values in found.items():
        print(f"{name:22} {min(values):6.2f} us a message, by core time ({max(values):.2f} at most)")
    journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1 << 18)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--topics", type=int, default=1, help="that messages go to in turn")
    parser.add_argument("--level", type=Level, default=Level.AUDIT, choices=list(Level))
    parser.add_argument("--idempotent", action="store_true", help="brokers are to know the messages by their ids")
    parser.add_argument("--telemetry", action="store_true", help="spans and metrics are made, and kept nowhere")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(given, Path(folder)))


if __name__ == "__main__":
    main()
