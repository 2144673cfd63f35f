"""Messages by key over RPC: what was just sent is found, what hashes alike is told apart, and nobody waits for it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, running
from dejamq_broker.app import Broker
from dejamq_proto import admin_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import Record, decode


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path / "store") as broker:
        yield broker


async def send(wire: Wire, keys: str, *bodies: bytes) -> None:
    answer = await wire.send(a_run("Orders", list(bodies), properties={"KEYS": keys}))
    assert answer.code == Code.SUCCESS


async def query(wire: Wire, key: str, **more: Any) -> list[Record]:
    admin: Any = AdminStub(wire.channel)
    fields: dict[str, Any] = {"topic": "Orders", "key": key} | more
    answer = await wire.call(admin.QueryMessage, admin_pb2.QueryMessageRequest(caller=wire.caller(), **fields))
    return [decode(raw) for raw in answer.records]


async def test_a_message_just_sent_is_found_by_its_keys_its_unique_key_and_its_id(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await send(wire, "order-17 paid", b"one")
        for key in ("order-17", "paid"):
            (record,) = await query(wire, key)
            assert record.body == b"one"
        (same,) = await query(wire, record.properties["UNIQ_KEY"], unique=True)
        assert same == record
        admin: Any = AdminStub(wire.channel)
        request = admin_pb2.ViewMessageRequest(message_id=record.offset_message_id)
        assert decode((await wire.call(admin.ViewMessage, request)).record) == record


async def test_two_keys_of_one_hash_return_only_their_own_messages(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await send(wire, "Aa", b"1", b"2")
        await send(wire, "BB", b"3")
        assert [record.body for record in await query(wire, "Aa")] == [b"1", b"2"]
        assert [record.body for record in await query(wire, "BB")] == [b"3"]


async def test_bounds_of_time_and_number_are_obeyed(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        for number in range(3):
            await send(wire, "k", b"%d" % number)
        first, _, last = await query(wire, "k")
        assert [record.body for record in await query(wire, "k", max_messages=2)] == [b"1", b"2"]
        until_last = await query(wire, "k", begin_timestamp_ms=last.store_timestamp_ms)
        assert until_last[-1] == last
        assert all(record.store_timestamp_ms == last.store_timestamp_ms for record in until_last)
        with pytest.raises(DejamqError):
            await query(wire, "k", end_timestamp_ms=first.store_timestamp_ms - 1)


async def test_what_is_not_there_is_told_by_its_own_code(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await send(wire, "k", b"x")
        for more in ({"key": "other"}, {"key": "k", "topic": "Elsewhere"}, {"key": "k", "unique": True}):
            with pytest.raises(DejamqError, match="no message of") as refused:
                await query(wire, **{"key": "k"} | more)
            assert refused.value.code == Code.QUERY_NOT_FOUND


async def test_a_query_that_takes_long_keeps_nobody_else_waiting(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, go_on = threading.Event(), threading.Event()
    real = broker.domain.store.query

    def slow(wanted: Any) -> Any:
        looking.set()
        assert go_on.wait(10)
        return real(wanted)

    monkeypatch.setattr(broker.domain.store, "query", slow)
    async with Wire(broker.address) as wire:
        await send(wire, "k", b"x")
        asked = asyncio.ensure_future(query(wire, "k"))
        assert await asyncio.to_thread(looking.wait, 10)
        await send(wire, "k", b"y")
        assert not asked.done()
        go_on.set()
        assert [record.body for record in await asked] == [b"x", b"y"]
