import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from dejamq import ConsumeFrom, Message, MessageModel, PushConsumer, ReceivedMessage
from dejamq_lab import Cluster, NotSupported
from dejamq_lab.cluster.rpc_control import brokers, healthy, route, routed_brokers
from dejamq_proto.codes import ConfigError
from journalled import journalled


async def test_it_is_ready_when_it_has_started(tmp_path: Path) -> None:
    async with Cluster(brokers=2, namesrvs=2, topics={"orders": 3}, directory=tmp_path) as cluster:
        first, second = cluster.namesrv.split(";")
        assert await routed_brokers(first, "orders") == {"broker-a", "broker-b"}
        assert await routed_brokers(second, "orders") == {"broker-a", "broker-b"}
        queues, _ = await route(first, "orders")
        assert [(q.broker_name, q.read_queue_nums, q.write_queue_nums) for q in queues] == [
            ("broker-a", 3, 3),
            ("broker-b", 3, 3),
        ]
        assert [info.master for info in await brokers(first)] == [
            cluster.broker("broker-a").address,
            cluster.broker("broker-b").address,
        ]


async def test_it_becomes_ready_without_automatic_topics(tmp_path: Path) -> None:
    settings = {"auto_create_topic_enable": False}
    async with Cluster(settings=settings, directory=tmp_path) as cluster:
        assert [info.broker_name for info in await brokers(cluster.namesrv)] == ["broker-a"]
        assert await routed_brokers(cluster.namesrv, "TBW102") == set()


async def test_nothing_answers_after_it_was_closed(tmp_path: Path) -> None:
    cluster = Cluster(directory=tmp_path)
    await cluster.start()
    addresses = cluster.namesrv, cluster.broker("broker-a").address
    await cluster.close()
    await cluster.close()
    assert [await healthy(address) for address in addresses] == [False, False]


async def test_a_message_goes_through_and_is_no_duplicate(tmp_path: Path) -> None:
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    async with Cluster(brokers=2, topics={"orders": 2}, time_scale=0.1, directory=tmp_path) as cluster:
        async with cluster.push_consumer("shop", consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
            consumer.subscribe("orders", arrived.put)
            async with cluster.producer("till") as producer:
                sent = [await producer.send(Message("orders", b"%d" % number)) for number in range(20)]
            async with asyncio.timeout(20):
                got = [await arrived.get() for _ in sent]
        assert sorted(message.message_id for message in got) == sorted(result.message_id for result in sent)
        assert await cluster.duplicates("shop") == []


async def test_two_groups_are_no_duplicates_and_a_rewound_one_is(tmp_path: Path) -> None:
    async with Cluster(topics={"orders": 1}, time_scale=0.1, directory=tmp_path) as cluster:
        async with cluster.producer("till") as producer:
            sent = await producer.send(Message("orders", b"paid"))
        for group in ("shop", "ledger"):
            await _take_one(cluster, group)
        assert await cluster.duplicates("shop") == []
        # the committed offset is lost, as in a broker that was killed before it flushed its table
        await cluster.close()
    offsets = tmp_path / "broker-a" / "store" / "config" / "consumerOffset.json"
    for file in (offsets, offsets.with_suffix(".json.bak")):
        file.write_text(json.dumps({"offsetTable": {}}))
    async with Cluster(topics={"orders": 1}, time_scale=0.1, directory=tmp_path) as cluster:
        await _take_one(cluster, "shop")
        (duplicate,) = await cluster.duplicates("shop")
    assert (duplicate.identity, duplicate.message_id) == ("I1", sent.message_id)
    assert duplicate.first.boot_id != duplicate.second.boot_id


async def _take_one(cluster: Cluster, group: str) -> None:
    arrived = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        arrived.set()

    async with cluster.push_consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe("orders", handle)
        async with asyncio.timeout(20):
            await arrived.wait()


async def test_everybody_writes_a_journal_that_begins_and_ends(tmp_path: Path) -> None:
    async with Cluster(directory=tmp_path) as cluster:
        async with cluster.producer("till"):
            pass
        assert cluster.journal_dir == tmp_path / "journal"
    states: dict[str, list[Any]] = {}
    for path in cluster.journal_dir.iterdir():
        lines = journalled(path)
        states[lines[0]["role"]] = [lines[0]["state"], lines[-1]["state"]]
    assert states == {role: ["started", "closed"] for role in ("namesrv", "broker", "producer")}


async def test_a_server_in_process_cannot_be_killed(tmp_path: Path) -> None:
    async with Cluster(directory=tmp_path) as cluster:
        for what in ("kill", "restart", "pause", "resume", "terminate", "heal"):
            with pytest.raises(NotSupported, match="processes=True"):
                getattr(cluster.broker("broker-a"), what)()


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with Cluster(directory=tmp_path) as cluster:
        with pytest.raises(ConfigError, match="it has broker-a"):
            cluster.broker("broker-z")
        with pytest.raises(ConfigError, match="it has 1"):
            cluster.namesrv_at(1)


async def test_a_start_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "broker-b").mkdir()
    (tmp_path / "broker-b" / "store").write_text("a file where a folder should be")
    cluster = Cluster(brokers=2, directory=tmp_path)
    with pytest.raises(Exception, match="store"):
        await cluster.start()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not tasks


async def test_a_plain_with_inside_an_event_loop_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match="async with"), Cluster():
        pass


async def test_members_that_broadcast_side_by_side_have_ids_of_their_own_and_a_successor_goes_on(
    tmp_path: Path,
) -> None:
    got: dict[str, list[bytes]] = {}

    def member(cluster: Cluster, name: str) -> PushConsumer:
        async def handler(message: ReceivedMessage) -> None:
            got.setdefault(name, []).append(message.body)

        made = cluster.push_consumer("news", model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.FIRST_OFFSET)
        made.subscribe("orders", handler)
        return made

    async def until(*names: str, count: int) -> None:
        async with asyncio.timeout(20):
            while any(len(got.get(name, ())) < count for name in names):
                await asyncio.sleep(0.01)

    async with Cluster(topics={"orders": 1}, directory=tmp_path) as cluster, cluster.producer("p") as producer:
        await producer.send(Message("orders", b"1"))
        async with member(cluster, "first") as first, member(cluster, "second") as second:
            await until("first", "second", count=1)
            usual = first.client_id
            assert second.client_id == f"{usual}-2"
        await producer.send(Message("orders", b"2"))
        async with member(cluster, "successor") as successor:
            await until("successor", count=1)
            assert successor.client_id == usual
    assert got == {"first": [b"1"], "second": [b"1"], "successor": [b"2"]}
