"""What strangers invent may not stay in memory, nor lie to consumers, nor break arithmetic."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_parts import parts_in
from broker_wire import a_run
from dejamq_broker.deferred.retry import GivenBack
from dejamq_broker.doors.v1.values import group_of, queue_at
from dejamq_broker.filters import tags
from dejamq_broker.members import handover, locks
from dejamq_broker.members.handover import ClaimTable, QueueWish
from dejamq_broker.members.locks import LockTable, QueueAt
from dejamq_broker.tables.offsets import Asker
from dejamq_proto.codes import Code, InvalidName
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.records import record
from dejamq_proto.records.record import java_hash
from dejamq_proto.wire import messages
from dejamq_proto.wire.messages import SendRun

MANY = 5


def queues(count: int) -> list[QueueAt]:
    return [QueueAt("t", number) for number in range(count)]


def test_hashes_of_long_texts_are_right_and_not_remembered() -> None:
    text = "x" * 300
    kept = record._kept_hash.cache_info().currsize
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == value
    assert record._kept_hash.cache_info().currsize == kept


def test_long_tag_expressions_are_read_and_not_remembered() -> None:
    kept = tags._kept.cache_info().currsize
    expression = " || ".join(f"t{number}" for number in range(1000))
    found = tags.tags_of(expression)
    assert found is not None
    assert len(found) == 1000
    assert tags._kept.cache_info().currsize == kept


def test_queues_with_long_topics_are_read_and_not_remembered() -> None:
    run = a_run("t", [b"x"])
    run.queues = [("x" * 5000, 1)]
    kept = messages._queue_key.cache_info().currsize
    assert SendRun.decode(run.encode()).queues == run.queues
    assert messages._queue_key.cache_info().currsize == kept


@pytest.mark.parametrize("codes", [[7], [0]])
def test_a_run_whose_tags_codes_are_not_those_of_its_tags_is_refused(tmp_path: Path, codes: list[int]) -> None:
    with parts_in(tmp_path) as parts:
        run = a_run("t", [b"a"], tags="paid")
        run.tags_codes = np.array(codes, "<i4")
        result = parts.outcome(run).result
        assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 0)
        assert "tags code is not that of its TAGS" in result.remark
        assert parts.store.log_max == 0


def test_of_many_records_the_one_with_a_foreign_tags_code_is_named(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        run = a_run("t", [b"a", b"b", b"c"], tags="paid")
        run.tags_codes = run.tags_codes + np.array([0, 1, 0], "<i4")
        assert parts.outcome(run).result.bad_record == 1
        assert parts.send("t", b"a", b"b", tags="paid").code == 0


def test_a_tag_that_is_announced_for_records_without_one_is_refused(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        run = a_run("t", [b"a"])
        run.tags_codes = np.array([97], "<i4")
        assert parts.outcome(run).result.code == Code.MESSAGE_ILLEGAL


def test_a_topic_is_made_with_queues_whatever_number_the_client_wants(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        for number, wanted in enumerate((-1, -(1 << 31), 0)):
            assert parts.send(f"t-{number}", b"x", default_queue_nums=wanted).code == 0
            assert parts.topics.require(f"t-{number}").write_queue_nums == 4


def test_a_record_that_counts_all_the_tries_it_can_is_given_back_once_more(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        parts.groups.require("g")
        parts.send("t", b"x", reconsume_times=(1 << 31) - 1)
        parts.retries.send_back(GivenBack(group="g", log_offset=0))
        (dead,) = parts.everywhere("%DLQ%g")
        assert dead.reconsume_times == (1 << 31) - 1


@pytest.mark.parametrize("key", [QueueKey(topic="a b"), QueueKey(topic="x" * 300), QueueKey(topic="t", queue_id=-1)])
def test_a_queue_that_cannot_be_is_refused(key: Any) -> None:
    with pytest.raises(InvalidName):
        queue_at(key)


def test_a_group_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidName):
        group_of("g" * 300)


def test_locks_on_invented_queues_find_an_end_and_expired_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MOST", MANY)
    table = LockTable(1000)
    answers = table.lock("g", "stranger", queues(MANY + 1), 0)
    assert [answer.granted for answer in answers] == [True] * MANY + [False]
    assert table.lock("g", "stranger", queues(MANY), 500)[0].granted
    assert not table.lock("h", "honest", queues(1), 1000)[0].granted
    assert table.lock("h", "honest", queues(1), 1501)[0].granted
    assert table.all_expired("g", 1501)


def test_a_lock_given_back_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MOST", MANY)
    table = LockTable(1000)
    table.lock("g", "a", queues(MANY), 0)
    table.unlock("g", "a", queues(1), 0)
    assert table.lock("h", "b", queues(1), 0)[0].granted


def test_claims_on_invented_queues_find_an_end_and_expired_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "MOST", MANY)
    table = ClaimTable(1000)
    stranger, honest = Asker("c", "b", 1), Asker("d", "e", 1)
    answers = table.claim("g", stranger, [QueueWish(queue) for queue in queues(MANY + 1)], 0)
    assert [answer.granted for answer in answers] == [True] * MANY + [False]
    assert not table.release("h", honest, QueueWish(QueueAt("t", 0), 77), 0).granted
    assert table.claim("h", honest, [QueueWish(QueueAt("t", 0))], 1001)[0].granted
