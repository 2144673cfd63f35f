"""The measurements: send, consume, poll, latency. Servers, producer and consumer are processes of their own."""

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any

from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.writer import new_boot_id

from dejamq_lab.bench import peers
from dejamq_lab.bench.client.own import POLLED
from dejamq_lab.bench.client.process import ClientProcess, run_client
from dejamq_lab.bench.client.result import BenchResult, Job, Load, Span
from dejamq_lab.bench.client.stopwatch import STAMP_BYTES
from dejamq_lab.bench.client.target import Target, given_cluster, own_cluster
from dejamq_lab.bench.rpc_echo import baseline, python_step_ns

# The floor of every program that answers after the disk has the message: an fdatasync and a round trip a group.

SYNCS = 40


def sync_floor(load: Load, round_trip_ms: float, directory: str | None) -> dict[str, float]:
    """``fdatasync_ms`` and ``sync_floor_per_second``, on the disk of that folder.

    The floor is the one of a group commit: while one group is written, all senders wait for the next.
    """
    senders = {"single": 1, "await": load.concurrency}.get(load.mode, load.batch_size)
    sync_ms = fdatasync_ms(load.body_bytes * senders, directory)
    return {
        "fdatasync_ms": round(sync_ms, 3),
        "sync_floor_per_second": round(senders / (sync_ms + round_trip_ms) * 1000, 1),
    }


def fdatasync_ms(group_bytes: int, directory: str | None) -> float:
    """The median time (ms) of making the bytes of one group durable, in a file that has its blocks as a log has."""
    data, times = os.urandom(group_bytes), []
    with tempfile.TemporaryFile(dir=directory) as file:
        os.write(file.fileno(), b"\0" * group_bytes * SYNCS)
        os.fsync(file.fileno())
        for number in range(SYNCS):
            os.pwrite(file.fileno(), data, number * group_bytes)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


class Bench:
    """One measurement: of ``namesrv``, of a peer, or of a cluster of one broker that lives as long as the call.

    Topics of its own for each measurement, so that nothing is left over from another one.
    """

    def __init__(self, load: Load, namesrv: str | None = None, peer: str | None = None) -> None:
        self.load, self._namesrv, self._peer = load, namesrv, peer
        self.topics = [f"bench-{new_boot_id()}-{number}" for number in range(load.topics)]

    async def run(self, what: str) -> BenchResult:
        """``what`` is send, consume, poll or latency. Raises ClusterFailed and ConfigError."""
        async with self.target() as target:
            return await self.on(target, what)

    async def on(self, target: Target, what: str, ground: dict[str, float] | None = None) -> BenchResult:
        """On servers that run already and have the topics; ``ground`` is the baseline, if it is known for this run."""
        if what == "latency" and self.load.body_bytes < STAMP_BYTES:
            raise ConfigError(f"a body that tells its age has {STAMP_BYTES} bytes or more, not {self.load.body_bytes}")
        ground = dict(ground) if ground is not None else await baseline(self.load.body_bytes)
        ground["python_step_ns"] = python_step_ns()
        if what == "send" and self.load.flush_mode == "sync":
            ground |= sync_floor(self.load, ground["grpc_echo_p50_ms"], target.directory)
        measured = await self._measured(target, what)
        seconds = measured.pop("seconds")
        p50_ms, p99_ms = measured.pop("p50_ms"), measured.pop("p99_ms")
        return BenchResult(
            what=what, messages=self.load.messages, body_bytes=self.load.body_bytes, seconds=round(seconds, 6),
            messages_per_second=round(self.load.messages / seconds, 1), p50_ms=p50_ms, p99_ms=p99_ms,
            baseline=ground | measured, settings=target.about | self._settings(what),
        )  # fmt: skip

    async def consume_on(self, target: Target) -> None:
        """Send and consume all messages, and measure nothing: the caller wants the journals."""
        await self._after_sending(target, "consume")

    @contextlib.asynccontextmanager
    async def target(self) -> AsyncIterator[Target]:
        """The servers to measure, with the topics."""
        if self._namesrv:
            yield await given_cluster(self._namesrv, self.load, self.topics)
            return
        servers = peers.started(self._peer, self.load) if self._peer else own_cluster(self.load, self.topics)
        async with servers as target:
            yield target

    def _settings(self, what: str) -> dict[str, Any]:
        """The facts that a repeated measurement needs, besides the numbers."""
        load = self.load
        settings: dict[str, Any] = {"queues": load.queues, "flush_mode": load.flush_mode}
        if self._peer is None:
            settings["transport"] = load.transport
        if load.topics > 1:
            settings["topics"] = load.topics
        if what == "send":
            settings["mode"] = load.mode
            if load.mode == "await":
                settings["concurrency"] = load.concurrency
            if load.mode == "batch":
                settings["batch_size"] = load.batch_size
        elif what == "consume":
            settings |= {"batch_size": load.batch_size, "while_sending": load.together}
        elif what == "poll":
            settings["max_messages"] = POLLED
        else:
            settings["rate"] = load.rate
        return settings

    async def _measured(self, target: Target, what: str) -> dict[str, Any]:
        """``seconds``, ``p50_ms``, ``p99_ms``, and what a message cost each process."""
        if what == "send":
            before = target.core_s()
            span = await run_client(target.client, self._job(target, "send", "produce"))
            return self._told(span, producer=span.core_s, broker=target.core_s() - before)
        if what == "latency" or (what == "consume" and self.load.together):
            return await self._together(target, what)
        return await self._after_sending(target, what)

    async def _after_sending(self, target: Target, what: str) -> dict[str, Any]:
        """From the first message handled to the last one, with all of them stored before the consumer starts."""
        await run_client(target.client, self._job(target, "fill", "produce"))
        before = target.core_s()
        span = await run_client(target.client, self._job(target, what, "consume"))
        return self._told(span, consumer=span.core_s, broker=target.core_s() - before)

    async def _together(self, target: Target, what: str) -> dict[str, Any]:
        """From the producer's begin to the last message handled."""
        async with (
            ClientProcess(target.client, self._job(target, what, "consume")) as consumer,
            ClientProcess(target.client, self._job(target, what, "produce")) as producer,
        ):
            before = target.core_s()
            consumer.go()
            producer.go()
            sent, received = await producer.result(), await consumer.result()
        through = Span(sent.began_ns, received.ended_ns, 0.0, received.p50_ms, received.p99_ms)
        cores = {"producer": sent.core_s, "consumer": received.core_s, "broker": target.core_s() - before}
        return self._told(through, **cores)

    def _told(self, span: Span, **cores_s: float) -> dict[str, Any]:
        told: dict[str, Any] = {"seconds": span.seconds, "p50_ms": span.p50_ms, "p99_ms": span.p99_ms}
        for process, core_s in cores_s.items():
            if core_s > 0:
                told[f"{process}_core_us_per_message"] = round(core_s / self.load.messages * 1e6, 3)
        return told

    def _job(self, target: Target, what: str, role: str) -> Job:
        return Job(what, role, target.address, self.topics, self.load, target.journal_dir)
