"""Dead letters as an operator meets them: what they say, sending them again, and who gets them then."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from dejamq import Admin, Code, ConsumeFrom, DeadLetter, DejamqError, Message, PushConsumer, ReceivedMessage, SendResult
from dejamq import sync as dejamq_sync
from dejamq.admin.dead_letters import LetterFacts, export_row
from dejamq_lab import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, topics={"orders": 2}, time_scale=0.05, directory=tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.namesrv) as admin:
        yield admin


class Desk:
    """A group whose handler refuses everything until it is told to accept."""

    def __init__(self, cluster: Cluster, group: str, **settings: Any) -> None:
        self.refusing, self.accepted = True, list[ReceivedMessage]()
        self.consumer: PushConsumer = cluster.push_consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET, **settings)
        self.consumer.subscribe("orders", self._handle)

    async def _handle(self, message: ReceivedMessage) -> None:
        if self.refusing:
            raise DeadLetter("no such customer")
        self.accepted.append(message.detach())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.02)


async def send(cluster: Cluster, *bodies: bytes) -> list[SendResult]:
    """One of each body to every queue."""
    async with cluster.producer("p") as producer:
        queues = await producer.publish_queues("orders")
        return [
            await producer.send(Message("orders", body, tags="paid", keys=["order-17"]), queue=queue)
            for body in bodies
            for queue in queues
        ]


async def letters_of(admin: Admin, group: str, count: int) -> list[ReceivedMessage]:
    async with asyncio.timeout(30):
        while len(found := [letter async for letter in admin.dead_letters(group)]) < count:
            await asyncio.sleep(0.02)
    return found


async def test_a_dead_letter_says_where_it_came_from_how_often_and_why_it_failed(
    cluster: Cluster, admin: Admin
) -> None:
    sent = await send(cluster, b"bad")
    async with Desk(cluster, "strict").consumer:
        letters = await letters_of(admin, "strict", 4)
    facts = {one.message_id: one for one in map(LetterFacts.of, letters)}
    assert facts.keys() == {one.message_id for one in sent}
    for result in sent:
        one = facts[result.message_id]
        assert (one.group, one.topic, one.tries, one.reason) == ("strict", "orders", 1, "dead letter: no such customer")
        assert one.first_offset_message_id == result.offset_message_id
        assert 0 < one.born_ms <= one.died_ms


async def test_exported_rows_hold_everything_that_json_can_hold(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"text", b"\xff\x00")
    async with Desk(cluster, "strict").consumer:
        letters = await letters_of(admin, "strict", 8)
    rows = [json.loads(json.dumps(export_row(letter))) for letter in letters]
    assert {(row["body"], row["body_base64"]) for row in rows} == {("text", "dGV4dA=="), (None, "/wA=")}
    assert {(row["topic"], row["tags"], *row["keys"]) for row in rows} == {("orders", "paid", "order-17")}
    assert {row["properties"]["RETRY_TOPIC"] for row in rows} == {"orders"}


async def test_dead_letters_are_chosen_by_topic_and_by_when_they_died(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"bad")
    async with Desk(cluster, "strict").consumer:
        letters = await letters_of(admin, "strict", 4)
    last = max(letter.store_timestamp_ms for letter in letters)
    assert len([one async for one in admin.dead_letters("strict", topic="orders", end_ms=last)]) == 4
    assert [one async for one in admin.dead_letters("strict", topic="payments")] == []
    assert [one async for one in admin.dead_letters("strict", begin_ms=last + 1)] == []


async def test_all_are_sent_again_to_their_group_alone_and_each_once(cluster: Cluster, admin: Admin) -> None:
    sent = await send(cluster, b"bad")
    strict, other = Desk(cluster, "strict"), Desk(cluster, "other")
    other.refusing = False
    async with strict.consumer, other.consumer:
        await letters_of(admin, "strict", 4)
        await until(lambda: len(other.accepted) == 4)
        strict.refusing = False
        replays = [one async for one in admin.replay_dead_letters("strict")]
        assert all(one.stored and one.topic == "%RETRY%strict" for one in replays)
        await until(lambda: len(strict.accepted) == 4)
        again = [one async for one in admin.replay_dead_letters("strict")]
    assert [one.stored for one in again] == [False] * 4
    assert all(one.replayed_ms > 0 for one in again)
    assert {one.message_id for one in strict.accepted} == {one.message_id for one in sent}
    assert {(one.topic, one.reconsume_times) for one in strict.accepted} == {("orders", 0)}
    assert {one.offset_message_id for one in strict.accepted} == {one.offset_message_id for one in replays}
    assert len(other.accepted) == 4


async def test_one_is_sent_again_to_its_topic_for_every_group(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"bad")
    strict, other = Desk(cluster, "strict"), Desk(cluster, "other")
    other.refusing = False
    async with strict.consumer, other.consumer:
        letters = await letters_of(admin, "strict", 4)
        strict.refusing = False
        replay = await admin.replay_dead_letter("strict", letters[0].offset_message_id, to_topic=True)
        assert replay.queue is not None
        assert replay.queue.topic == "orders"
        await until(lambda: len(strict.accepted) == 1 and len(other.accepted) == 5)
    (accepted,) = strict.accepted
    assert accepted.properties["REPLAY_OF"] == letters[0].offset_message_id
    assert accepted.properties["REPLAYED_FROM"] == "%DLQ%strict"


async def test_an_ordered_group_gets_its_replays_though_its_locks_are_alive(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"bad")
    desk = Desk(cluster, "in-order", ordered=True)
    async with desk.consumer:
        letters = await letters_of(admin, "in-order", 4)
        assert {LetterFacts.of(letter).reason for letter in letters} == {"dead letter: no such customer"}
        desk.refusing = False
        assert [one.stored async for one in admin.replay_dead_letters("in-order")] == [True] * 4
        await until(lambda: len(desk.accepted) == 4)


async def test_a_dry_run_says_what_would_be_done(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"bad")
    desk = Desk(cluster, "strict")
    async with desk.consumer:
        letters = await letters_of(admin, "strict", 4)
        desk.refusing = False
        told = [one async for one in admin.replay_dead_letters("strict", dry_run=True)]
        await admin.replay_dead_letter("strict", letters[0])
        later = [one async for one in admin.replay_dead_letters("strict", dry_run=True)]
    assert [(one.stored, one.replayed_ms, one.topic) for one in told] == [(False, 0, "%RETRY%strict")] * 4
    assert sorted(bool(one.replayed_ms) for one in later) == [False, False, False, True]


async def test_a_groups_retry_policy_is_kept_with_it_and_what_is_none_is_refused(
    cluster: Cluster, admin: Admin
) -> None:
    policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":60000,"multiplier":3}}'
    await admin.update_group("strict", group_retry_policy=policy, consume_timeout_minute=3)
    with pytest.raises(DejamqError, match="no retry policy") as caught:
        await admin.update_group("strict", group_retry_policy="sometimes")
    assert caught.value.code == Code.INVALID_PARAMETER
    told = [one for one in await admin.groups() if one.group == "strict"]
    assert [(json.loads(one.group_retry_policy), one.consume_timeout_minute) for one in told] == [
        (json.loads(policy), 3)
    ] * 2
    for store in cluster.store_dirs:
        kept = json.loads((store / "config/subscriptionGroup.json").read_text())["subscriptionGroupTable"]["strict"]
        assert (kept["groupRetryPolicy"], kept["consumeTimeoutMinute"]) == (json.loads(policy), 3)


async def test_what_is_no_dead_letter_of_the_group_is_refused(cluster: Cluster, admin: Admin) -> None:
    sent = await send(cluster, b"good")
    for message in (sent[0].offset_message_id, await admin.message(sent[0].offset_message_id)):
        with pytest.raises(DejamqError, match="no dead letter of group 'strict'") as caught:
            await admin.replay_dead_letter("strict", message)
        assert caught.value.code == Code.QUERY_NOT_FOUND


async def test_programs_without_an_event_loop_replay_as_well(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"bad")
    async with Desk(cluster, "strict").consumer:
        await letters_of(admin, "strict", 4)

    def replay() -> tuple[bool, list[bool]]:
        with dejamq_sync.Admin(cluster.namesrv) as blocking:
            first = next(iter(blocking.dead_letters("strict", topic="orders")))
            one = blocking.replay_dead_letter("strict", first)
            return one.stored, [each.stored for each in blocking.replay_dead_letters("strict")]

    one, rest = await asyncio.to_thread(replay)
    assert one
    assert sorted(rest) == [False, True, True, True]
