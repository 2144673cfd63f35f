"""Each kind of measurement, small, of real servers, with producer and consumer as processes of their own."""

from pathlib import Path

import pytest
from consumer_cluster import servers
from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.measure import Bench
from dejamq_lab.errors import ClusterFailed
from dejamq_proto.codes import ConfigError

pytestmark = pytest.mark.process

KINDS = [
    ("send", Load(300, 64, mode="await", concurrency=8, topics=2, queues=1), {"producer"}),
    ("send", Load(100, 64, mode="batch", batch_size=10), {"producer"}),
    ("consume", Load(1_000, 64, batch_size=16, together=True), {"producer", "consumer"}),
    ("latency", Load(300, 64, rate=1_000), {"producer", "consumer"}),
]


@pytest.mark.parametrize(("what", "load", "processes"), KINDS, ids=["await", "batch", "together", "latency"])
async def test_a_measurement_tells_its_rate_and_what_each_process_spent(
    tmp_path: Path, what: str, load: Load, processes: set[str]
) -> None:
    async with servers(tmp_path) as here:
        result = await Bench(load, here.namesrv.address).run(what)
    assert result.messages == load.messages
    assert result.messages_per_second == pytest.approx(load.messages / result.seconds, rel=0.01)
    assert (result.p50_ms is None) == load.together
    spent = {name.partition("_core_")[0] for name in result.baseline if "_core_us_" in name}
    assert spent == processes
    assert result.baseline["grpc_echo_p50_ms"] > 0


async def test_a_client_that_fails_is_told_by_its_last_words(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        bench = Bench(Load(10, 64, journal_level="loud"), here.namesrv.address)
        with pytest.raises(ClusterFailed, match=r"was to produce for send failed: .*loud"):
            await bench.run("send")


async def test_a_body_too_short_to_tell_its_age_is_refused(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        with pytest.raises(ConfigError, match="8 bytes or more, not 7"):
            await Bench(Load(10, 7), here.namesrv.address).run("latency")
