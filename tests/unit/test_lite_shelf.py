"""Messages between pull and poll: order, limits, what is in hand, what may be committed."""

from pathlib import Path

from consumer_fakes import QUEUE, FakeLink, context, received
from dejamq.lite.shelf import Shelf, polled
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.process_queue import FlowLimits
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue
from journalled import journalled

OTHER = MessageQueue("orders", "broker-a", 1)


class Shelved:
    """A shelf and the queues it holds messages of."""

    def __init__(self, directory: Path | None = None, most: int = 10_000) -> None:
        self.deliveries = Deliveries(context(FakeLink(), directory), kind="poll")
        self.shelf = Shelf(self.deliveries, most, lambda: sum(len(owned.process_queue) for owned in self.owned), set())
        self.owned: list[OwnedQueue] = []

    def own(self, queue: MessageQueue = QUEUE, start: int = 0) -> OwnedQueue:
        owned = OwnedQueue(len(self.owned) + 1, queue, self.shelf.queue(queue, start), start)
        self.owned.append(owned)
        return owned

    def pull(self, owned: OwnedQueue, *offsets: int) -> list[ReceivedMessage]:
        messages = received(owned, *offsets)
        self.shelf.put(owned, messages)
        return messages

    def take(self, limit: int) -> list[tuple[int, int]]:
        return [(message.queue.queue_id, message.queue_offset) for message in self.shelf.take(limit)]


def test_a_poll_takes_no_more_than_it_asks_for_and_the_next_one_goes_on() -> None:
    here = Shelved()
    owned = here.own()
    here.pull(owned, 0, 1, 2)
    here.pull(owned, 3, 4)
    assert here.take(2) == [(0, 0), (0, 1)]
    assert here.take(2) == [(0, 2), (0, 3)]
    assert here.take(2) == [(0, 4)]
    assert here.take(2) == []


def test_a_queue_that_has_few_is_followed_by_the_next_and_one_that_has_many_lets_others_go_first() -> None:
    here = Shelved()
    many, few = here.own(), here.own(OTHER)
    here.pull(many, *range(6))
    here.pull(few, 0)
    assert here.take(2) == [(0, 0), (0, 1)]
    assert here.take(2) == [(1, 0), (0, 2)]
    assert here.take(9) == [(0, 3), (0, 4), (0, 5)]


def test_what_is_in_hand_is_not_done_before_the_next_poll() -> None:
    here = Shelved()
    owned = here.own(start=10)
    here.pull(owned, 10, 11, 12)
    held = polled(owned)
    here.shelf.take(2)
    here.shelf.commit([owned])
    assert (held.committed, held.in_flight, len(held)) == (None, 2, 3)
    here.shelf.settle()
    here.shelf.commit([owned])
    assert (held.committed, held.in_flight, len(held)) == (12, 0, 1)


def test_nothing_is_committed_by_being_done_alone() -> None:
    here = Shelved()
    owned = here.own()
    here.pull(owned, 0, 1)
    here.shelf.take(2)
    here.shelf.settle()
    assert polled(owned).position == 2
    assert polled(owned).commit_offset is None


def test_what_was_filtered_out_behind_the_last_message_is_done_as_well() -> None:
    here = Shelved()
    owned = here.own()
    here.pull(owned, 0)
    owned.process_queue.advance(5)
    assert polled(owned).position == 0
    here.shelf.take(9)
    here.shelf.settle()
    assert polled(owned).position == 5


def test_a_lost_queue_hands_out_nothing_and_what_is_in_hand_of_it_counts_for_nothing(tmp_path: Path) -> None:
    here = Shelved(tmp_path)
    owned = here.own()
    here.pull(owned, 0, 1, 2)
    assert here.take(2) == [(0, 0), (0, 1)]
    owned.process_queue.dropped = True
    assert here.take(2) == []
    here.shelf.settle()
    assert len(owned.process_queue) == 3
    assert [line["pq_dropped"] for line in journalled(tmp_path, "RESULT")] == [True]


def test_messages_of_lost_queues_are_let_go_when_another_queue_comes() -> None:
    here = Shelved()
    owned = here.own()
    here.pull(owned, 0)
    owned.process_queue.dropped = True
    here.own(OTHER)
    assert not here.shelf._ready


def test_a_paused_queue_is_neither_handed_out_nor_pulled_until_it_is_resumed() -> None:
    here = Shelved()
    owned = here.own()
    here.pull(owned, 0)
    here.shelf.paused.add(QUEUE)
    looked = []
    owned.process_queue.on_room = lambda: looked.append(owned.process_queue.excess(FlowLimits()))
    assert here.take(9) == []
    assert owned.process_queue.excess(FlowLimits()) == "paused"
    here.shelf.resume([QUEUE], [owned])
    assert looked == [""]
    assert here.shelf.arrived.is_set()
    assert here.take(9) == [(0, 0)]


def test_the_limit_for_all_queues_stops_each_of_them() -> None:
    here = Shelved(most=3)
    first, second = here.own(), here.own(OTHER)
    here.pull(first, 0, 1, 2)
    assert second.process_queue.excess(FlowLimits()) == ""
    here.pull(second, 0)
    assert second.process_queue.excess(FlowLimits()) == "4 messages held in all queues"
    here.shelf.take(1)
    here.shelf.settle()
    assert second.process_queue.excess(FlowLimits()) == ""


def test_the_event_is_set_while_something_waits_and_cleared_by_a_take_that_emptied_everything() -> None:
    here = Shelved()
    owned = here.own()
    here.pull(owned, 0, 1)
    here.shelf.take(1)
    assert here.shelf.arrived.is_set()
    here.shelf.take(2)
    assert not here.shelf.arrived.is_set()


def test_a_poll_and_what_follows_it_are_in_the_journal(tmp_path: Path) -> None:
    here = Shelved(tmp_path)
    owned = here.own()
    here.pull(owned, 0, 1, 2)
    here.shelf.take(2)
    here.shelf.settle()
    here.shelf.take(2)
    here.shelf.settle()
    told = [line for line in journalled(tmp_path) if line["event"] in ("DELIVER", "RESULT")]
    assert [line["event"] for line in told] == ["DELIVER", "RESULT", "DELIVER", "RESULT"]
    assert {line["kind"] for line in told[::2]} == {"poll"}
    assert [line["mem_off"] for line in told[1::2]] == [2, 3]
    assert [line["delivery_ids"] for line in told] == [[1, 2], [1, 2], [3], [3]]
