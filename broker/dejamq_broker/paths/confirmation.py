"""When a sender may have its answer: after disk and slaves have what it sent, or after they did not in time."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from dejamq_proto import failpoints
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.wire.messages import SendRunResult

from dejamq_broker.deferred.retry import GivenBack, Retries
from dejamq_broker.paths.send import SendOutcome, SendPath
from dejamq_broker.replication.mastership import LEASE_OVER

SLAVE_TROUBLES = {
    Code.SLAVE_NOT_AVAILABLE: "too few slaves are connected and near enough to have it soon",
    Code.FLUSH_SLAVE_TIMEOUT: "too few slaves confirmed it in time",
}


class Confirmation:
    """Owned by the event loop. What is late or failed is stored all the same: no answer here is a refusal."""

    def __init__(
        self, sender: SendPath, retries: Retries, sync_flush_timeout_ms: float, still_master: Callable[[], bool],
    ) -> None:  # fmt: skip
        """``still_master``: whether surely no other replica takes messages. What slaves have is safe either way."""
        self._still_master = still_master
        self._sender, self._retries, self._sync_timeout = sender, retries, sync_flush_timeout_ms / 1000

    def needed(self, outcome: SendOutcome) -> bool:
        """Whether the answer has to wait, or is not the one that the outcome has."""
        return not outcome.at_once or not self._still_master()

    async def of(self, outcome: SendOutcome) -> SendRunResult:
        """Wait for disk and slaves if the run asked for it.

        Of two failures the slaves' is reported (RocketMQ: ``CommitLog.handleDiskFlushAndHA``).
        """
        result, code, trouble = outcome.result, Code.FLUSH_DISK_TIMEOUT, ""
        if (durable := outcome.durable) is not None:
            if failpoints.ARMED and await failpoints.reached("send.flush"):
                durable = Future()
            trouble = await _wait(durable, self._sync_timeout)
        if outcome.kept is not None:
            trouble = trouble or await _kept(outcome.kept)
        if outcome.replicated is not None and (found := await outcome.replicated) in SLAVE_TROUBLES:
            code, trouble = found, SLAVE_TROUBLES[found]
        if result.code == Code.SUCCESS and outcome.replicated is None and not self._still_master():
            code, trouble = Code.SLAVE_NOT_AVAILABLE, LEASE_OVER
        if trouble:
            result.code, result.remark = int(code), f"stored, but {trouble}"
        return result

    async def send_back(self, given: GivenBack) -> None:
        """Store the next try and wait for disk and slaves. Raises the errors of ``Retries.send_back``.

        SYSTEM_ERROR, as in RocketMQ, when disk or slaves do not confirm the next try. The consumer keeps the message
        then, and the next try comes all the same.
        """
        self._sender.require_master()
        self._retries.send_back(given)
        durable, replicated = self._sender.given_back_durable(), self._sender.given_back_replicated()
        trouble = await _wait(durable, self._sync_timeout) if durable else ""
        if replicated:
            trouble = SLAVE_TROUBLES.get(await replicated, trouble)
        elif not self._still_master():
            trouble = LEASE_OVER
        if trouble:
            raise DejamqError(f"the next try is stored, but {trouble}", code=Code.SYSTEM_ERROR)


async def _kept(kept: Callable[[], Awaitable[None]]) -> str:
    """Nothing when the new topic is on disk, else why not."""
    try:
        await kept()
    except DejamqError as error:
        return f"its topic is not on disk: {error}"
    return ""


async def _wait(durable: "Future[None]", timeout: float) -> str:
    """Nothing when the disk confirmed, else why not, for the remark of FLUSH_DISK_TIMEOUT.

    One look of the loop when it is done, no look if it is already. ``wrap_future`` and ``wait`` take three looks, which
    a run of few records feels.
    """
    if not durable.done():
        await _outside(durable, timeout)
    if not durable.done():  # not cancelled: others share the same sync
        return f"the disk did not confirm it within {timeout:g} s"
    error = durable.exception()
    return f"the disk did not confirm it: {error}" if error else ""


async def _outside(done: "Future[None]", timeout: float) -> None:
    """Return when it is done, which another thread may tell, or when the time is over."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(timeout, _tell, told)
    done.add_done_callback(partial(_tell_from_outside, loop, told))
    try:
        await told
    finally:
        timer.cancel()


def _tell(told: "asyncio.Future[None]") -> None:
    if not told.done():
        told.set_result(None)


def _tell_from_outside(loop: asyncio.AbstractEventLoop, told: "asyncio.Future[None]", _: "Future[None]") -> None:
    """Called by the thread that flushes. A closed loop has no waiting caller left."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_tell, told)
