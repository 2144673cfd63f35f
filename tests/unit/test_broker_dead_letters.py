"""Dead letters sent again: where they go, what they still know, and that it is done once."""

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_wire import SMALL
from dejamq_broker.deferred.dead_letters import DeadLetters, Replayed, ReplayWish
from dejamq_broker.deferred.retry import GivenBack
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.records.record import Record, encode_properties
from lease import OVER, lease_ends


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as made:
        made.groups.require("g")
        made.topics.update(TopicConfig("orders", 4, 4))
        yield made


def die(parts: Parts, body: bytes = b"order", **properties: str) -> Record:
    """A message that the group gave up."""
    place = parts.send("orders", body, queue_id=2, properties={"KEYS": "order-17"} | properties)
    back = GivenBack(group="g", log_offset=int(place.span_log_offsets[0]), delay_level=-1, reason="ValueError: why")
    parts.retries.send_back(back)
    return parts.records("%DLQ%g")[-1]


def office(parts: Parts, *, writable: bool = True, sync_flush: bool = False) -> DeadLetters:
    return DeadLetters(
        parts.store, parts.writer, parts.topics, parts.groups, writable=lambda: writable, sync_flush=sync_flush
    )


async def until_later_than(time_ms: int) -> None:
    while clock_ms() <= time_ms:
        await asyncio.sleep(0)


async def replay(parts: Parts, letter: Record, **wish: Any) -> Replayed:
    return await office(parts).replay(ReplayWish(group="g", log_offset=letter.log_offset, **wish))


async def test_a_replay_goes_to_the_group_alone_as_a_message_without_tries(parts: Parts) -> None:
    letter = die(parts)
    done = await replay(parts, letter)
    (again,) = parts.records("%RETRY%g")
    assert (done.topic, done.earlier_ms, done.stored is not None) == ("%RETRY%g", 0, True)
    assert (again.body, again.reconsume_times, again.born_timestamp_ms) == (b"order", 0, letter.born_timestamp_ms)
    assert again.properties == {
        "UNIQ_KEY": letter.properties["UNIQ_KEY"], "KEYS": "order-17", "RETRY_TOPIC": "orders", "WAIT": "false",
        "REPLAY_OF": letter.offset_message_id, "REPLAYED_FROM": "%DLQ%g",
    }  # fmt: skip
    assert len(parts.records("%DLQ%g")) == 1


async def test_a_replay_to_the_topic_is_for_everybody_who_reads_it(parts: Parts) -> None:
    letter = die(parts)
    done = await replay(parts, letter, to_topic=True)
    (again,) = [record for record in parts.everywhere("orders") if "REPLAY_OF" in record.properties]
    assert (done.topic, again.topic, again.queue_id, again.reconsume_times) == ("orders", "orders", done.queue_id, 0)
    assert "RETRY_TOPIC" not in again.properties


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
async def test_a_dead_letter_is_replayed_once_whichever_way_it_went(parts: Parts, first: bool, second: bool) -> None:
    letter = die(parts)
    done = await replay(parts, letter, to_topic=first)
    assert done.stored is not None
    end = parts.store.log_max
    refused = await replay(parts, letter, to_topic=second)  # another office: only the log remembers
    assert (refused.stored, refused.earlier_ms) == (None, done.stored.store_timestamp_ms)
    assert parts.store.log_max == end


async def test_who_asks_for_it_gets_a_second_replay(parts: Parts) -> None:
    letter = die(parts)
    first = await replay(parts, letter)
    second = await replay(parts, letter, again=True)
    assert first.stored is not None
    assert second.stored is not None
    assert second.earlier_ms == first.stored.store_timestamp_ms
    assert len(parts.everywhere("%RETRY%g")) == 2


async def test_two_who_ask_at_one_time_get_one_replay(parts: Parts) -> None:
    letter, desk = die(parts), office(parts)
    wish = ReplayWish(group="g", log_offset=letter.log_offset)
    done = await asyncio.gather(*(desk.replay(wish) for _ in range(5)))
    assert sum(one.stored is not None for one in done) == 1
    assert len(parts.everywhere("%RETRY%g")) == 1


async def test_with_sync_flush_it_is_on_disk_when_it_is_done_and_still_done_once(tmp_path: Path) -> None:
    with parts_in(tmp_path, store=dataclasses.replace(SMALL, flush_disk_type="SYNC_FLUSH")) as parts:
        parts.groups.require("g")
        parts.topics.update(TopicConfig("orders", 4, 4))
        letter, desk = die(parts), office(parts, sync_flush=True)
        wish = ReplayWish(group="g", log_offset=letter.log_offset)
        done = await asyncio.gather(*(desk.replay(wish) for _ in range(5)))
        (stored,) = [one.stored for one in done if one.stored is not None]
        assert parts.store.flushed >= stored.end_log_offset


async def test_a_dry_run_tells_and_stores_nothing(parts: Parts) -> None:
    letter = die(parts)
    parts.topics.ensure("%RETRY%g", 1)
    end = parts.store.log_max
    done = await replay(parts, letter, dry_run=True)
    assert (done.topic, done.earlier_ms, done.stored) == ("%RETRY%g", 0, None)
    assert parts.store.log_max == end


