"""Messages that are sent again, by retries or by programs, over every door: they are stored once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from broker_wire import dialled, running
from dejamq import Message, MessageQueue, Producer, SendResult, SendTimeout
from dejamq_broker.paths.send import SendPath
from dejamq_broker.store import StoreFull
from dejamq_broker.tables.topics import TopicConfig
from dejamq_broker.writing.record_writer import RecordWriter
from dejamq_proto import failpoints
from dejamq_proto.failpoints import Failpoints
from dejamq_proto.names import SCHEDULE_TOPIC
from dejamq_proto.remoting import requests
from dejamq_proto.v2 import messages_pb2 as pb
from producer_site import Site, bodies_at
from remoting_wire import a_send, remoting
from v2_wire import message, v2

IMPATIENT: dict[str, Any] = {"send_msg_timeout_ms": 20_000, "send_msg_max_timeout_per_request_ms": 300}
"""A try without an answer ends early, and there is time for more."""


def arm(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(failpoints, "ARMED", True)
    monkeypatch.setattr(failpoints, "_armed", Failpoints(text))


@pytest.fixture
async def site(tmp_path: Path, transport: str) -> AsyncIterator[Site]:
    """Two brokers."""
    site = Site(tmp_path, namesrv_reconnect_ms=50)
    await site.namesrv.start()
    for name in ("broker-a", "broker-b"):
        broker = await site.start_broker(name)
        broker.domain.tables.topics.update(TopicConfig("t", 4, 4))
    yield site
    await site.close()


async def sent(producer: Producer, how: str) -> list[SendResult]:
    messages = [Message("t", str(number).encode()) for number in range(60)]
    if how == "batch":
        return await producer.send_batch(messages)
    if how == "submit":
        return await asyncio.gather(*map(producer.submit, messages))
    return [await producer.send(messages[0])]


@pytest.mark.parametrize("how", ["send", "submit", "batch"])
async def test_a_send_whose_answer_is_lost_is_tried_again_and_stored_once(
    site: Site, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.producer(idempotent=True, **IMPATIENT) as producer:
        await producer.send(Message("t", b"first"))
        arm(monkeypatch, "send.answer=2*drop->off")
        results = await sent(producer, how)
        assert any(result.duplicate for result in results)
        assert sorted(await bodies_at(site, "t")) == sorted([b"first", *(b"%d" % n for n in range(len(results)))])
        for result in results:
            record = site.brokers[result.queue.broker_name].domain.store.record_by_id(result.offset_message_id)
            assert record is not None
            assert result.message_id.encode() in record


async def test_without_it_a_send_whose_answer_is_lost_is_stored_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.producer(**IMPATIENT) as producer:
        await producer.send(Message("t", b"first"))
        arm(monkeypatch, "send.answer=1*drop->off")
        result = await producer.send(Message("t", b"x"))
        assert not result.duplicate
        assert sorted(await bodies_at(site, "t")) == [b"first", b"x", b"x"]


async def test_a_broker_that_comes_back_in_time_knows_what_it_has_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.producer(idempotent=True, send_msg_timeout_ms=20_000) as producer:
        await producer.send(Message("t", b"first"), queue=MessageQueue("t", "broker-a", 0))
        arm(monkeypatch, "send.answer=1*drop->off")
        sending = producer.submit(Message("t", b"x"), queue=MessageQueue("t", "broker-a", 0))
        store = site.brokers["broker-a"].domain.store
        async with asyncio.timeout(10):
            while store.max_offset("t", 0) < 2:
                await asyncio.sleep(0.01)
        await site.restart_broker("broker-a")
        result = await sending
        assert result.duplicate
        assert result.queue_offset == 1
        assert sorted(await bodies_at(site, "t")) == [b"first", b"x"]


async def test_what_another_program_sends_with_the_same_id_is_a_duplicate_with_the_first_ones_place(site: Site) -> None:
    async with site.producer() as producer, site.producer() as other:
        for number in range(12):
            first = await producer.send(Message("t", b"x", dedup_id=f"order-{number}"))
            again = await other.send(Message("t", b"y", dedup_id=f"order-{number}"))
            assert (first.duplicate, again.duplicate) == (False, True)
            assert (again.queue, again.queue_offset) == (first.queue, first.queue_offset)
            assert again.offset_message_id == first.offset_message_id
        assert await bodies_at(site, "t") == [b"x"] * 12


async def test_a_program_sends_again_after_a_time_out_and_nothing_is_stored_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.producer() as producer:
        await producer.send(Message("t", b"first"))
        arm(monkeypatch, "send.answer=1*drop->off")
        with pytest.raises(SendTimeout):
            await producer.send(Message("t", b"x", dedup_id="17"), timeout_ms=300)
        assert (await producer.send(Message("t", b"x", dedup_id="17"))).duplicate
        assert sorted(await bodies_at(site, "t")) == [b"first", b"x"]


@pytest.fixture
def failing_half_way(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on the disk has no room, once, for the second record of a run."""
    accept, put = SendPath.accept, RecordWriter.put
    in_run, left = [0], [0]

    def accepting(self: SendPath, *run: Any) -> Any:
        in_run[0] = 0
        return accept(self, *run)

    def failing(self: RecordWriter, *record: Any) -> Any:
        in_run[0] += 1
        if left[0] and in_run[0] == 2:
            left[0] = 0
            raise StoreFull("no room")
        return put(self, *record)

    monkeypatch.setattr(SendPath, "accept", accepting)
    monkeypatch.setattr(RecordWriter, "put", failing)
    return lambda: left.__setitem__(0, 1)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_an_error_for_what_is_stored_in_part_stores_nothing_twice(
    site: Site, idempotent: bool, failing_half_way: Callable[[], None]
) -> None:
    """Cause P4: the broker says that it failed, and has some of the messages."""
    async with site.producer(idempotent=idempotent, send_msg_timeout_ms=20_000) as producer:
        await producer.send(Message("t", b"first"))
        failing_half_way()
        bodies = sorted(b"%d" % number for number in range(100))
        results = await asyncio.gather(*(producer.submit(Message("t", body, delay_level=3)) for body in bodies))
        stored = sorted(await bodies_at(site, SCHEDULE_TOPIC))
        assert any(result.duplicate for result in results) == idempotent
        assert (stored == bodies) == idempotent
        assert set(stored) == set(bodies)


async def test_a_property_asks_for_it_over_remoting(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, remoting(broker.address) as client:
        texts = "UNIQ_KEY\x01K1\x02DEDUP_ID\x0117\x02"
        first = await client.ask(requests.SEND_MESSAGE_V2, b"x", **a_send(i=texts))
        again = await client.ask(requests.SEND_MESSAGE_V2, b"y", **a_send(queue_id=1, i=texts))
        assert (first.code, again.code) == (0, 0)
        assert "duplicates" not in first.ext
        assert again.ext["duplicates"] == "0"
        for name in ("msgId", "queueId", "queueOffset"):
            assert again.ext[name] == first.ext[name]


async def test_a_property_asks_for_it_over_rocketmqs_grpc(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, v2(dialled(broker)) as client:
        broker.domain.tables.topics.update(TopicConfig("orders", 4, 4))
        first = await client.send(message(b"x", properties={"DEDUP_ID": "17"}))
        again = await client.send(message(b"y", properties={"DEDUP_ID": "17"}))
        assert (first.status.code, again.status.code) == (pb.OK, pb.OK)
        assert again.entries[0].offset == first.entries[0].offset
        assert broker.domain.store.log_max < 2 * 200
        assert again.entries[0].status.message == "stored before"
