"""Filters that brokers judge, before a consumer waits for messages that never come."""

from types import SimpleNamespace
from typing import Any

import pytest
from dejamq.filter_check import check_filters
from dejamq.message import MessageQueue
from dejamq.subscriptions import Subscription
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound
from dejamq_proto.common_pb2 import Caller

SQL = Subscription("orders", print, expression="price > 3", expression_type="SQL92")


class Brokers:
    """Of topic ``orders``: what each address says to a filter, None for yes."""

    def __init__(self, **says: DejamqError | None) -> None:
        self.says, self.asked = says, list[tuple[str, str]]()
        self.routes: Any = SimpleNamespace(subscribe_queues=self.queues, address=self.address)

    async def queues(self, topic: str) -> list[MessageQueue]:
        if topic != "orders":
            raise RouteNotFound(topic)
        return [MessageQueue(topic, name, number) for name in self.says for number in range(2)]

    def address(self, broker_name: str, *, only_this: bool) -> str | None:
        return None if broker_name == "unknown" else broker_name

    def caller(self) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=1)

    def link(self, address: str) -> Any:
        async def check_filter(request: Any) -> None:
            self.asked.append((address, request.expression))
            if (refusal := self.says[address]) is not None:
                raise refusal

        return SimpleNamespace(check_filter=check_filter)


async def check(brokers: Brokers, *subscriptions: Subscription) -> None:
    instance: Any = brokers
    await check_filters(instance, "g", subscriptions)


async def test_every_broker_of_the_topic_is_asked_once_and_tags_are_no_question() -> None:
    brokers = Brokers(a=None, b=None, unknown=None)
    await check(brokers, Subscription("orders", print, frozenset({"paid"}), "paid"), SQL)
    assert sorted(brokers.asked) == [("a", "price > 3"), ("b", "price > 3")]


@pytest.mark.parametrize("code", [Code.SUBSCRIPTION_PARSE_FAILED, Code.SYSTEM_ERROR])
async def test_a_refusal_names_topic_and_broker_and_is_surely_not_done(code: Code) -> None:
    brokers = Brokers(a=None, b=DejamqError("no such function", code=code))
    with pytest.raises(DejamqError, match="topic 'orders', broker b: no such function") as refused:
        await check(brokers, SQL)
    assert (refused.value.code, refused.value.definite) == (code, True)


async def test_brokers_and_topics_that_are_away_refuse_nothing(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(a=BrokerUnavailable("a is away", definite=True), b=None)
    nowhere = Subscription("nowhere", print, expression="x", expression_type="SQL92")
    await check(brokers, nowhere, SQL)
    assert len(brokers.asked) == 2
    assert "filter_not_checked topic=orders broker=a" in caplog.text
