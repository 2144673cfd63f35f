"""Transactions at the broker: what ends them, who is asked, and what consumers see."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.writing.record_writer import RecordOrigin
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.records.record import BadRecord, Record, decode, encode_properties
from lease import OVER, lease_ends
from transaction_parts import COMMIT, ROLLBACK, UNKNOWN, TransactionHouse, TransactionParts, refusal, sent_properties


@pytest.fixture
def house(tmp_path: Path) -> TransactionHouse:
    return TransactionHouse(tmp_path)


@pytest.fixture
def parts(house: TransactionHouse) -> Iterator[TransactionParts]:
    with house.open() as opened:
        yield opened


# --- half messages


def test_a_half_message_stands_in_the_half_queue_with_its_own_place_in_its_properties(parts: TransactionParts) -> None:
    half = parts.begin("k", TAGS="paid")
    assert (half.topic, half.queue_id, half.transaction_type) == (names.HALF_TOPIC, 0, 0)
    own = {"REAL_TOPIC": "orders", "REAL_QID": "3", "__transactionId__": "k", "TRAN_MSG": "true", "TAGS": "paid"}
    assert own.items() <= half.properties.items()
    assert parts.orders() == []


@pytest.mark.parametrize(
    ("more", "trouble"),
    [
        ({"DELAY": "3"}, "delay"),
        ({"PGROUP": ""}, "PGROUP"),
        ({"UNIQ_KEY": ""}, "UNIQ_KEY"),
        ({"long": "x" * 32_600}, "no room"),
    ],
)
def test_what_could_never_be_ended_is_refused(parts: TransactionParts, more: dict[str, str], trouble: str) -> None:
    record = Record("orders", 0, b"x", sent_properties("k", **more))
    with pytest.raises(BadRecord, match=trouble):
        parts.halves.made_of(record)


@pytest.mark.parametrize(
    "record",
    [
        Record("orders", 0, b"x"),
        Record("orders", 0, b"x", encode_properties({"TRAN_MSG": "false"})),
        Record("%RETRY%g", 0, b"x", sent_properties("k", DELAY="3"), reconsume_times=1),
    ],
)
def test_no_transaction_begins_without_tran_msg_or_with_a_retry(parts: TransactionParts, record: Record) -> None:
    assert parts.halves.made_of(record) is None


def test_a_broker_may_refuse_transactions(house: TransactionHouse) -> None:
    with (
        house.open(reject_transaction_message=True) as parts,
        pytest.raises(PermissionDenied, match="reject_transaction_message"),
    ):
        parts.begin()


# --- ends


def test_a_commit_stores_the_message_where_it_belongs_and_then_marks_its_half(parts: TransactionParts) -> None:
    half = parts.begin("k")
    parts.end(half)
    (final,) = parts.records("orders", 3)
    assert (final.body, final.transaction_type) == (b"k", COMMIT)
    assert final.prepared_transaction_offset == half.log_offset
    assert final.born_timestamp_ms == half.born_timestamp_ms
    assert {"REAL_TOPIC", "REAL_QID", "TRAN_MSG"} <= final.properties.keys()  # as RocketMQ leaves them
    parts.transactions.ops.write()
    (op,) = parts.records(names.OP_TOPIC)
    assert (op.body, op.properties["TAGS"]) == (b"0,", "d")
    (told,) = parts.events("END_TRANSACTION")
    assert (told["outcome"], told["half_log_offset"]) == ("committed", half.log_offset)


def test_a_rollback_leaves_a_mark_and_nothing_else(parts: TransactionParts) -> None:
    parts.end(parts.begin(), ROLLBACK)
    parts.transactions.ops.write()
    assert parts.orders() == []
    assert [op.body for op in parts.records(names.OP_TOPIC)] == [b"0,"]


def test_what_is_not_known_yet_changes_nothing(parts: TransactionParts) -> None:
    parts.end(parts.begin(), UNKNOWN)
    parts.transactions.ops.write()
    assert (parts.orders(), parts.records(names.OP_TOPIC)) == ([], [])
    assert [told["outcome"] for told in parts.events("END_TRANSACTION")] == ["unknown"]


@pytest.mark.parametrize("wrong", [{"group": "h"}, {"half_queue_offset": 1}, {"half_log_offset": 1}, {"state": 4}])
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_an_end_that_names_no_half_message_of_its_group_is_refused(
    parts: TransactionParts, wrong: dict[str, Any], state: int
) -> None:
    half = parts.begin()
    error = refusal(parts, half, **({"state": state} | wrong))
    assert (error.code, error.definite) == (Code.SYSTEM_ERROR, True)
    parts.transactions.ops.write()
    assert (parts.orders(), parts.records(names.OP_TOPIC)) == ([], [])
    assert [told["outcome"] for told in parts.events("END_TRANSACTION")] == ["refused"]


def test_a_committed_record_is_no_half_message(parts: TransactionParts) -> None:
    parts.end(parts.begin())
    (final,) = parts.records("orders", 3)
    assert refusal(parts, final).code == Code.SYSTEM_ERROR
    assert parts.orders() == ["k"]


async def test_a_commit_to_a_topic_that_is_no_more_is_refused_until_it_is_given_up(house: TransactionHouse) -> None:
    with house.open(transaction_check_max=1) as parts:
        half = parts.begin("k")
        parts.topics._topics.pop("orders")
        assert refusal(parts, half).code == Code.TOPIC_NOT_EXIST
        for _ in range(2):
            await parts.round()
        assert [kept.body for kept in parts.records(names.GIVEN_UP_TOPIC)] == [b"k"]
        assert parts.orders() == []


async def test_a_damaged_record_keeps_no_round_from_what_is_behind_it(
    parts: TransactionParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.producer()
    for key in ("one", "two", "three"):
        parts.begin(key)

    def damaged(data: bytes, at: int, **more: Any) -> Record:
        record = decode(data, at, **more)
        if record.body == b"two":
            raise BadRecord("damaged")
        return record

    monkeypatch.setattr("dejamq_broker.deferred.transactions.queues.decode", damaged)
    await parts.round()
    assert [decode(command.record).body for _, command in parts.asked] == [b"one", b"three"]


def test_a_closing_broker_refuses_ends(parts: TransactionParts) -> None:
    half = parts.begin()
    parts.transactions.close()
    assert refusal(parts, half).code == Code.SERVICE_NOT_AVAILABLE


def test_an_own_word_after_the_immunity_time_is_refused_and_the_answer_to_a_check_is_not(
    parts: TransactionParts,
) -> None:
    half = parts.begin(CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    parts.clock.move(21)
    assert refusal(parts, half).code == Code.ILLEGAL_OPERATION
    assert parts.orders() == []
    parts.end(half, from_check=True)
    assert parts.orders() == ["k"]


# --- marks


def test_marks_are_gathered_until_they_fill_an_op_message(house: TransactionHouse) -> None:
    with house.open(transaction_op_msg_max_size=6) as parts:
        for number in range(4):
            parts.end(parts.begin(f"k{number}"))
        assert [op.body for op in parts.records(names.OP_TOPIC)] == [b"0,1,2,3,"]


def test_the_journal_tells_which_half_messages_a_mark_ends(parts: TransactionParts) -> None:
    parts.end(parts.begin())
    parts.transactions.ops.write()
    (flush,) = parts.events("PROGRESS_FLUSH")
    assert flush["service"] == "transaction_op"
    assert '"half_offsets": [0]' in flush["progress"]


# --- rounds


async def test_what_has_not_ended_is_asked_of_a_producer_of_its_group(parts: TransactionParts) -> None:
    parts.producer("stranger", "h")
    parts.producer("p1")
    half = parts.begin("k")
    await parts.round()
    ((client_id, command),) = parts.asked
    again = parts.records(names.HALF_TOPIC)[1]
    assert client_id == "p1"
    assert (command.half_queue_offset, command.half_log_offset) == (1, again.log_offset)
    shown = decode(command.record)
    assert (shown.topic, shown.queue_id, shown.body) == ("orders", 3, b"k")
    assert again.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert again.born_timestamp_ms == half.born_timestamp_ms
    parts.answer()
    assert parts.orders() == ["k"]
    await parts.round()
    assert len(parts.asked) == 1


async def test_producers_of_a_group_are_asked_in_turn_and_one_that_went_is_passed_over(parts: TransactionParts) -> None:
    channels = [parts.producer(name) for name in ("p1", "p2", "p3")]
    parts.begin()
    for _ in range(3):
        await parts.round()
    assert {client_id for client_id, _ in parts.asked} == {"p1", "p2", "p3"}
    parts.clients.close(channels[0])
    parts.clients.close(channels[1])
    await parts.round()
    assert parts.asked[-1][0] == "p3"


async def test_without_a_producer_of_the_group_the_next_round_tries_again(parts: TransactionParts) -> None:
    parts.begin()
    await parts.round()
    assert [told["check_times"] for told in parts.events("CHECK_TRANSACTION")] == [1]
    assert not parts.events("CHECK_TRANSACTION")[0].get("client_id")
    parts.producer()
    await parts.round()
    assert parts.asked[0][1].check_times == 2


async def test_nobody_is_asked_within_the_time_out_and_the_round_ends_there(parts: TransactionParts) -> None:
    parts.producer()
    parts.begin("young")
    await parts.round(after_seconds=5.9)
    assert parts.asked == []
    await parts.round(after_seconds=0.2)
    assert len(parts.asked) == 1


async def test_a_message_from_the_future_is_asked_about_at_once(parts: TransactionParts) -> None:
    parts.producer()
    record = Record("orders", 3, b"x", sent_properties("k"), born_timestamp_ms=parts.clock.now_ms + 60_000)
    half = parts.halves.made_of(record)
    assert half is not None
    parts.halves.put(half, RecordOrigin("client"))
    await parts.round(after_seconds=1)
    assert len(parts.asked) == 1


async def test_after_fifteen_checks_the_message_is_given_up_and_kept_for_people(parts: TransactionParts) -> None:
    parts.producer()
    parts.begin("k")
    for _ in range(17):
        await parts.round()
    assert [command.check_times for _, command in parts.asked] == list(range(1, 16))
    (kept,) = parts.records(names.GIVEN_UP_TOPIC)
    assert (kept.body, kept.properties["TRANSACTION_CHECK_TIMES"]) == (b"k", "15")
    assert len(parts.records(names.HALF_TOPIC)) == 16


async def test_a_message_older_than_the_log_keeps_any_is_given_up_without_a_question(parts: TransactionParts) -> None:
    parts.producer()
    parts.begin("k")
    await parts.round(after_seconds=72 * 3600 + 1)
    assert (parts.asked, [kept.body for kept in parts.records(names.GIVEN_UP_TOPIC)]) == ([], [b"k"])


async def test_an_immune_message_is_put_back_unasked_and_its_first_place_still_ends_it(parts: TransactionParts) -> None:
    parts.producer()
    half = parts.begin("k", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    await parts.round()
    await parts.round()
    assert [each.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for each in parts.records(names.HALF_TOPIC)] == [
        None, "0", "0",
    ]  # fmt: skip
    parts.end(half)
    for _ in range(4):
        await parts.round()
    assert (parts.asked, parts.orders()) == ([], ["k"])
    assert len(parts.records(names.HALF_TOPIC)) == 3


async def test_an_immune_message_is_asked_about_when_its_time_is_over(parts: TransactionParts) -> None:
    parts.producer()
    parts.begin("k", CHECK_IMMUNITY_TIME_IN_SECONDS="45")
    await parts.round()
    assert parts.asked == []
    await parts.round()
    assert len(parts.asked) == 1


async def test_a_round_that_takes_too_long_is_continued_by_the_next(house: TransactionHouse) -> None:
    with house.open(transaction_round_max_ms=1) as parts:
        parts.producer()
        for number in range(3):
            parts.begin(f"k{number}")
        parts.clock.move(30)
        ask = parts.rounds._ask

        def slow(half: Record, times: int) -> None:
            ask(half, times)
            parts.clock.move(1)

        parts.rounds._ask = slow  # type: ignore[method-assign]
        for _ in range(3):
            await parts.rounds.step()
        assert [decode(command.record).body for _, command in parts.asked] == [b"k0", b"k1", b"k2"]


async def test_a_broker_without_transactions_keeps_no_offsets_of_theirs(parts: TransactionParts) -> None:
    await parts.round()
    assert len(parts.offsets) == 0


async def test_rounds_remember_how_far_they_came_in_both_queues(house: TransactionHouse) -> None:
    with house.open() as parts:
        for number in range(40):
            parts.end(parts.begin(f"k{number}"))
        await parts.round()
        table = {topic: offset for topic, _, offset in parts.offsets.of_group(names.TRANSACTION_GROUP)}
        assert table == {names.HALF_TOPIC: 40, names.OP_TOPIC: 1}
        await parts.offsets.flush()
    with house.open() as parts:
        parts.producer()
        await parts.round()
        assert parts.asked == []


# --- ends by the transaction's id alone


async def test_a_producer_that_knows_no_place_ends_its_transaction_once(parts: TransactionParts) -> None:
    parts.begin("k")
    await parts.round()  # stored anew: the newest place counts
    parts.transactions.end_by_key("g", "orders", "k", COMMIT, Asker(), from_check=True)
    assert parts.orders() == ["k"]
    for key in ("k", "never"):
        with pytest.raises(DejamqError, match="waits for its end"):
            parts.transactions.end_by_key("g", "orders", key, COMMIT, Asker(), from_check=False)


def test_ids_of_an_earlier_start_are_known_and_those_that_ended_since_are_not(house: TransactionHouse) -> None:
    """Though the marks of those are not stored yet."""
    with house.open() as first:
        for key in ("kept", "ended", "marked"):
            half = first.begin(key)
        first.end(half)
        first.transactions.ops.write()
        kept = {key: first.records(names.HALF_TOPIC)[number] for number, key in enumerate(("kept", "ended"))}
    with house.open() as second:
        second.end(kept["ended"])
        second.begin("new")
        second.transactions.end_by_key("g", "orders", "new", ROLLBACK, Asker(), from_check=False)
        for key in ("ended", "marked", "new"):
            with pytest.raises(DejamqError, match="waits for its end"):
                second.transactions.end_by_key("g", "orders", key, COMMIT, Asker(), from_check=False)
        second.transactions.end_by_key("g", "orders", "kept", COMMIT, Asker(), from_check=False)
        assert sorted(second.orders()) == ["ended", "kept", "marked"]


@pytest.mark.parametrize(("state", "stored"), [(COMMIT, ["k"]), (ROLLBACK, [])])
def test_an_end_after_which_the_lease_is_over_is_not_called_done(
    parts: TransactionParts, monkeypatch: pytest.MonkeyPatch, state: int, stored: list[str]
) -> None:  # fmt: skip
    half = parts.begin("k")
    lease_ends(parts.writer, monkeypatch)
    error = refusal(parts, half, state=state)
    assert (str(error), error.definite) == (OVER, False)
    assert parts.orders() == stored
