from pathlib import Path

import pytest
from dejamq_lab.duplicates import find_duplicates
from dejamq_proto.journal.events import Change, Deliver, Result
from dejamq_proto.journal.writer import Journal, open_journal


class History:
    """Deliveries of two consumers, one second apart, written as journals."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.now = directory, 0
        self.journals: dict[str, Journal] = {}

    def deliver(
        self, consumer: str, delivery_id: int, queue_offset: int, *, key: str = "", group: str = "g",
        topic: str = "orders", business_key: str = "",
    ) -> None:  # fmt: skip
        event = Deliver(
            pq_id=1, group=group, topic=topic, broker_name="broker-a", queue_id=0, client_id=consumer,
            delivery_ids=[delivery_id], queue_offsets=[queue_offset], log_offsets=[0],
            unique_keys=[key or f"key-{queue_offset}"], business_keys=[business_key] if business_key else [],
        )  # fmt: skip
        self.journal(consumer).write(event)

    def result(self, consumer: str, delivery_id: int, status: str) -> None:
        event = Result(
            pq_id=1, group="g", topic="orders", broker_name="broker-a", queue_id=0, delivery_ids=[delivery_id],
            queue_offsets=[0], status=status, mem_off=0,
        )  # fmt: skip
        self.journal(consumer).write(event)

    def change(self, consumer: str, queue_offset: int, how: str) -> None:
        """The broker's line of a message that ``consumer`` had popped."""
        event = Change(
            broker_name="broker-a", group="g", topic="orders", queue_id=0, client_id=consumer, client_boot_id=consumer,
            request_seq=7, queue_offset=queue_offset, pop_time=1, new_pop_time=2, invisible_ms=0, how=how,
        )  # fmt: skip
        self.journal("broker-a").write(event)

    def journal(self, consumer: str) -> Journal:
        if consumer not in self.journals:
            opened = open_journal(self.directory, role="consumer", process=consumer, boot_id=consumer, level="forensic")
            self.journals[consumer] = opened
        return self.journals[consumer]

    def found(self) -> list[tuple[str, str, int]]:
        for journal in self.journals.values():
            journal.close()
        return [(d.identity, d.message_id, d.second.delivery_id) for d in find_duplicates(self.directory, "g")]


def test_different_messages_are_no_duplicates(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0)
    history.deliver("two", 1, 1)
    assert history.found() == []


def test_the_same_record_delivered_twice_is_one_duplicate(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0)
    history.deliver("two", 7, 0)
    assert history.found() == [("I1", "key-0", 7)]


def test_each_further_delivery_is_a_duplicate_of_the_one_before(tmp_path: Path) -> None:
    history = History(tmp_path)
    for delivery_id in (1, 2, 3):
        history.deliver("one", delivery_id, 0)
    assert history.found() == [("I1", "key-0", 2), ("I1", "key-0", 3)]


def test_a_message_stored_twice_is_found_by_its_id(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0, key="key")
    history.deliver("one", 2, 1, key="key")
    assert history.found() == [("I2", "key", 2)]


def test_the_same_business_sent_twice_is_found_by_its_key(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0, business_key="order-17")
    history.deliver("one", 2, 1, business_key="order-17")
    assert history.found() == [("I3", "key-1", 2)]


def test_a_retry_that_was_asked_for_is_no_duplicate(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0, key="key")
    history.result("one", 1, "reconsume")
    history.deliver("one", 2, 5, key="key", topic="%RETRY%g")
    assert history.found() == []


def test_a_popped_message_that_its_consumer_gave_back_is_no_duplicate(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0, key="key")
    history.change("one", 0, "visible")
    history.deliver("two", 1, 5, key="key", topic="%RETRY%g_orders")
    assert history.found() == []


@pytest.mark.parametrize(("who", "how"), [("one", "renewed"), ("three", "visible")])
def test_a_popped_message_is_a_duplicate_unless_the_consumer_that_had_it_gave_it_back(
    tmp_path: Path, who: str, how: str
) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0, key="key")
    history.change(who, 0, how)
    history.deliver("two", 1, 5, key="key", topic="%RETRY%g_orders")
    assert history.found() == [("I2", "key", 1)]


@pytest.mark.parametrize("status", ["suspend", "rollback", "uncommitted", "exception"])
def test_what_an_ordered_handler_did_not_finish_may_come_again(tmp_path: Path, status: str) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0)
    history.result("one", 1, status)
    history.deliver("one", 2, 0)
    assert history.found() == []


def test_a_repetition_after_success_is_a_duplicate(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0)
    history.result("one", 1, "success")
    history.deliver("two", 1, 0)
    assert history.found() == [("I1", "key-0", 1)]


def test_other_groups_are_others_business(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0)
    history.deliver("one", 2, 0, group="h")
    assert history.found() == []


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.deliver("one", 1, 0)
    history.deliver("one", 2, 0)
    history.journal("one").close()
    (journal,) = tmp_path.iterdir()
    journal.write_bytes(journal.read_bytes()[:-10])
    assert history.found() == []


def test_an_empty_directory_holds_no_duplicates(tmp_path: Path) -> None:
    assert find_duplicates(tmp_path, "g") == []
