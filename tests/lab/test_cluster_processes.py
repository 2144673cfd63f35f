import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dejamq import ConsumeFrom, Message, ReceivedMessage
from dejamq_lab import Cluster, ClusterFailed, NotSupported
from dejamq_lab.cluster.background import process_born
from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.cluster.rpc_control import healthy, routed_brokers
from journalled import journalled

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, namesrvs=2, processes=True, topics={"orders": 2}, directory=tmp_path) as cluster:
        yield cluster


def server(cluster: Cluster, name: str) -> ServerProcess:
    found = cluster.broker(name)
    assert isinstance(found, ServerProcess)
    return found


async def routed(namesrv: str, names: set[str]) -> None:
    async with asyncio.timeout(20):
        while await routed_brokers(namesrv, "orders") != names:
            await asyncio.sleep(0.02)


async def test_a_killed_broker_leaves_every_route_at_once_and_returns_with_its_store(cluster: Cluster) -> None:
    broker = server(cluster, "broker-a")
    address, pid = broker.address, broker.pid
    async with cluster.producer("till") as producer:
        queue = (await producer.publish_queues("orders"))[0]
        assert queue.broker_name == "broker-a"
        sent = await producer.send(Message("orders", b"paid"), queue=queue)
    broker.kill()
    assert (broker.state, broker.pid) == ("stopped", 0)
    for namesrv in cluster.namesrv.split(";"):
        await routed(namesrv, {"broker-b"})
    broker.restart()
    await cluster.ready()
    assert broker.address == address
    assert broker.pid not in (0, pid)
    assert await take(cluster, "shop") == sent.message_id


async def test_the_example_of_the_page_sends_to_the_broker_that_it_restarted() -> None:
    code = (ROOT / "docs" / "lab.md").read_text().partition("```python\n")[2].partition("```")[0]
    for _ in range(3):  # a send that comes too early fails now and then
        run = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await run.communicate()
        assert (run.returncode, output) == (0, b"SEND_OK\n"), errors.decode()


async def take(cluster: Cluster, group: str) -> str:
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    async with cluster.push_consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe("orders", arrived.put)
        async with asyncio.timeout(30):
            return (await arrived.get()).message_id


async def test_a_killed_name_server_is_filled_again_by_the_brokers(cluster: Cluster) -> None:
    namesrv = cluster.namesrv_at(0)
    namesrv.kill()
    assert not await healthy(namesrv.address)
    namesrv.restart()
    await cluster.ready()
    assert await routed_brokers(namesrv.address, "orders") == {"broker-a", "broker-b"}


async def test_a_paused_server_is_silent_until_it_is_resumed(cluster: Cluster) -> None:
    broker = server(cluster, "broker-a")
    broker.pause()
    assert broker.state == "paused"
    broker.resume()
    await cluster.ready()
    assert await healthy(broker.address)


async def test_a_terminated_broker_drains_and_can_be_started_again(cluster: Cluster) -> None:
    broker = server(cluster, "broker-a")
    broker.terminate()
    broker.restart()
    await cluster.ready()
    journals = [journalled(path)[-1] for path in journals_of(cluster, "broker-broker-a")]
    assert "closed" in [line.get("state") for line in journals]


def journals_of(cluster: Cluster, prefix: str) -> list[Path]:
    return sorted(cluster.journal_dir.glob(f"{prefix}-*.jsonl"))


async def test_every_fault_is_in_the_journal_before_and_after(cluster: Cluster) -> None:
    pid = server(cluster, "broker-b").pid
    cluster.broker("broker-b").kill()
    (journal,) = journals_of(cluster, "harness-lab")
    faults = journalled(journal, "FAULT")
    assert [(f["kind"], f["target"], f["phase"], f["target_pid"]) for f in faults] == [
        ("kill", "broker-b", "begin", pid),
        ("kill", "broker-b", "end", pid),
    ]


async def test_a_fault_to_somebody_who_is_gone_says_so(cluster: Cluster) -> None:
    cluster.broker("broker-b").kill()
    with pytest.raises(ClusterFailed, match="broker-b does not run"):
        cluster.broker("broker-b").pause()


async def test_links_cannot_be_cut_yet(cluster: Cluster) -> None:
    with pytest.raises(NotSupported, match="cut"):
        cluster.broker("broker-a").cut(cluster.namesrv_at(0))


async def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    async with Cluster(processes=True, directory=tmp_path) as cluster:
        pid = server(cluster, "broker-a").pid
        cluster.broker("broker-a").pause()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_server_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "broker-a").mkdir()
    (tmp_path / "broker-a" / "store").write_text("a file where a folder should be")
    cluster = Cluster(processes=True, directory=tmp_path)
    with pytest.raises(ClusterFailed, match=r"broker-a did not start: dejamq-broker: .*store"):
        await cluster.start()


KILLED_RUN = """
import asyncio, sys
from dejamq_lab import Cluster

async def main():
    async with Cluster(processes=True) as cluster:
        print(cluster.broker("broker-a").pid, cluster.namesrv_at(0).pid, cluster.journal_dir.parent, flush=True)
        await asyncio.Future()

asyncio.run(main())
"""


async def test_the_servers_of_a_killed_run_end_with_it() -> None:
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED_RUN, stdout=asyncio.subprocess.PIPE)
    assert run.stdout is not None
    broker, namesrv, directory = (await run.stdout.readline()).decode().split()
    run.kill()
    await run.wait()
    async with asyncio.timeout(10):
        while process_born(int(broker)) or process_born(int(namesrv)):
            await asyncio.sleep(0.02)
    shutil.rmtree(directory)


def test_a_plain_with_runs_processes() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        assert server(cluster, "broker-a").state == "running"
        directory = cluster.journal_dir.parent
        assert asyncio.run(routed_brokers(cluster.namesrv, "orders")) == {"broker-a"}
    assert server(cluster, "broker-a").state == "stopped"
    del cluster
    assert not directory.exists()
