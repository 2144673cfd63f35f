"""Ratios to what the machine gives in the same moment, so that a slow machine does not look like a slow program."""

from collections.abc import AsyncIterator, Mapping

import msgspec

from dejamq_lab.bench.client.result import BenchResult, Load
from dejamq_lab.bench.client.target import make_topics, own_cluster
from dejamq_lab.bench.measure import Bench
from dejamq_lab.bench.rounds import shown

QUICK: Mapping[str, tuple[str, Load]] = {
    "send, submitted": ("send", Load(60_000)),
    "send, 256 senders that wait": ("send", Load(30_000, mode="await")),
    "send, one at a time": ("send", Load(500, mode="single")),
    "consume, one by one": ("consume", Load(100_000)),
    "consume, batches of 64": ("consume", Load(100_000, batch_size=64)),
    "poll, 500 at a time": ("poll", Load(150_000)),
    "send to handler at 5 k/s": ("latency", Load(10_000, rate=5_000)),
}


class Ratio(msgspec.Struct, frozen=True):
    """One measurement through the machine's own.

    ``echoes`` of a rate: the number of messages in the time of one bare gRPC echo; more is better. ``echoes`` of a
    time: the number of echoes that it lasts; less is better. ``copies``: the bytes that passed, as a share of a bare
    memory copy.
    """

    what: str
    figure: str
    echoes: float
    copies: float | None
    grpc_echo_p50_ms: float
    memory_copy_gb_per_second: float

    @classmethod
    def of(cls, what: str, result: BenchResult) -> "Ratio":
        echo, copy = result.baseline["grpc_echo_p50_ms"], result.baseline["memory_copy_gb_per_second"]
        if result.what == "latency" or result.settings.get("mode") == "single":
            assert result.p50_ms is not None
            return cls(what, shown(result.p50_ms, "ms"), round(result.p50_ms / echo, 2), None, echo, copy)
        rate = result.messages_per_second
        share = rate * result.body_bytes / (copy * 1e9)
        return cls(what, shown(rate, "/s"), round(rate * echo / 1000, 1), round(share, 4), echo, copy)


async def quick_ratios(scale: float = 1.0) -> AsyncIterator[Ratio]:
    """One after the other, on one cluster of one broker; ``scale`` makes them longer or shorter."""
    async with own_cluster(Load(), ()) as target:
        for what, (kind, load) in QUICK.items():
            load = msgspec.structs.replace(load, messages=max(1, int(load.messages * scale)))
            bench = Bench(load)
            await make_topics(target.address, load, bench.topics)
            yield Ratio.of(what, await bench.on(target, kind))


def table(ratios: list[Ratio], before: Mapping[str, Ratio]) -> str:
    """A table for people; ``before`` has the ratios of an earlier run, if there was one."""
    lines = [f"{'':<30}{'figure':>12}{'echoes':>10}{'of a copy':>12}{'last time':>12}"]
    for ratio in ratios:
        share = "" if ratio.copies is None else f"{ratio.copies:.2%}"
        last = before[ratio.what].echoes if ratio.what in before else ""
        lines.append(f"{ratio.what:<30}{ratio.figure:>12}{ratio.echoes:>10}{share:>12}{last:>12}")
    lines.append(
        "echoes: messages in the time of one bare gRPC echo (more is better); of a time: echoes (less is better)"
    )
    return "\n".join(lines)
