"""A peer that is really there: Redis, small, by the same loads, and nothing of it is left."""

import pytest
from dejamq_lab.bench import peers
from dejamq_lab.bench.client.process import run_client
from dejamq_lab.bench.client.result import Job, Load
from dejamq_lab.bench.measure import Bench
from dejamq_lab.cluster.usage import core_seconds

pytestmark = [pytest.mark.redis, pytest.mark.process]


async def test_a_peer_is_measured_by_the_same_loads_and_gone_afterwards() -> None:
    load = Load(500, 64)
    async with peers.started("redis", load) as target:
        for what in ("send", "consume"):
            bench = Bench(load, peer="redis")
            result = await bench.on(target, what, {})
            assert (result.what, result.messages, result.settings["peer"]) == (what, 500, "redis")
            assert result.seconds > 0
            await run_client(target.client, Job("drop", "drop", target.address, bench.topics, load))
        (pid,) = target.pids
    assert core_seconds(pid) == 0.0
