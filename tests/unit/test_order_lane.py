"""Messages of a queue in order: taken, committed, put back. The process queue's low-water mark follows."""

from consumer_fakes import owned_queue, received
from dejamq.handling.queue_turns import HeldMessages
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue
from hypothesis import given
from hypothesis import strategies as st


def a_lane(count: int) -> tuple[HeldMessages, list[ReceivedMessage]]:
    owned = owned_queue()
    messages = received(owned, *range(count))
    lane = HeldMessages(owned.process_queue)
    lane.put(messages)
    return lane, messages


def offsets(messages: list[ReceivedMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_what_is_taken_and_not_committed_holds_the_mark() -> None:
    lane, _ = a_lane(5)
    lane.take(2)
    lane.take(1)
    assert (len(lane), lane._held.low_water) == (2, 0)
    lane.commit()
    assert (offsets(lane.taken), lane._held.low_water) == ([], 3)


def test_the_last_ones_can_be_put_back_alone_and_come_first() -> None:
    lane, _ = a_lane(5)
    lane.take(2)
    lane.again(lane.take(2))
    assert offsets(lane.taken) == [0, 1]
    assert offsets(lane.take(5)) == [2, 3, 4]


def test_a_rollback_puts_everything_back_that_was_not_committed() -> None:
    lane, _ = a_lane(6)
    lane.take(2)
    lane.commit()
    lane.take(1)
    lane.take(2)
    lane.rollback()
    assert offsets(lane.take(9)) == [2, 3, 4, 5]


def test_a_batch_of_a_retry_queue_holds_one_topic() -> None:
    owned = owned_queue(queue=MessageQueue("%RETRY%g", "broker-a", 0))
    first = received(owned, 0, 1, RETRY_TOPIC="orders")
    second = received(owned, 2, RETRY_TOPIC="invoices")
    lane = HeldMessages(owned.process_queue)
    lane.put(first + second)
    assert lane.next_topic == "orders"
    assert offsets(lane.take(10)) == [0, 1]
    assert lane.next_topic == "invoices"
    assert offsets(lane.take(10)) == [2]


@given(st.lists(st.sampled_from(["take", "take 3", "commit", "again", "rollback", "put"]), max_size=40))
def test_whatever_happens_the_order_is_kept_and_the_mark_is_what_is_committed(steps: list[str]) -> None:
    """Against a list as the model: committed | taken | waiting is always the queue, cut at two places."""
    owned = owned_queue()
    lane = HeldMessages(owned.process_queue)
    total = committed = taken = last = 0
    for step in steps:
        if step == "put":
            lane.put(received(owned, total, total + 1))
            total += 2
        elif step.startswith("take") and len(lane):
            messages = lane.take(int(step[5:] or 1))
            assert offsets(messages) == list(range(committed + taken, committed + taken + len(messages)))
            last = len(messages)
            taken += last
            continue
        elif step == "commit":
            lane.commit()
            committed, taken = committed + taken, 0
        elif step == "again" and last:
            lane.again(lane.taken[-last:])
            taken -= last
        elif step == "rollback":
            lane.rollback()
            taken = 0
        last = 0
        assert len(lane) == total - committed - taken
        assert offsets(lane.taken) == list(range(committed, committed + taken))
        assert owned.process_queue.low_water == committed
