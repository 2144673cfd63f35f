import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import dejamq
import pytest
from dejamq import BatchResult, ConfigError, ConsumeStatus, InvalidName, MessageModel, PushConsumer, ReceivedMessage
from dejamq.clients.runner import Stoppable
from dejamq.handling.subscriptions import Subscriptions
from dejamq.receiving.handlers import RetryLater, judge_answer, tags_of_expression


async def handler(message: ReceivedMessage) -> None: ...


async def batch_handler(messages: Sequence[ReceivedMessage]) -> None: ...


def consumer(**settings: Any) -> PushConsumer:
    return PushConsumer("g", namesrv="127.0.0.1:1", **settings)


@pytest.mark.parametrize("group", ["", "a b", "DEFAULT_CONSUMER", "x" * 121])
def test_a_bad_group_is_refused_at_once(group: str) -> None:
    with pytest.raises(InvalidName):
        PushConsumer(group)


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128])
def test_a_bad_topic_is_refused_at_once(topic: str) -> None:
    with pytest.raises(InvalidName):
        consumer().subscribe(topic, handler)


def test_an_unknown_setting_is_refused_with_near_ones() -> None:
    with pytest.raises(ConfigError, match="pull_batch_size"):
        consumer(pull_batchsize=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_concurrency": 0}, {"allocation": "fairly"}, {"pull_batch_size": 0}, {"namesrv": "nowhere"},
        {"pull_threshold_for_queue": 70_000}, {"auto_commit": False},
        {"ordered": True, "lock_interval_ms": 30_000}, {"ordered": True, "lock_retry_ms": 0},
    ],
)  # fmt: skip
def test_what_could_not_work_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PushConsumer("g", **{"namesrv": "127.0.0.1:1", **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "SHARED"}, {"consume_from": "MIDDLE"}, {"max_concurrency": "4"}, {"max_concurrency": 2.5},
        {"max_reconsume_times": "many"}, {"consume_timestamp_ms": "yesterday"},
    ],
)  # fmt: skip
def test_a_choice_of_the_wrong_kind_is_refused_with_its_value(settings: dict[str, Any]) -> None:
    (value,) = settings.values()
    with pytest.raises(ConfigError, match=repr(value)):
        consumer(**settings)


def test_a_model_may_be_given_by_its_name() -> None:
    named = consumer(model="BROADCASTING").config.client_id
    assert named == consumer(model=MessageModel.BROADCASTING).config.client_id != consumer().config.client_id


def test_rocketmqs_spelling_of_a_setting_is_taken() -> None:
    assert consumer(pullThresholdForQueue=7).config.pull_threshold_for_queue == 7


@pytest.mark.parametrize("minutes", [15, "15"])
def test_the_consume_time_out_in_rocketmqs_spelling_is_in_minutes(minutes: Any) -> None:
    assert consumer(consumeTimeout=minutes).config.consume_timeout_ms == 15 * 60_000
    assert consumer(consume_timeout_ms=minutes).config.consume_timeout_ms == 15


def test_a_consume_time_out_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="'long' is not a whole number"):
        consumer(consumeTimeout="long")


def test_the_times_of_a_consumer_are_rocketmqs() -> None:
    config = consumer().config
    assert (config.persist_consumer_offset_interval_ms, config.rebalance_wait_interval_ms) == (5_000, 20_000)
    assert (config.rebalance_min_interval_ms, config.pull_max_idle_time_ms) == (1_000, 120_000)
    assert (config.broker_suspend_max_time_ms, config.consumer_timeout_when_suspend_ms) == (15_000, 30_000)
    assert (config.lock_max_live_time_ms, config.lock_interval_ms, config.lock_timeout_ms) == (30_000, 20_000, 1_000)
    assert (config.consume_timeout_ms, config.consume_retry_delay_ms) == (900_000, 5_000)
    assert (config.suspend_current_queue_time_ms, config.max_time_consume_continuously_ms) == (1_000, 60_000)


def test_a_topic_has_one_handler() -> None:
    one = consumer()
    one.subscribe("orders", handler)
    with pytest.raises(ConfigError, match="unsubscribe"):
        one.subscribe_batch("orders", batch_handler, size=3)
    one.unsubscribe("orders")
    one.subscribe("orders", handler)


def test_unsubscribing_what_is_not_subscribed_is_an_error() -> None:
    with pytest.raises(InvalidName):
        consumer().unsubscribe("orders")


def test_the_groups_own_retry_topic_is_subscribed_by_itself() -> None:
    with pytest.raises(ConfigError, match="by itself"):
        consumer().subscribe("%RETRY%g", handler)


async def generator(message: ReceivedMessage) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("wrong", [None, "handler", generator, lambda: None, lambda a, b: None])
def test_a_handler_of_the_wrong_shape_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="async def handler"):
        consumer().subscribe("orders", wrong)


def test_callables_of_one_argument_are_handlers() -> None:
    class Shop:
        async def __call__(self, message: ReceivedMessage) -> None: ...

        def plain(self, message: ReceivedMessage, retries: int = 3) -> None: ...

    one = consumer()
    one.subscribe("a", Shop())
    one.subscribe("b", Shop().plain)
    one.subscribe("c", print)


