"""A program with a SimpleConsumer: it receives messages, handles each in a task of its own, and acknowledges it."""

import asyncio

from dejamq import ConsumeStatus, ReceivedMessage, SimpleConsumer
from dejamq_proto.codes import ClientClosed, DejamqError

from dejamq_lab.scenario.actors.handling import Handlers, ScriptedFailure

RECEIVE_MS, MESSAGES, PAUSE_S, DRAIN_S = 100, 8, 0.1, 5.0


class PoppingProgram:
    """Belongs to one event loop. A message whose handler fails is given back at once."""

    def __init__(self, consumer: SimpleConsumer, handlers: Handlers, invisible_ms: float) -> None:
        self._consumer, self._handlers, self._invisible_ms = consumer, handlers, round(invisible_ms)
        self._receiving: asyncio.Task[None] | None = None
        self._handling: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Receive from now on."""
        self._receiving = asyncio.create_task(self._receive())

    async def stop(self) -> None:
        """Receive no more, and wait a while for handlers."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait((self._receiving,))
        if self._handling:
            await asyncio.wait(self._handling, timeout=DRAIN_S)
        for task in self._handling:
            task.cancel()

    async def _receive(self) -> None:
        while True:
            try:
                received = await self._consumer.receive(
                    max_messages=MESSAGES, invisible_ms=self._invisible_ms, timeout_ms=RECEIVE_MS
                )
            except ClientClosed:
                return
            except DejamqError:  # its broker is away
                await asyncio.sleep(PAUSE_S)
                continue
            for message in received:
                task = asyncio.create_task(self._handle(message))
                self._handling.add(task)
                task.add_done_callback(self._handling.discard)

    async def _handle(self, message: ReceivedMessage) -> None:
        try:
            done = await self._handlers.one(message) is not ConsumeStatus.RECONSUME_LATER
        except ScriptedFailure:
            done = False
        try:
            if done:
                await self._consumer.ack(message)
            else:
                await self._consumer.change_invisible(message, 0)
        except DejamqError:
            pass  # it comes again, and such programs do no more about it
