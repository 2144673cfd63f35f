"""What a lite pull consumer refuses at once, before any server is asked."""

from typing import Any

import pytest
from dejamq import BrokerUnavailable, ConfigError, DejamqError, InvalidName, LitePullConsumer, MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


def consumer(**settings: Any) -> LitePullConsumer:
    return LitePullConsumer("g", namesrv="127.0.0.1:1", **settings)


@pytest.mark.parametrize("settings", [{"model": "SHARED"}, {"consume_from": "MIDDLE"}])
def test_a_choice_that_there_is_not_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="use one of"):
        consumer(**settings)


@pytest.mark.parametrize("queues", [QUEUE, "orders", ["orders"], None])
def test_what_are_no_queues_is_refused(queues: Any) -> None:
    with pytest.raises(ConfigError, match="list of MessageQueue"):
        consumer().assign(queues)
    with pytest.raises(ConfigError, match="list of MessageQueue"):
        consumer().pause(queues)


def test_subscribe_and_assign_exclude_one_another_in_either_order() -> None:
    subscribed, assigned = consumer(), consumer()
    subscribed.subscribe("orders")
    with pytest.raises(ConfigError, match="exclude"):
        subscribed.assign([QUEUE])
    assigned.assign([QUEUE])
    with pytest.raises(ConfigError, match="exclude"):
        assigned.subscribe("invoices")


def test_bad_names_and_tags_are_refused_where_they_are_given() -> None:
    with pytest.raises(InvalidName):
        LitePullConsumer("no good")
    with pytest.raises(InvalidName):
        consumer().subscribe("no good")
    with pytest.raises(ConfigError, match="separates nothing"):
        consumer().subscribe("orders", tags="a | b")
    twice = consumer()
    twice.subscribe("orders")
    with pytest.raises(ConfigError, match="already"):
        twice.subscribe("orders")


@pytest.mark.parametrize("name", ["consume_timeout_ms", "suspend_current_queue_time_ms", "graceful_handover"])
def test_settings_of_handlers_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="has none"):
        consumer(**{name: 1})


@pytest.mark.parametrize("name", ["auto_commit_interval_ms", "max_poll_messages", "pull_threshold_for_all"])
def test_settings_that_cannot_work_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        consumer(**{name: 0})


def test_rocketmqs_names_of_the_settings_are_understood() -> None:
    config = consumer(autoCommitIntervalMillis=7, pollTimeoutMillis=8, pullThresholdForAll=9, consumeMaxSpan=10).config
    assert (config.auto_commit_interval_ms, config.poll_timeout_ms, config.pull_threshold_for_all) == (7, 8, 9)
    assert config.consume_concurrently_max_span == 10


def test_the_defaults_are_rocketmqs() -> None:
    config = consumer().config
    assert (config.auto_commit_interval_ms, config.poll_timeout_ms, config.pull_threshold_for_all) == (
        5000,
        5000,
        10000,
    )
    assert (config.pull_threshold_for_queue, config.pull_threshold_size_for_queue) == (1000, 100)
    assert (config.consume_concurrently_max_span, config.broker_suspend_max_time_ms) == (2000, 20_000)


async def test_what_needs_a_started_consumer_says_so() -> None:
    idle = consumer()
    idle.subscribe("orders")
    for call in (idle.poll(), idle.commit(), idle.committed(QUEUE), idle.seek_to_end(QUEUE), anext(idle)):
        with pytest.raises(ConfigError, match="start"):
            await call


def test_seeking_needs_an_owned_queue_and_a_possible_offset() -> None:
    idle = consumer()
    with pytest.raises(DejamqError, match="not owned"):
        idle.seek(QUEUE, 0)
    idle.assign([QUEUE])
    idle.seek(QUEUE, 7)
    with pytest.raises(DejamqError, match="0 or more"):
        idle.seek(QUEUE, -1)


async def test_one_that_was_never_started_can_be_closed_and_then_ends_loops() -> None:
    idle = consumer()
    idle.subscribe("orders")
    await idle.close()
    await idle.close()
    assert [message async for message in idle] == []


async def test_a_start_without_name_server_says_so_and_may_be_tried_again() -> None:
    idle = consumer(mq_client_api_timeout_ms=200)
    idle.subscribe("orders")
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
            await idle.start()
    assert idle.client_id == ""
    await idle.close()
