"""Admin while a part of the cluster does not answer: half an answer for those who ask for it, never by itself."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dejamq import Admin, DejamqError, SendTimeout
from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess

pytestmark = pytest.mark.process
TIMEOUT_MS = 500


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, processes=True, directory=tmp_path) as cluster:
        yield cluster


async def test_a_broker_that_does_not_answer_is_left_out_by_name_only_when_that_is_asked_for(cluster: Cluster) -> None:
    broker = cluster.broker("broker-b")
    assert isinstance(broker, ServerProcess)
    async with Admin(cluster.namesrv, mq_client_api_timeout_ms=TIMEOUT_MS) as admin:
        await admin.create_topic("orders", queues=1)
        assert await admin.leave_out_silent() == {}
        broker.pause()
        with pytest.raises(DejamqError):
            await admin.topic("orders")
        silent = await admin.leave_out_silent()
        assert list(silent) == ["broker-b"]
        assert isinstance(silent["broker-b"], TimeoutError)
        assert [one.broker_name for one in await admin.topic("orders")] == ["broker-a"]
        assert [one.broker_name for one in await admin.brokers()] == ["broker-a", "broker-b"]
        with pytest.raises(SendTimeout):
            await admin.settings("broker-b")  # asked for by name: what is wrong with it
    broker.resume()


async def test_a_broker_without_a_master_is_left_out_too(tmp_path: Path) -> None:
    async with Cluster(brokers=1, slaves=1, processes=True, directory=tmp_path) as cluster, asyncio.timeout(30):
        master = cluster.broker("broker-a")
        assert isinstance(master, ServerProcess)
        master.kill()
        reason = ""
        while "no master" not in reason:  # until name servers know
            async with Admin(cluster.namesrv) as admin:
                reason = str((await admin.leave_out_silent()).get("broker-a", ""))
                assert await admin.topic("TBW102") == []