def test_a_batch_size_is_1_to_1024() -> None:
    wrong: Any
    for wrong in (0, -1, 1025, "3"):
        with pytest.raises(ConfigError, match="size"):
            consumer().subscribe_batch("orders", batch_handler, size=wrong)


@pytest.mark.parametrize("tags", ["a | b", "a|b", "||", "a || b | c"])
def test_a_single_bar_in_tags_is_refused_with_the_right_spelling(tags: str) -> None:
    with pytest.raises(ConfigError, match=r"a \|\| b"):
        consumer().subscribe("orders", handler, tags=tags)


@pytest.mark.parametrize("filters", [{"tags": ["a", "b"]}, {"sql": 5}])
def test_a_filter_that_is_no_text_is_refused(filters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="text"):
        consumer().subscribe("orders", handler, **filters)


@pytest.mark.parametrize("name", [None, 17])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName, match="text"):
        consumer().subscribe(name, handler)
    with pytest.raises(InvalidName, match="text"):
        PushConsumer(name)


def test_tag_expressions_are_rocketmqs() -> None:
    assert tags_of_expression("a || b ||c") == {"a", "b", "c"}
    for everything in (None, "", "*", " * "):
        assert tags_of_expression(everything) == frozenset()


@pytest.mark.parametrize(
    ("filters", "why"), [({"tags": "a", "sql": "a > 1"}, "not both"), ({"sql": " "}, "sql is empty")]
)
def test_a_filter_is_by_tags_or_by_sql(filters: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        consumer().subscribe("orders", handler, **filters)


def test_heartbeats_name_the_kind_of_each_filter() -> None:
    subscriptions = Subscriptions("g", lambda: 5)
    subscriptions.add("orders", handler, tags="b || a")
    subscriptions.add("payments", handler, tags="*", sql="amount > 5")
    told = [(one.topic, one.expression, one.expression_type, one.version) for one in subscriptions.wire()]
    assert told == [
        ("orders", "a || b", "TAG", 5), ("payments", "amount > 5", "SQL92", 6), ("%RETRY%g", "*", "TAG", 0),
    ]  # fmt: skip


def test_answers_are_judged_as_documented() -> None:
    assert judge_answer(None, 3).acknowledged == 3
    assert judge_answer(ConsumeStatus.SUCCESS, 3).acknowledged == 3
    assert judge_answer(ConsumeStatus.RECONSUME_LATER, 3).acknowledged == 0
    assert judge_answer(BatchResult(2), 3).status == "success"
    assert judge_answer(BatchResult(-1), 3).acknowledged == 0
    for wrong in (True, "success", 0):
        assert judge_answer(wrong, 3).status == "wrong_value"


@pytest.mark.parametrize("ack_index", [2, 3, 2**31 - 1])
def test_an_ack_index_at_or_behind_the_end_of_the_list_acknowledges_all_of_it(ack_index: int) -> None:
    """RocketMQ: ``if (ackIndex >= consumeRequest.getMsgs().size()) ackIndex = size - 1``."""
    outcome = judge_answer(BatchResult(ack_index), 3)
    assert (outcome.status, outcome.acknowledged) == ("success", 3)


@pytest.mark.parametrize("ack_index", [-2, "1", None])
def test_an_ack_index_that_is_none_acknowledges_nothing_and_the_text_names_the_range(ack_index: Any) -> None:
    outcome = judge_answer(BatchResult(ack_index), 3)
    assert (outcome.status, outcome.acknowledged) == ("wrong_value", 0)
    assert "-1 (nothing is done) to 2 (all are)" in outcome.reason


@pytest.mark.parametrize("level", [-1, 19])
def test_delay_levels_are_0_to_18(level: int) -> None:
    with pytest.raises(ValueError, match="0 to 18"):
        RetryLater(level)


async def test_waiting_for_queues_before_the_start_is_an_error() -> None:
    with pytest.raises(ConfigError, match="start"):
        await consumer().wait_assigned()
    assert consumer().assignment == ()


async def test_closing_what_never_started_is_fine() -> None:
    one = consumer()
    await one.close()
    await one.close()
    assert one.closed


def test_the_public_names_are_there() -> None:
    assert {name for name in dejamq.__all__ if not hasattr(dejamq, name)} == set()
    assert isinstance(consumer(), Stoppable)


async def test_run_ends_when_one_of_the_clients_stops_and_closes_all_in_reverse() -> None:
    steps: list[str] = []

    class Client:
        def __init__(self, name: str) -> None:
            self.name, self.stopped = name, asyncio.Event()

        async def __aenter__(self) -> "Client":
            steps.append(f"start {self.name}")
            return self

        async def __aexit__(self, *error: object) -> None:
            steps.append(f"close {self.name}")

        async def wait_stopped(self) -> None:
            await self.stopped.wait()

    first, second = Client("first"), Client("second")
    asyncio.get_running_loop().call_soon(first.stopped.set)
    await dejamq.run(first, second, signals=())
    assert steps == ["start first", "start second", "close second", "close first"]
