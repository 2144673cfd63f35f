"""What a slave answers to pulls, and when a master sends a consumer to its slave."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from broker_parts import Parts, parts_in
from broker_pulls import answered, asked, bodies, pull
from broker_wire import SMALL
from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, DejamqError


def a_site(broker_id: int) -> Site:
    return Site(cluster="c", broker_name="broker-a", broker_id=broker_id, boot_id="b0", address="127.0.0.1:10911")


@contextmanager
def a_slave(directory: Path, **settings: bool) -> Iterator[Parts]:
    """Its queue 0 of ``orders`` has three messages, its master is away."""
    with parts_in(directory, **settings) as parts:
        parts.topics.update(TopicConfig("orders", 2, 2))
        parts.send("orders", b"a", b"b", b"c")
        parts.puller = parts.a_puller(a_site(1), Counts())
        yield parts


def test_what_a_slave_gives_stays_as_it_was_when_its_log_is_cut_back(tmp_path: Path) -> None:
    with a_slave(tmp_path) as parts:
        answer = answered(parts, pull(0))
        assert bodies(answer) == [b"a", b"b", b"c"]
        assert all(isinstance(piece, bytes) for piece in answer.records)


def test_a_slave_gives_what_it_has_and_says_to_go_on_at_the_master(tmp_path: Path) -> None:
    with a_slave(tmp_path) as parts:
        answer = answered(parts, pull(1))
        assert (answer.code, bodies(answer), answer.suggest_broker_id) == (Code.SUCCESS, [b"b", b"c"], 0)


@pytest.mark.parametrize("offset", [3, 9])
def test_a_slave_without_its_master_lets_wait_and_corrects_no_offset(tmp_path: Path, offset: int) -> None:
    with a_slave(tmp_path) as parts:
        assert asked(parts, pull(offset, suspend_ms=1000)) is None
        last = asked(parts, pull(offset, suspend_ms=1000), last=True)
        assert last is not None
        assert (last.code, last.next_offset) == (Code.PULL_NOT_FOUND, offset)


@pytest.mark.parametrize("offset", [3, 9])
def test_a_slave_that_found_nothing_sends_to_its_master_when_that_is_there(tmp_path: Path, offset: int) -> None:
    with a_slave(tmp_path) as parts:
        parts.puller = parts.a_puller(a_site(1), Counts(), master_there=True)
        answer = answered(parts, pull(offset, suspend_ms=1000))
        assert (answer.code, answer.next_offset, answer.suggest_broker_id) == (Code.PULL_RETRY_IMMEDIATELY, offset, 0)


def test_a_slave_corrects_offsets_when_it_is_told_to(tmp_path: Path) -> None:
    with a_slave(tmp_path, offset_check_in_slave=True) as parts:
        answer = answered(parts, pull(9))
        assert (answer.code, answer.next_offset) == (Code.PULL_OFFSET_MOVED, 3)


def test_a_slave_that_may_not_be_read_refuses(tmp_path: Path) -> None:
    with a_slave(tmp_path, slave_read_enable=False) as parts:
        with pytest.raises(DejamqError, match="may not be read") as refused:
            asked(parts, pull(0))
        assert refused.value.code == Code.SYSTEM_BUSY


@pytest.mark.parametrize(("ratio", "allowed", "broker_id"), [(40, True, 0), (0, True, 1), (0, False, 0)])
def test_a_master_sends_who_is_far_behind_to_its_slave(
    tmp_path: Path, ratio: int, allowed: bool, broker_id: int
) -> None:
    store = replace(SMALL, access_message_in_memory_max_ratio=ratio)
    with parts_in(tmp_path, store=store, slave_read_enable=allowed) as parts:
        parts.topics.update(TopicConfig("orders", 2, 2))
        parts.send("orders", b"a", b"b", b"c")
        assert answered(parts, pull(0, max_messages=1)).suggest_broker_id == broker_id


def test_the_group_says_which_replica_slow_and_other_members_read(tmp_path: Path) -> None:
    store = replace(SMALL, access_message_in_memory_max_ratio=0)
    with parts_in(tmp_path, store=store) as parts:
        parts.topics.update(TopicConfig("orders", 2, 2))
        parts.groups.update("g", which_broker_when_consume_slowly=2)
        parts.send("orders", b"a", b"b")
        assert answered(parts, pull(0)).suggest_broker_id == 2
