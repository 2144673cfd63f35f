"""Subscriptions that change while a consumer runs, and members of one group that do not subscribe alike."""

from collections.abc import Callable
from pathlib import Path

import pytest
from consumer_cluster import SLOW, servers, until
from dejamq import PushConsumer, ReceivedMessage
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig


class Seen(list[str]):
    """A handler that remembers the bodies."""

    async def handle(self, message: ReceivedMessage) -> None:
        self.append(message.body.decode())


def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if "group_differs" in record.getMessage()]


async def test_a_topic_subscribed_again_with_other_tags_comes_with_these_alone(tmp_path: Path) -> None:
    seen = Seen()
    async with servers(tmp_path) as here:
        consumer = here.consumer(**SLOW)
        consumer.subscribe("orders", seen.handle, tags="a")
        async with consumer:
            await here.send("a1", tags="a")
            await until(lambda: seen == ["a1"] and len(consumer.assignment) == 4)
            consumer.unsubscribe("orders")
            consumer.subscribe("orders", seen.handle, tags="b")
            await until(lambda: [line["reason"] for line in here.lines("PQ_DROP")] == ["resubscribed"] * 4)
            await consumer.wait_assigned()
            await here.send("a2", tags="a")
            await here.send("b1", tags="b")
            await until(lambda: seen == ["a1", "b1"])
            await here.send("a3", tags="a")
            await here.send("b2", tags="b")
            await until(lambda: "b2" in seen)
    assert seen == ["a1", "b1", "b2"]


async def test_what_was_not_committed_is_forgotten_by_unsubscribing(tmp_path: Path) -> None:
    """Cause O14, as in RocketMQ: the topic's messages since the last commit come again when it is subscribed again."""
    seen = Seen()
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(**SLOW | {"broker_suspend_max_time_ms": 600_000})
        consumer.subscribe("orders", seen.handle)
        async with consumer:
            await until(lambda: seen == ["x"])
            consumer.unsubscribe("orders")
            await until(lambda: not consumer.assignment)
            consumer.subscribe("orders", seen.handle)
            await until(lambda: len(consumer.assignment) == 4)
            await here.send("y")
            await until(lambda: "y" in seen)
    drops = {line["reason"] for line in here.lines("PQ_DROP") if line["topic"] == "orders"}
    assert drops == {"unsubscribed", "shutdown"}


@pytest.mark.parametrize("filters", [{"tags": "a"}, {"sql": "TAGS = 'a'"}])
async def test_a_topic_subscribed_while_no_name_server_is_there_is_consumed_when_one_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, filters: dict[str, str]
) -> None:
    seen = Seen()
    async with servers(tmp_path, enable_property_filter=True) as here:
        await here.send("x")
        await here.send("y", topic="invoices", tags="a")
        consumer = here.consumer()
        consumer.subscribe("orders", seen.handle)
        async with consumer:
            await until(lambda: seen == ["x"])
            address = here.namesrv.address
            await here.namesrv.close()
            consumer.subscribe("invoices", seen.handle, **filters)
            await until(lambda: "route_unknown topic=invoices" in caplog.text)
            again = NameServer(NamesrvConfig(listen=address))
            await again.start()
            try:
                await until(lambda: seen == ["x", "y"])
            finally:
                await again.close()
    assert "filter_refused" not in caplog.text


async def test_members_with_different_subscriptions_are_told_with_both_sides_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before the next heartbeat, which comes every 30 s."""
    seen, warnings = Seen(), told(caplog)

    def member(client_id: str) -> PushConsumer:
        consumer = here.consumer(**SLOW, client_id=client_id)
        consumer.subscribe("orders", seen.handle, tags="a")
        return consumer

    async with servers(tmp_path) as here:
        await here.send("x", tags="a")
        async with member("one") as one, member("two"):
            await one.wait_assigned()
            assert warnings() == []
            one.subscribe("invoices", seen.handle, tags="paid || open")
            await until(warnings)
            (first, *_) = warnings()
            assert "one has the subscriptions" in first
            assert "invoices (TAG open || paid), orders (TAG a)" in first
            assert "two has" in first
            caplog.clear()
            one.unsubscribe("invoices")
            one.unsubscribe("orders")
            one.subscribe("orders", seen.handle, tags="b")
            await until(lambda: any("orders (TAG b)" in text for text in warnings()))
