"""A group's retry policy: RocketMQ's numbers, and the delay levels that come close to them."""

from typing import Any

import pytest
from dejamq_broker.deferred.retry_policy import policy_from_json, retry_level
from dejamq_broker.store import StoreConfig
from dejamq_proto.codes import Code, DejamqError

LEVELS_MS = StoreConfig().delay_levels_ms
TABLE = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1, 2, 60_000, 3_600_000]}}


@pytest.mark.parametrize("policy", [{}, {"type": "CUSTOMIZED"}, {"type": "EXPONENTIAL"}, {"type": "NEW"}, {"type": 7}])
def test_without_a_policy_that_can_be_read_the_level_is_three_and_the_tries(policy: dict[str, Any]) -> None:
    assert [retry_level(policy, tries, LEVELS_MS) for tries in (0, 1, 15)] == [3, 4, 18]


@pytest.mark.parametrize(("tries", "level"), [(-1, 5), (0, 5), (1, 17), (2, 17), (99, 17)])
def test_a_table_begins_with_its_third_entry_and_its_last_one_goes_on(tries: int, level: int) -> None:
    assert retry_level(TABLE, tries, LEVELS_MS) == level


def test_a_short_table_gives_its_last_entry_at_once() -> None:
    assert retry_level({"customizedRetryPolicy": {"next": [30_000]}}, 0, LEVELS_MS) == 4


def test_an_exponential_policy_stops_growing_at_its_limit_however_many_the_tries() -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 30_000, "multiplier": 10}}
    assert [retry_level(policy, tries, LEVELS_MS) for tries in (0, 1, 2, 1 << 30)] == [1, 3, 4, 4]


def test_a_delay_beyond_all_levels_takes_the_longest_one_wherever_it_stands_in_the_table() -> None:
    assert retry_level(TABLE, 9, (1000, 900_000, 5000)) == 2


def test_a_policy_is_written_as_rocketmq_writes_it() -> None:
    text = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":2000,"multiplier":3}}'
    assert policy_from_json(text) == {
        "type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 2000, "multiplier": 3}
    }  # fmt: skip
    assert policy_from_json("{}") == {"type": "CUSTOMIZED"}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "exponential", '{"type":"LINEAR"}', '{"customizedRetryPolicy":{"next":[]}}',
        '{"customizedRetryPolicy":{"next":[0]}}', '{"exponentialRetryPolicy":{"multiplier":0}}',
        '{"exponentialRetryPolicy":{"initial":"soon"}}',
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(DejamqError, match="EXPONENTIAL") as caught:
        policy_from_json(text)
    assert caught.value.code is Code.INVALID_PARAMETER
