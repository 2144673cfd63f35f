"""What clients meet when messages expire and when the disk is full."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_tables import clients_of
from broker_wire import SMALL
from dejamq_broker.base.identity import Site
from dejamq_broker.operators.queries import Inspector
from dejamq_broker.paths.rules import PullQuery
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, error_for
from dejamq_proto.records.record import decode
from dejamq_proto.wire.messages import PullAnswer

STORE = dataclasses.replace(
    SMALL, mapped_file_size_commit_log=65_536, disk_check_enable=True, delete_commit_log_files_interval_ms=1
)
BIG = b"x" * 20_000
PER_FILE = 3
"""Messages of BIG in a log file."""


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path, store=STORE) as made:
        made.topics.update(TopicConfig("orders", 1, 1))
        yield made


def asked(parts: Parts, queue_offset: int, *, suspend_ms: int = 0, max_messages: int = 0) -> PullQuery:
    request = PullQuery(
        asker=Asker("me", "boot", 1), group="g", topic="orders", queue_id=0, queue_offset=queue_offset,
        suspend_ms=suspend_ms, max_messages=max_messages,
    )  # fmt: skip
    parts.puller.begin(request, 0, None)
    return request


def answer_to(parts: Parts, queue_offset: int, *, max_messages: int = 0) -> PullAnswer:
    parts.settle()
    answer = parts.puller.look(asked(parts, queue_offset, max_messages=max_messages), first=True, last=False)
    assert answer is not None
    return answer


def expire(parts: Parts) -> int:
    """Let the disk be so full that all files go but the last, and tell the first offset that is left."""
    parts.settle()
    store = parts.store
    store.inspect().retention.safe_end = lambda: store.log_max
    at_use(parts, 88)
    store.inspect().retention.clean(0)
    return store.min_offset("orders", 0)


def at_use(parts: Parts, percent: int) -> None:
    parts.store.inspect().disk.used_percent = lambda folder: percent
    parts.store.inspect().disk.look()


def test_an_expired_offset_is_corrected_to_the_first_message_that_is_left(parts: Parts) -> None:
    parts.send("orders", *[BIG] * 7)
    assert expire(parts) == 2 * PER_FILE
    answer = answer_to(parts, 1)
    assert (answer.code, answer.remark) == (Code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
    assert (answer.next_offset, answer.min_offset, answer.max_offset) == (6, 6, 7)
    again = answer_to(parts, answer.next_offset)
    assert (again.code, decode(again.records[0]).queue_offset) == (Code.SUCCESS, 6)


def test_messages_that_are_just_going_are_passed_over_and_the_next_pull_is_corrected(parts: Parts) -> None:
    """RocketMQ: MESSAGE_WAS_REMOVING is answered with PULL_RETRY_IMMEDIATELY."""
    parts.send("orders", *[BIG] * 7)
    parts.settle()
    parts.store.inspect().log.files.remove_first()
    removing = answer_to(parts, 0, max_messages=2)
    assert (removing.code, removing.remark, removing.next_offset) == (
        Code.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING", 2,
    )  # fmt: skip
    some_left = answer_to(parts, 2, max_messages=2)
    assert (some_left.code, decode(some_left.records[0]).queue_offset) == (Code.SUCCESS, PER_FILE)
    expire(parts)
    corrected = answer_to(parts, 2)
    assert (corrected.code, corrected.next_offset) == (Code.PULL_OFFSET_MOVED, 6)


def test_a_held_pull_whose_messages_expire_is_corrected_when_it_is_looked_at_again(parts: Parts) -> None:
    parts.send("orders", *[BIG] * 2)
    parts.settle()
    held = asked(parts, 2, suspend_ms=1000)
    assert parts.puller.look(held, first=True, last=False) is None
    parts.send("orders", *[BIG] * 5)
    assert expire(parts) == 6
    answer = parts.puller.look(held, first=False, last=False)
    assert answer is not None
    assert (answer.code, answer.next_offset) == (Code.PULL_OFFSET_MOVED, 6)


@pytest.mark.parametrize(("to_zero", "corrected"), [(False, 2), (True, 0)])
def test_an_offset_beyond_the_end_goes_to_the_end_or_as_in_rocketmq_4_to_zero(
    tmp_path: Path, to_zero: bool, corrected: int
) -> None:
    with parts_in(tmp_path, store=dataclasses.replace(STORE, overflow_to_zero=to_zero)) as parts:
        parts.topics.update(TopicConfig("orders", 1, 1))
        parts.send("orders", b"a", b"b")
        answer = answer_to(parts, 10)
        assert (answer.code, answer.remark, answer.next_offset) == (
            Code.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", corrected,
        )  # fmt: skip


def test_an_offset_beyond_the_end_of_a_queue_that_begins_later_goes_to_the_end_in_rocketmq_4_too(
    tmp_path: Path,
) -> None:
    with parts_in(tmp_path, store=dataclasses.replace(STORE, overflow_to_zero=True)) as parts:
        parts.topics.update(TopicConfig("orders", 1, 1))
        parts.send("orders", *[BIG] * 7)
        expire(parts)
        assert answer_to(parts, 10).next_offset == 7


def test_a_broker_tells_how_full_its_disks_are(parts: Parts) -> None:
    """RocketMQ's runtime information has them under these names."""
    clients = clients_of(parts.topics, parts.groups, parts.journal, clock_ms)
    site = Site(cluster="c", broker_name="broker-a", broker_id=0, boot_id="b0", address="10.0.0.1:10911")
    inspector = Inspector(parts.store, parts.offsets, clients, site, clock_ms, measured=dict, replication=dict)
    parts.send("orders", b"a")
    at_use(parts, 42)
    told = inspector.runtime()
    assert (told["commitLogDiskRatio"], told["consumeQueueDiskRatio"]) == ("0.42", "0.42")


def test_a_full_disk_refuses_a_run_says_why_and_pulls_go_on(parts: Parts) -> None:
    parts.send("orders", b"a")
    at_use(parts, 91)
    refused = parts.send("orders", b"b")
    assert refused.code == Code.SERVICE_NOT_AVAILABLE
    assert "91 % full" in refused.remark
    assert "make room" in refused.remark
    error = error_for(refused.code, refused.remark)
    assert (error.retriable, error.definite) == (True, True)
    assert answer_to(parts, 0).code == Code.SUCCESS
    at_use(parts, 90)
    assert parts.send("orders", b"b").code == Code.SUCCESS
