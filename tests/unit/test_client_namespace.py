"""Namespaces: what is put before a name, what is taken away again, and whose names stay as they are."""

from collections.abc import Sequence

import pytest
from dejamq import MessageQueue
from dejamq.values.namespace import strategy_outside, unwrap, unwrap_queue, wrap, wrap_queue
from dejamq_proto.allocation import averagely
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text("abcXYZ019_-", min_size=1, max_size=20)
SYSTEM = ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS", "DefaultCluster_REPLY_TOPIC"]


@pytest.mark.parametrize(
    ("name", "inside"),
    [("orders", "eu%orders"), ("%RETRY%billing", "%RETRY%eu%billing"), ("%DLQ%billing", "%DLQ%eu%billing")],
)
def test_a_name_gets_the_namespace_behind_its_retry_or_dead_letter_prefix(name: str, inside: str) -> None:
    assert wrap("eu", name) == inside
    assert unwrap("eu", inside) == name


@given(NAMES, NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_wrapping_twice_is_wrapping_once_and_unwrapping_undoes_it(namespace: str, name: str, prefix: str) -> None:
    inside = wrap(namespace, prefix + name)
    assert wrap(namespace, inside) == inside
    assert unwrap(namespace, inside) == prefix + name


@pytest.mark.parametrize("name", SYSTEM)
def test_what_belongs_to_the_cluster_has_no_namespace(name: str) -> None:
    assert wrap("eu", name) == unwrap("eu", name) == name


def test_without_a_namespace_nothing_changes() -> None:
    assert wrap("", "orders") == unwrap("", "orders") == "orders"
    queue = MessageQueue("orders", "a", 0)
    assert wrap_queue("", queue) is unwrap_queue("", queue) is queue


def test_another_namespaces_name_is_not_unwrapped() -> None:
    assert unwrap("eu", "us%orders") == "us%orders"


def test_a_queue_is_the_same_queue_of_the_topic_inside() -> None:
    queue = MessageQueue("orders", "a", 3)
    assert wrap_queue("eu", queue) == MessageQueue("eu%orders", "a", 3)
    assert unwrap_queue("eu", wrap_queue("eu", queue)) == queue


def test_a_programs_own_allocation_sees_its_own_names_and_its_share_has_the_clusters() -> None:
    queues = [MessageQueue("eu%orders", "a", number) for number in range(4)]
    seen: list[str] = []

    def own(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        seen.extend(queue.topic for queue in queues)
        return averagely(queues, members, me)

    assert strategy_outside("eu", own)(queues, ["x", "y"], "y") == queues[2:]
    assert seen == ["orders"] * 4
    assert strategy_outside("", own) is own
