"""Checks: a broker asks how a transaction ended, and the program's checker says it.

Source: RocketMQ ``ClientRemotingProcessor.checkTransactionState``, ``DefaultMQProducerImpl``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from dejamq_proto.client_pb2 import CheckTransaction
from dejamq_proto.records.record import BadRecord
from dejamq_proto.records.run import BadRun

from dejamq.net.broker import BrokerLink
from dejamq.sending.requests import pushed_message
from dejamq.transactions.ends import Half, TransactionEnds
from dejamq.transactions.states import answer_of

log = logging.getLogger("dejamq")
Question = tuple[BrokerLink, Half]


class Checks:
    """Questions that wait, and how many are being answered. Owned by the event loop; ``work`` is a worker's task."""

    def __init__(
        self, checker: Callable[[Any], Awaitable[Any]], ends: TransactionEnds, *, group: str, namespace: str, boot_id: str,
        hold_max: int,
    ) -> None:  # fmt: skip
        self._checker, self._ends = checker, ends
        self._group, self._namespace, self._boot_id = group, namespace, boot_id
        self._waiting: asyncio.Queue[Question] = asyncio.Queue(hold_max)
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def asked(self, link: BrokerLink, question: CheckTransaction) -> None:
        """A broker asks. A check that finds no free place, or is unreadable, is dropped: the broker asks again."""
        if self._closed or question.group != self._group:
            return
        try:
            message = pushed_message(question.record, self._boot_id, question.broker_name, self._namespace)
            half = Half(
                message, question.broker_name, question.half_queue_offset, question.half_log_offset, from_check=True
            )
            self._waiting.put_nowait((link, half))
        except (BadRecord, BadRun) as error:
            log.warning("transaction_check_unreadable address=%s reason=%s", link.address, error)
        except asyncio.QueueFull:
            log.warning("transaction_check_dropped address=%s: check_request_hold_max of them wait", link.address)

    async def work(self) -> None:
        """Answer one question after the other until cancelled."""
        while True:
            link, half = await self._waiting.get()
            self._busy += 1
            self._idle.clear()
            try:
                self._ends.tell(half, await answer_of(self._checker, half.message), link)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def close(self) -> None:
        """Forget the questions that wait, another producer is asked; return when those begun are answered."""
        self._closed = True
        while not self._waiting.empty():
            self._waiting.get_nowait()
        await self._idle.wait()
