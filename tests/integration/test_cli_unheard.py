"""Commands that got their answer and cannot deliver it: the exit status is not 0, whoever was asked."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_cluster import consume, dejamq, fill
from dejamq_lab import Cluster
from unheard import NOT_WRITTEN, STATUS, ends

pytestmark = pytest.mark.process
COMMANDS = [
    "cluster list", "broker list -o json", "topic describe orders", "group describe billing", "send orders hello",
    "consume orders --from begin --body",
]  # fmt: skip


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1, directory=tmp_path / "cluster") as cluster:
        await fill(cluster, "orders", 3)
        await consume(cluster, "billing", "orders", 6)
        yield cluster


async def test_no_command_whose_answer_is_lost_ends_with_0(cluster: Cluster, tmp_path: Path) -> None:
    wanted = [
        ([*command.split(), "--namesrv", cluster.namesrv], way)
        for command, way in zip(COMMANDS, itertools.cycle(STATUS), strict=False)
    ]
    for one in await asyncio.to_thread(ends, wanted, tmp_path):
        assert one.status == STATUS[one.way], one
        assert one.errors == NOT_WRITTEN[one.way], one


async def test_what_a_group_was_not_shown_on_a_full_disk_it_has_not_consumed(cluster: Cluster, tmp_path: Path) -> None:
    command = ["consume", "orders", "--group", "late", "--from", "begin", "--namesrv", cluster.namesrv]
    (one,) = await asyncio.to_thread(ends, [(command, "full")], tmp_path)
    assert (one.status, one.errors) == (STATUS["full"], NOT_WRITTEN["full"])
    ran = await dejamq(cluster, "consume", "orders", "--group", "late", "--from", "begin", "--count", "6", "-o", "json")
    assert len(ran.objects()) == 6
