"""Messages given back: where the next try goes, when dead letters get it, and what stays in the record."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from broker_parts import Parts, parts_in
from dejamq_broker.deferred.retry import GivenBack
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, DejamqError, InvalidName, PermissionDenied
from dejamq_proto.records.record import Record, decode, encode_properties

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as made:
        made.groups.require("g")
        made.topics.update(TopicConfig("orders", 1, 1))
        yield made


def given(parts: Parts, body: bytes = b"order", **more: object) -> GivenBack:
    """A message that was sent just now, as a consumer of ``g`` gives it back."""
    place = parts.send("orders", body, **{name: more.pop(name) for name in ("reconsume_times",) if name in more})
    return GivenBack(group="g", log_offset=int(place.span_log_offsets[0]), **more)  # type: ignore[arg-type]  # as named


def waiting(parts: Parts) -> list[tuple[int, Record]]:
    """Everything that waits for its delay, with its level."""
    return [(level, record) for level in range(1, 19) for record in parts.records(SCHEDULE, level - 1)]


def test_the_first_retry_waits_ten_seconds(parts: Parts) -> None:
    parts.retries.send_back(given(parts))
    ((level, record),) = waiting(parts)
    assert level == 3
    assert record.properties["REAL_TOPIC"] == "%RETRY%g"


def stored_record(parts: Parts, given_back: GivenBack) -> Record:
    raw = parts.store.record_at(given_back.log_offset)
    assert raw is not None
    return decode(raw)


@pytest.mark.parametrize("tries", [1, 2, 10])
def test_each_further_retry_waits_one_level_longer(parts: Parts, tries: int) -> None:
    original = given(parts)
    record = stored_record(parts, original)
    stored = parts.store.put(msgspec.structs.replace(record, reconsume_times=tries))
    again = msgspec.structs.replace(original, log_offset=int(stored.log_offsets[0]))
    parts.retries.send_back(again)
    ((level, _),) = waiting(parts)
    assert level == 3 + tries


@pytest.mark.parametrize("level", [1, 5, 18])
def test_a_level_that_the_handler_chose_is_taken(parts: Parts, level: int) -> None:
    parts.retries.send_back(given(parts, delay_level=level))
    assert [found for found, _ in waiting(parts)] == [level]


EXPONENTIAL = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7_200_000, "multiplier": 2}}


@pytest.mark.parametrize(("tries", "level"), [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (15, 18)])
def test_an_exponential_policy_of_the_group_takes_the_level_that_waits_long_enough(
    parts: Parts, tries: int, level: int
) -> None:
    parts.groups.update("g", group_retry_policy=EXPONENTIAL)
    original = stored_record(parts, given(parts))
    stored = parts.store.put(msgspec.structs.replace(original, reconsume_times=tries))
    parts.retries.send_back(GivenBack(group="g", log_offset=int(stored.log_offsets[0])))
    assert [found for found, _ in waiting(parts)] == [level]


def test_a_level_that_the_handler_chose_counts_before_the_groups_policy(parts: Parts) -> None:
    parts.groups.update("g", group_retry_policy=EXPONENTIAL)
    parts.retries.send_back(given(parts, delay_level=7))
    assert [found for found, _ in waiting(parts)] == [7]


def test_a_negative_level_makes_a_dead_letter_without_delay(parts: Parts) -> None:
    parts.retries.send_back(given(parts, delay_level=-1))
    assert waiting(parts) == []
    (letter,) = parts.records("%DLQ%g")
    assert letter.body == b"order"


@pytest.mark.parametrize(("tries", "dead"), [(15, False), (16, True), (17, True)])
def test_the_groups_limit_of_tries_ends_in_dead_letters(parts: Parts, tries: int, dead: bool) -> None:
    original = stored_record(parts, given(parts))
    stored = parts.store.put(msgspec.structs.replace(original, reconsume_times=tries))
    parts.retries.send_back(GivenBack(group="g", log_offset=int(stored.log_offsets[0])))
    assert bool(parts.everywhere("%DLQ%g")) is dead
    assert bool(waiting(parts)) is not dead


def test_dead_letters_lie_in_one_queue_that_may_be_read_and_written(parts: Parts) -> None:
    parts.groups.update("g", retry_queue_nums=4)
    parts.retries.send_back(given(parts, delay_level=-1))
    config = parts.topics.get("%DLQ%g")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_a_dead_letter_says_why_its_last_try_failed_and_a_retry_does_not(parts: Parts) -> None:
    parts.retries.send_back(given(parts, reason="ValueError: no stock"))
    parts.retries.send_back(given(parts, delay_level=-1, reason="no such\x01customer\x02" + "!" * 500))
    ((_, retry),) = waiting(parts)
    (letter,) = parts.records("%DLQ%g")
    assert "DEAD_LETTER_REASON" not in retry.properties
    assert letter.properties["DEAD_LETTER_REASON"] == "no such customer " + "!" * 183


def test_a_dead_letter_whose_properties_leave_no_room_goes_without_its_reason(parts: Parts) -> None:
    place = parts.send("orders", b"x", properties={"LONG": "x" * 30_000})
    parts.retries.send_back(
        GivenBack(group="g", log_offset=int(place.span_log_offsets[0]), delay_level=-1, reason="ValueError")
    )
    (letter,) = parts.records("%DLQ%g")
    assert "DEAD_LETTER_REASON" not in letter.properties


def test_a_retry_topic_that_may_not_be_written_refuses_dead_letters_too(parts: Parts) -> None:
    parts.topics.ensure("%RETRY%g", 1, perm=4)
    with pytest.raises(PermissionDenied):
        parts.retries.send_back(given(parts, delay_level=-1))


def test_the_consumers_own_limit_counts_before_the_groups(parts: Parts) -> None:
    original = stored_record(parts, given(parts))
    stored = parts.store.put(msgspec.structs.replace(original, reconsume_times=2))
    parts.retries.send_back(GivenBack(group="g", log_offset=int(stored.log_offsets[0]), max_reconsume_times=2))
    assert len(parts.everywhere("%DLQ%g")) == 1


def test_body_tag_and_unique_key_stay_and_the_tries_are_counted(parts: Parts) -> None:
    place = parts.send("orders", b"order", tags="paid")
    (original,) = parts.records("orders")
    parts.retries.send_back(GivenBack(group="g", log_offset=int(place.span_log_offsets[0])))
    ((_, again),) = waiting(parts)
    assert again.body == original.body
    assert again.properties["TAGS"] == "paid"
    assert again.properties["UNIQ_KEY"] == original.properties["UNIQ_KEY"]
    assert again.reconsume_times == 1


def test_a_retry_knows_its_first_topic_and_its_first_stored_copy(parts: Parts) -> None:
    back = given(parts)
    (original,) = parts.records("orders")
    parts.retries.send_back(back)
    ((_, again),) = waiting(parts)
    assert again.properties["RETRY_TOPIC"] == "orders"
    assert again.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert again.offset_message_id != original.offset_message_id


def test_a_first_try_whose_sender_named_another_retry_topic_comes_back_to_its_own(parts: Parts) -> None:
    claimed = {"RETRY_TOPIC": "elsewhere", "ORIGIN_MESSAGE_ID": "another"}
    place = parts.send("orders", b"order", properties=claimed)
    parts.retries.send_back(GivenBack(group="g", log_offset=int(place.span_log_offsets[0])))
    ((_, again),) = waiting(parts)
    (original,) = parts.records("orders")
    assert again.properties["RETRY_TOPIC"] == "orders"
    assert again.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id


def test_a_retry_of_a_retry_keeps_the_first_topic_and_the_first_copy(parts: Parts) -> None:
    parts.retries.send_back(given(parts))
    ((_, first),) = waiting(parts)
    parts.retries.send_back(GivenBack(group="g", log_offset=first.log_offset, delay_level=1))
    (second,) = (record for level, record in waiting(parts) if level == 1)
    assert second.reconsume_times == 2
    for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID"):
        assert second.properties[name] == first.properties[name]


def test_the_retry_topic_is_made_with_as_many_queues_as_the_group_wants(parts: Parts) -> None:
    parts.groups.update("g", retry_queue_nums=3)
    parts.retries.send_back(given(parts))
    config = parts.topics.get("%RETRY%g")
    assert config is not None
    assert config.write_queue_nums == 3


def test_a_group_without_retry_queues_has_its_failures_dropped_with_success(parts: Parts) -> None:
    parts.groups.update("g", retry_queue_nums=0)
    back = given(parts)
    before = parts.store.log_max
    parts.retries.send_back(back)
    assert parts.store.log_max == before


def test_a_group_nobody_knows_cannot_give_back(parts: Parts) -> None:
    back = msgspec.structs.replace(given(parts), group="strangers")
    with pytest.raises(DejamqError) as caught:
        parts.retries.send_back(back)
    assert caught.value.code is Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert parts.groups.get("strangers") is None


@pytest.mark.parametrize("log_offset", [1, 1 << 40, -5])
def test_what_is_no_beginning_of_a_record_cannot_be_given_back(parts: Parts, log_offset: int) -> None:
    back = msgspec.structs.replace(given(parts), log_offset=log_offset)
    with pytest.raises(DejamqError, match="no message begins") as caught:
        parts.retries.send_back(back)
    assert caught.value.code is Code.SYSTEM_ERROR
    assert caught.value.definite


def test_a_retry_topic_that_may_not_be_written_refuses_unlike_an_ordinary_send(parts: Parts) -> None:
    parts.topics.ensure("%RETRY%g", 1, perm=4)
    with pytest.raises(PermissionDenied):
        parts.retries.send_back(given(parts))


def test_a_broker_that_may_not_be_written_takes_nothing_back(tmp_path: Path) -> None:
    with parts_in(tmp_path, broker_permission=4) as parts:
        parts.groups.update("g", retry_queue_nums=0)
        back = given(parts)
        before = parts.store.log_max
        with pytest.raises(PermissionDenied, match="broker_permission"):
            parts.retries.send_back(back)
        assert parts.store.log_max == before


def test_the_journal_tells_whose_delivery_asked_for_the_retry(parts: Parts) -> None:
    asker = Asker("me", "boot-of-me", 9)
    parts.retries.send_back(given(parts, delivery_ref="boot-of-me:4", asker=asker))
    append = parts.events("APPEND")[-1]
    assert (append["origin"], append["origin_refs"]) == ("sendback", ["boot-of-me:4"])
    assert (append["client_id"], append["client_boot_id"], append["request_seq"]) == ("me", "boot-of-me", 9)
    assert append["group"] == "g"


def retry_record(times: int, **properties: str) -> Record:
    return Record(
        topic="%RETRY%g", queue_id=0, body=b"x", raw_properties=encode_properties(properties), reconsume_times=times
    )


@pytest.mark.parametrize(("times", "topic"), [(1, "%RETRY%g"), (16, "%RETRY%g"), (17, "%DLQ%g")])
def test_a_consumers_own_send_to_its_retry_topic_dies_only_beyond_the_limit(
    parts: Parts, times: int, topic: str
) -> None:
    assert parts.retries.redirect(retry_record(times)).topic == topic


def test_a_limit_in_the_record_counts_before_the_groups(parts: Parts) -> None:
    assert parts.retries.redirect(retry_record(3, MAX_RECONSUME_TIMES="2")).topic == "%DLQ%g"
    assert parts.retries.redirect(retry_record(3, MAX_RECONSUME_TIMES="3")).topic == "%RETRY%g"


@pytest.mark.parametrize("limit", ["few", "-1", "\u00b2", "9" * 5000], ids=["few", "-1", "square", "endless"])
def test_a_limit_that_is_no_number_is_passed_over(parts: Parts, limit: str) -> None:
    assert parts.retries.redirect(retry_record(16, MAX_RECONSUME_TIMES=limit)).topic == "%RETRY%g"
    assert parts.retries.redirect(retry_record(17, MAX_RECONSUME_TIMES=limit)).topic == "%DLQ%g"


def test_a_dead_letter_from_a_send_waits_for_no_delay(parts: Parts) -> None:
    letter = parts.retries.redirect(retry_record(99, DELAY="5"))
    assert letter.properties["DELAY"] == "-1"


def test_a_record_of_an_ordinary_topic_is_not_redirected(parts: Parts) -> None:
    plain = msgspec.structs.replace(retry_record(99), topic="orders")
    assert parts.retries.redirect(plain) is plain


def test_a_first_send_to_a_retry_topic_is_left_alone_even_for_an_unknown_group(parts: Parts) -> None:
    record = msgspec.structs.replace(retry_record(0), topic="%RETRY%nobody")
    assert parts.retries.redirect(record) is record


def test_a_group_with_a_reserved_name_is_refused_at_its_first_use(parts: Parts) -> None:
    with pytest.raises(InvalidName, match="reserved"):
        parts.groups.require("DEFAULT_CONSUMER")
