"""Consumers with filters against real servers. RocketMQ: the matrices of its tag and SqlFilterIT tests."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import ConsumeFrom, DejamqError, Message, ReceivedMessage, RetryLater
from dejamq_proto.codes import Code
from lite_cluster import bodies, lite, polled

SQL = {"enable_property_filter": True}
SENT = {"plain": None, "a": "A", "b": "B", "c": "C", "aa": "Aa", "bb": "BB"}


class Reader:
    """One consumer and the bodies that it got."""

    def __init__(self, here: Servers, group: str, **settings: Any) -> None:
        self.seen: list[str] = []
        self.consumer = here.consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET, **settings)

    async def handle(self, message: ReceivedMessage) -> None:
        self.seen.append(message.body.decode())


async def send_each(here: Servers, tags: dict[str, str | None]) -> None:
    async with here.producer() as producer:
        for body, tag in tags.items():
            await producer.send(Message("orders", body.encode(), tags=tag, properties={"size": str(len(body))}))


async def readers(here: Servers, filters: Sequence[dict[str, str | None]], **settings: Any) -> list[Reader]:
    """Started, one group each."""
    found = [Reader(here, f"g{number}", **settings) for number in range(len(filters))]
    for reader, chosen in zip(found, filters, strict=True):
        reader.consumer.subscribe("orders", reader.handle, **chosen)
        await reader.consumer.start()
    return found


MATRIX: list[tuple[dict[str, str | None], set[str]]] = [
    ({"tags": "*"}, {"plain", "a", "b", "c", "aa", "bb"}),
    ({"tags": None}, {"plain", "a", "b", "c", "aa", "bb"}),
    ({"tags": "A"}, {"a"}),
    ({"tags": "A||B"}, {"a", "b"}),
    ({"tags": "A || nobody"}, {"a"}),
    ({"tags": "Aa"}, {"aa"}),  # BB has the same hash: the broker gives it, the client drops it
    ({"tags": "nobody || C"}, {"c"}),
    ({"sql": "TAGS IS NOT NULL AND TAGS IN ('A', 'B')"}, {"a", "b"}),
    ({"sql": "TAGS IS NULL OR size > 1"}, {"plain", "aa", "bb"}),
    ({"sql": "size BETWEEN 2 AND 5 AND NOT (TAGS = 'Aa')"}, {"bb"}),
]


@pytest.mark.parametrize("by_heartbeat", [False, True])
async def test_every_consumer_gets_what_its_filter_says_and_nothing_else(tmp_path: Path, by_heartbeat: bool) -> None:
    """Sent half before the start, half after it: through the first looks and through held pulls."""
    async with servers(tmp_path, **SQL) as here:
        await send_each(here, SENT)
        filters = [chosen for chosen, _ in MATRIX]
        found = await readers(here, filters, post_subscription_when_pull=not by_heartbeat)
        await send_each(here, SENT)
        await until(lambda: all(len(reader.seen) >= 2 * len(MATRIX[n][1]) for n, reader in enumerate(found)))
        for reader in found:
            await reader.consumer.close()
    assert [sorted(reader.seen) for reader in found] == [sorted([*wanted, *wanted]) for _, wanted in MATRIX]


async def test_two_members_with_one_filter_share_what_it_wants(tmp_path: Path) -> None:
    async with servers(tmp_path, **SQL) as here:
        await send_each(here, {"make the topic": "C"})
        pair = [Reader(here, "g"), Reader(here, "g")]
        for reader in pair:
            reader.consumer.subscribe("orders", reader.handle, sql="TAGS = 'A'")
        async with pair[0].consumer, pair[1].consumer:
            await until(lambda: all(len(reader.consumer.assignment) == 2 for reader in pair))
            await send_each(here, {f"{number}": "AB"[number % 2] for number in range(40)})
            await until(lambda: len(pair[0].seen) + len(pair[1].seen) == 20)
        assert sorted(map(int, pair[0].seen + pair[1].seen)) == list(range(0, 40, 2))


async def test_what_a_filter_left_out_is_done_with(tmp_path: Path) -> None:
    """A consumer whose filter wants nothing commits its way to the end of every queue."""
    async with servers(tmp_path, **SQL) as here:
        await send_each(here, {f"{number}": "B" for number in range(40)})
        (reader,) = await readers(here, [{"sql": "TAGS = 'A'"}])
        await until(lambda: here.broker is not None and sum(
            offset for _, _, offset in here.broker.domain.tables.offsets.of_group("g0")
        ) == 40)  # fmt: skip
        await reader.consumer.close()
        assert reader.seen == []


async def test_a_failed_message_comes_again_past_the_filter(tmp_path: Path) -> None:
    """Retry topics are subscribed whole, whatever the filter of the first topic."""
    seen: list[tuple[str, int]] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if not message.reconsume_times:
            raise RetryLater(1)

    async with servers(tmp_path, **SQL) as here:
        consumer = here.consumer(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("orders", handler, sql="TAGS = 'A'")
        async with consumer:
            await send_each(here, {"wanted": "A", "unwanted": "B"})
            await until(lambda: len(seen) == 2)
    assert seen == [("wanted", 0), ("wanted", 1)]


@pytest.mark.parametrize(
    ("settings", "sql", "code", "why"),
    [
        (SQL, "amount >", Code.SUBSCRIPTION_PARSE_FAILED, "does not fit at position 8"),
        (SQL, "amount LIKE '5%'", Code.SUBSCRIPTION_PARSE_FAILED, "'LIKE' does not fit at position 7"),
        ({}, "amount > 5", Code.SYSTEM_ERROR, "enable_property_filter"),
    ],
)
async def test_a_filter_that_brokers_refuse_stops_the_start(
    tmp_path: Path, settings: dict[str, Any], sql: str, code: Code, why: str
) -> None:
    async with servers(tmp_path, **settings) as here:
        await here.send("x")
        reader = Reader(here, "g")
        reader.consumer.subscribe("orders", reader.handle, sql=sql)
        with pytest.raises(DejamqError, match=why) as caught:
            await reader.consumer.start()
        assert (caught.value.code, caught.value.definite) == (code, True)
        await reader.consumer.close()


async def test_without_a_route_a_filter_cannot_be_checked_and_the_start_goes_on(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        reader = Reader(here, "g")
        reader.consumer.subscribe("nowhere", reader.handle, sql="amount > 5")
        async with reader.consumer:
            assert not reader.consumer.closed


async def test_a_filter_subscribed_while_running_is_checked_and_its_refusal_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "dejamq.clients.consumer")
    async with servers(tmp_path, **SQL) as here:
        await here.send("x", topic="other")
        await send_each(here, SENT)
        reader = Reader(here, "g")
        reader.consumer.subscribe("orders", reader.handle, tags="A")
        async with reader.consumer:
            reader.consumer.subscribe("other", reader.handle, sql="amount >")
            await until(lambda: "filter_refused topic=other" in caplog.text)
            await until(lambda: reader.seen == ["a"])


async def test_a_filter_changed_while_running_holds_for_what_comes_then(tmp_path: Path) -> None:
    async with servers(tmp_path, **SQL) as here:
        await send_each(here, SENT)
        reader = Reader(here, "g")
        reader.consumer.subscribe("orders", reader.handle, sql="TAGS = 'A'")
        async with reader.consumer:
            await until(lambda: reader.seen == ["a"])
            reader.consumer.unsubscribe("orders")
            reader.consumer.subscribe("orders", reader.handle, sql="TAGS = 'B'")
            await reader.consumer.wait_assigned()
            await send_each(here, SENT)
            await until(lambda: reader.seen[1:] == ["b"])


async def test_members_with_different_filters_lose_what_the_other_wants(tmp_path: Path) -> None:
    """RocketMQ's trap: one group, two filters. Each gets its own from its own queues, the rest is passed over.

    Both are told. Nothing is refused, because an upgrade changes members one after the other.
    """
    async with servers(tmp_path) as here:
        await send_each(here, dict.fromkeys("wxyz", "C"))
        first, second = Reader(here, "g"), Reader(here, "g")
        first.consumer.subscribe("orders", first.handle, tags="A")
        second.consumer.subscribe("orders", second.handle, tags="B")
        async with first.consumer, second.consumer:
            await until(lambda: len(first.consumer.assignment) == len(second.consumer.assignment) == 2)
            await send_each(here, {f"{number}": "AB"[number // 4 % 2] for number in range(32)})
            assert here.broker is not None
            offsets = here.broker.domain.tables.offsets
            await until(lambda: sum(offset for _, _, offset in offsets.of_group("g")) == 36)
        assert set(first.seen) <= {f"{number}" for number in range(32) if number // 4 % 2 == 0}
        assert set(second.seen) <= {f"{number}" for number in range(32) if number // 4 % 2 == 1}
        assert len(first.seen) + len(second.seen) == 16


async def test_a_lite_consumer_polls_what_its_sql_wants(tmp_path: Path) -> None:
    async with servers(tmp_path, **SQL) as here:
        await send_each(here, SENT)
        consumer = lite(here, consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("orders", sql="size = 1")
        async with consumer:
            found = await polled(consumer, lambda messages: len(messages) >= 3)
        assert sorted(bodies(found)) == ["a", "b", "c"]


async def test_a_broker_may_serve_no_lite_consumers(tmp_path: Path) -> None:
    async with servers(tmp_path, lite_pull_message_enable=False) as here:
        await send_each(here, SENT)
        push, consumer = Reader(here, "push"), lite(here, consume_from=ConsumeFrom.FIRST_OFFSET)
        push.consumer.subscribe("orders", push.handle)
        consumer.subscribe("orders")
        async with push.consumer, consumer:
            await until(lambda: len(push.seen) == len(SENT))
            assert await consumer.poll(50) == []