async def test_what_died_again_after_a_replay_is_a_dead_letter_of_its_own(parts: Parts) -> None:
    letter = die(parts)
    await replay(parts, letter)
    (again,) = parts.records("%RETRY%g")
    parts.retries.send_back(GivenBack(group="g", log_offset=again.log_offset, delay_level=-1))
    second = parts.records("%DLQ%g")[-1]
    assert second.properties["REPLAY_OF"] == letter.offset_message_id
    assert second.properties["ORIGIN_MESSAGE_ID"] == again.offset_message_id
    assert (await replay(parts, letter)).stored is None
    assert (await replay(parts, second)).stored is not None
    assert (await replay(parts, second)).stored is None


async def test_a_replay_is_found_behind_more_retries_than_one_answer_of_the_index_holds(parts: Parts) -> None:
    letter = die(parts)
    await replay(parts, letter)
    (again,) = parts.records("%RETRY%g")
    for _ in range(40):
        stored = parts.store.put(Record(
            topic="%RETRY%g", queue_id=0, body=b"x", raw_properties=again.raw_properties, reconsume_times=1
        ))  # fmt: skip
        await until_later_than(stored.store_timestamp_ms)
    assert (await replay(parts, letter)).stored is None


async def test_a_message_without_a_key_of_its_own_gets_one_and_is_replayed_once(parts: Parts) -> None:
    stored = parts.store.put(Record(topic="%DLQ%g", queue_id=0, body=b"x", raw_properties=b""))
    parts.topics.ensure("%DLQ%g", 1)
    letter = next(record for record in parts.records("%DLQ%g") if record.log_offset == int(stored.log_offsets[0]))
    await replay(parts, letter)
    (again,) = parts.records("%RETRY%g")
    assert again.properties["UNIQ_KEY"] == letter.offset_message_id
    assert (await replay(parts, letter)).stored is None


@pytest.mark.parametrize("where", ["another record", "no record", "another group"])
async def test_what_is_no_dead_letter_of_the_group_is_not_replayed(parts: Parts, where: str) -> None:
    letter = die(parts)
    (original,) = parts.records("orders", 2)
    offsets = {"another record": original.log_offset, "no record": letter.log_offset + 1}
    group = "h" if where == "another group" else "g"
    wish = ReplayWish(group=group, log_offset=offsets.get(where, letter.log_offset))
    with pytest.raises(DejamqError) as caught:
        await office(parts).replay(wish)
    assert caught.value.code is Code.QUERY_NOT_FOUND


async def test_a_group_without_retry_queues_can_be_served_by_the_topic_only(parts: Parts) -> None:
    letter = die(parts)
    parts.groups.update("g", retry_queue_nums=0)
    with pytest.raises(DejamqError, match="no retry queues") as caught:
        await replay(parts, letter)
    assert caught.value.code is Code.INVALID_PARAMETER
    assert (await replay(parts, letter, to_topic=True)).stored is not None


@pytest.mark.parametrize(
    ("first_topic", "code"),
    [("", Code.INVALID_PARAMETER), ("gone", Code.TOPIC_NOT_EXIST), ("SCHEDULE_TOPIC_XXXX", Code.INVALID_PARAMETER)],
)
async def test_a_dead_letter_that_names_no_topic_of_users_goes_to_none(
    parts: Parts, first_topic: str, code: Code
) -> None:
    parts.topics.ensure("%DLQ%g", 1)
    properties = encode_properties({"RETRY_TOPIC": first_topic} if first_topic else {})
    parts.store.put(Record(topic="%DLQ%g", queue_id=0, body=b"x", raw_properties=properties))
    with pytest.raises(DejamqError) as caught:
        await replay(parts, parts.records("%DLQ%g")[0], to_topic=True)
    assert caught.value.code is code


async def test_what_may_not_be_written_takes_no_replay(parts: Parts) -> None:
    letter = die(parts)
    parts.topics.update(TopicConfig("orders", 4, 4, perm=4))
    with pytest.raises(PermissionDenied, match="orders"):
        await replay(parts, letter, to_topic=True)
    with pytest.raises(PermissionDenied, match="broker_permission"):
        await office(parts, writable=False).replay(ReplayWish(group="g", log_offset=letter.log_offset))


async def test_the_journal_says_that_a_command_stored_it_and_from_what(parts: Parts) -> None:
    letter = die(parts)
    await replay(parts, letter)
    append = parts.events("APPEND")[-1]
    assert (append["origin"], append["origin_refs"], append["group"]) == ("admin", [letter.offset_message_id], "g")


async def test_a_replay_after_which_the_lease_is_over_is_not_called_done(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    letter, office_here = die(parts), office(parts)
    lease_ends(parts.writer, monkeypatch)
    wish = ReplayWish(group="g", log_offset=letter.log_offset)
    for _ in ("first", "again"):
        with pytest.raises(DejamqError, match=OVER):
            await office_here.replay(wish)
    assert len(parts.records("%RETRY%g")) == 1
    assert not (await office_here.replay(msgspec.structs.replace(wish, dry_run=True))).stored
