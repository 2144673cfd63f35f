"""Groups whose members each get everything."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import SLOW, Servers, servers, until
from dejamq import ConfigError, ConsumeFrom, Message, MessageModel, PushConsumer, ReceivedMessage
from dejamq.rebalance.local_offsets import LocalOffsets, OffsetsUnreadable

BROADCAST: dict[str, Any] = {"model": MessageModel.BROADCASTING, "consume_from": ConsumeFrom.FIRST_OFFSET}


def member(here: Servers, seen: list[str], client_id: str = "member-1", **settings: Any) -> PushConsumer:
    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    consumer = here.consumer(**BROADCAST | {"client_id": client_id} | settings)
    consumer.subscribe("orders", handler)
    return consumer


def saved(here: Servers, client_id: str = "member-1") -> list[int]:
    """The offsets in a member's file, sorted."""
    return sorted(LocalOffsets(client_id, "g", here.directory / "offsets").load().values())


async def test_each_member_gets_every_message_once(tmp_path: Path) -> None:
    sent = [f"early-{number}" for number in range(50)]
    one: list[str] = []
    two: list[str] = []
    async with servers(tmp_path) as here:
        await here.send(*sent)
        async with member(here, one, "member-1") as first, member(here, two, "member-2") as second:
            assert len(await first.wait_assigned()) == len(await second.wait_assigned()) == 4
            await until(lambda: len(one) == len(two) == 50)
            await here.send("late")
            await until(lambda: "late" in one and "late" in two)
        assert sorted(one) == sorted(two) == sorted([*sent, "late"])
        assigned = here.lines("ASSIGN")
        assert {line["strategy"] for line in assigned} == {"broadcasting"}
        assert {line["topic"] for line in assigned} == {"orders"}
        assert not here.server_lines("OFF_SET")


async def test_a_member_goes_on_where_it_stopped_with_what_came_meanwhile(tmp_path: Path) -> None:
    seen: list[str] = []
    async with servers(tmp_path) as here:
        await here.send("before")
        async with member(here, seen):
            await until(lambda: seen == ["before"])
        assert sum(saved(here)) == 1
        await here.send("meanwhile")
        async with member(here, seen):
            await until(lambda: "meanwhile" in seen)
            await here.send("after")
            await until(lambda: "after" in seen)
        opened = here.lines("PQ_OPEN")
    assert seen == ["before", "meanwhile", "after"]
    assert [line["start_offset"] for line in opened if line["source"] == "local" and line.get("start_offset")] == [1]
    assert {line["source"] for line in opened} <= {"local", "local_first"}


async def test_a_member_that_dies_goes_on_from_its_last_save(tmp_path: Path) -> None:
    seen: list[str] = []
    async with servers(tmp_path) as here, here.producer() as producer:
        for body in (b"saved", b"not saved"):
            dying = member(here, seen, **SLOW if seen else {})
            await dying.start()
            await producer.send(Message("orders", body, sharding_key="same"))
            await until(lambda: body.decode() in seen)  # noqa: B023  # called in this round only
            await until(lambda: sum(saved(here)) == 1)
            assert dying._unclosed is not None
            dying._unclosed.close()  # who is killed tells nothing
            await dying.inspect().abandon()
        async with member(here, seen):
            await until(lambda: len(seen) == 3)
    assert seen == ["saved", "not saved", "not saved"]


async def test_a_message_that_fails_is_dropped_and_the_next_ones_come(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        raise ValueError("no")

    async with servers(tmp_path) as here:
        consumer = here.consumer(**BROADCAST, client_id="member-1")
        consumer.subscribe("orders", handler)
        async with consumer:
            await here.send("x")
            await until(lambda: seen == ["x"])
            await here.send("y")
            await until(lambda: seen == ["x", "y"])
            await until(lambda: sum(saved(here)) == 2)
        assert [line["outcome"] for line in here.lines("SENDBACK")] == ["dropped"] * 2
        stored = {topic for line in here.server_lines("APPEND") for topic in line["topics"]}
        assert stored == {"orders"}


async def test_every_member_has_the_order_of_each_queue_without_a_lock(tmp_path: Path) -> None:
    sent = [f"{number}" for number in range(30)]
    one: list[str] = []
    two: list[str] = []
    async with servers(tmp_path) as here, here.producer() as producer:
        for body in sent:
            await producer.send(Message("orders", body.encode(), sharding_key="same"))
        async with member(here, one, "member-1", ordered=True), member(here, two, "member-2", ordered=True):
            await until(lambda: len(one) == len(two) == 30)
        assert one == two == sent
        assert not here.server_lines("LOCK")


async def test_a_member_goes_on_from_a_file_of_rocketmq(tmp_path: Path) -> None:
    seen: list[str] = []
    async with servers(tmp_path) as here, here.producer() as producer:
        results = [await producer.send(Message("orders", b"%d" % number, sharding_key="same")) for number in range(5)]
        queue = results[0].queue
        folder = tmp_path / "offsets" / "member-1" / "g"
        folder.mkdir(parents=True)
        key = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
        (folder / "offsets.json").write_text('{"offsetTable":{' + json.dumps(key) + ":3}}")
        async with member(here, seen):
            await until(lambda: "4" in seen)
    assert seen == ["3", "4"]


async def test_a_member_whose_offsets_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    folder = tmp_path / "offsets" / "member-1" / "g"
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_text("{")
    async with servers(tmp_path) as here:
        consumer = member(here, [])
        with pytest.raises(OffsetsUnreadable, match=r"offsets\.json"):
            await consumer.start()
        await consumer.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("dejamq-fetch")]


def test_a_client_id_that_cannot_name_the_file_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="folder"):
        PushConsumer("g", model=MessageModel.BROADCASTING, client_id="../elsewhere")
