"""``dejamq bench poll``, small: it counts what it was told to."""

from pathlib import Path

from consumer_cluster import servers
from dejamq_lab.bench.client.own import POLLED
from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.measure import Bench


async def test_the_polls_of_a_measurement_return_all_its_messages(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        result = await Bench(Load(1_200, 64, journal_level="off"), here.namesrv.address).run("poll")
    assert (result.what, result.messages, result.settings["max_messages"]) == ("poll", 1_200, POLLED)
    assert result.seconds > 0
