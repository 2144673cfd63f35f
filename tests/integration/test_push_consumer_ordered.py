"""Consumption in order over real servers: what a handler's answer does to its queue, and how progress is committed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import (
    ConsumeStatus,
    DeadLetter,
    Message,
    OrderedStatus,
    ReceivedMessage,
    SuspendQueue,
)
from dejamq.receiving.handlers import Handler
from ordered_cluster import TIMES, Ledger, ordered, send_keys


async def test_messages_of_a_key_come_in_the_order_they_were_sent(tmp_path: Path) -> None:
    ledger, keys = Ledger(), {f"k{number}": 30 for number in range(8)}
    async with servers(tmp_path) as here:
        await send_keys(here, {key: range(15) for key in keys})
        async with ordered(here, ledger, "one"):
            await send_keys(here, {key: range(15, 30) for key in keys})
            await until(lambda: len(ledger.entered) == 240)
    assert all(ledger.numbers(key) == list(range(30)) for key in keys)
    assert not ledger.overlaps


async def test_queues_are_consumed_side_by_side(tmp_path: Path) -> None:
    together = asyncio.Barrier(4)

    async def handler(message: ReceivedMessage) -> None:
        await together.wait()

    async with servers(tmp_path) as here, here.producer() as producer:
        for queue in await producer.publish_queues("orders"):
            await producer.send(Message("orders", b"x"), queue=queue)
        consumer = here.consumer(ordered=True, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len([line for line in here.lines("RESULT") if line["status"] == "success"]) == 4)


async def test_a_failing_handler_suspends_its_queue_and_gets_the_message_again_first(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    answers: list[object] = [ValueError("not yet"), SuspendQueue(10), ConsumeStatus.RECONSUME_LATER, 17, None, None]

    async def handler(message: ReceivedMessage) -> object:
        seen.append((message.body.decode(), message.reconsume_times))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(2)})
        consumer = here.consumer(ordered=True, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(seen) == 6)
    assert seen == [("k:0", 0), ("k:0", 1), ("k:0", 2), ("k:0", 3), ("k:0", 4), ("k:1", 0)]
    assert [line["status"] for line in here.lines("RESULT")] == [
        "exception", "suspend", "reconsume", "wrong_value", "success", "success"
    ]  # fmt: skip
    assert [line.get("kind", "first") for line in here.lines("DELIVER")] == [
        "first", "suspend_retry", "suspend_retry", "suspend_retry", "suspend_retry", "first"
    ]  # fmt: skip
    assert not here.lines("SENDBACK"), "an ordered handler's failure stays in its queue"


async def test_tries_are_without_limit_unless_the_program_sets_one(tmp_path: Path) -> None:
    times: list[int] = []

    async def handler(message: ReceivedMessage) -> object:
        times.append(message.reconsume_times)
        return None if len(times) == 25 else ConsumeStatus.RECONSUME_LATER

    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(1)})
        consumer = here.consumer(ordered=True, **TIMES | {"suspend_current_queue_time_ms": 10})
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(times) == 25)
    assert times == list(range(25)), "a concurrent group would have given up after 16"


async def test_after_the_most_tries_a_message_is_a_dead_letter_and_the_queue_goes_on(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if message.body == b"k:0":
            raise ValueError("never")

    letters: list[ReceivedMessage] = []
    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(2)})
        consumer = here.consumer(ordered=True, max_reconsume_times=2, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: ("k:1", 0) in seen)
        (given_up,) = here.lines("SENDBACK")
        await _read(here, "%DLQ%g", letters)
    assert seen == [("k:0", 0), ("k:0", 1), ("k:0", 2), ("k:1", 0)]
    assert (given_up["path"], given_up["outcome"]) == ("fallback", "ok")
    (letter,) = letters
    assert letter.body == b"k:0"
    assert letter.message_id == given_up["unique_keys"][0], "it is the same message to programs"
    assert letter.properties["RETRY_TOPIC"] == "orders"
    assert letter.properties["ORIGIN_MESSAGE_ID"] == letter.message_id


async def test_a_dead_letter_wanted_by_the_handler_needs_no_tries(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        if message.body == b"k:0":
            raise DeadLetter("broken for good")

    letters: list[ReceivedMessage] = []
    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(2)})
        consumer = here.consumer(ordered=True, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(seen) == 2)
        await _read(here, "%DLQ%g", letters)
    assert seen == ["k:0", "k:1"]
    assert [letter.body for letter in letters] == [b"k:0"]


async def test_a_batch_that_fails_is_delivered_again_as_a_whole(tmp_path: Path) -> None:
    batches: list[list[str]] = []

    async def handler(messages: Sequence[ReceivedMessage]) -> object:
        batches.append([message.body.decode() for message in messages])
        return ConsumeStatus.RECONSUME_LATER if len(batches) == 1 else None

    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(6)})
        consumer = here.consumer(ordered=True, **TIMES)
        consumer.subscribe_batch("orders", handler, size=4)
        async with consumer:
            await until(lambda: sum(map(len, batches)) == 10)
    assert batches == [[f"k:{n}" for n in range(4)], [f"k:{n}" for n in range(4)], ["k:4", "k:5"]]
    delivered = here.lines("DELIVER")
    assert [line.get("kind", "first") for line in delivered] == ["first", "suspend_retry", "first"]
    assert [line["batch_id"] for line in delivered] == [1, 2, 3]


async def test_without_auto_commit_progress_moves_only_with_commit_and_rollback_repeats_from_there(
    tmp_path: Path,
) -> None:
    seen: list[str] = []
    answers = {
        3: OrderedStatus.COMMIT,  # k:0 to k:2
        5: OrderedStatus.ROLLBACK,  # k:3 and k:4 come again
        8: OrderedStatus.COMMIT,
    }

    async def handler(message: ReceivedMessage) -> object:
        seen.append(message.body.decode())
        return answers.get(len(seen))

    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(8)})
        consumer = here.consumer(ordered=True, auto_commit=False, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(seen) == 10)
    assert seen == [f"k:{n}" for n in (0, 1, 2, 3, 4, 3, 4, 5, 6, 7)]
    again: list[ReceivedMessage] = []
    async with servers(tmp_path) as here:
        consumer = here.consumer(ordered=True, auto_commit=False, **TIMES)

        async def remember(message: ReceivedMessage) -> OrderedStatus:
            again.append(message)
            return OrderedStatus.COMMIT

        consumer.subscribe("orders", remember)
        async with consumer:
            await until(lambda: len(again) == 2)
    assert [message.body for message in again] == [b"k:6", b"k:7"], "handed out, but never committed"
    marks = [line["mem_off"] for line in here.lines("RESULT")]
    assert marks == [0, 0, 3, 3, 3, 3, 3, 6, 6, 6, 7, 8]


async def test_with_auto_commit_the_other_words_acknowledge_and_are_complained_about(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> OrderedStatus:
        seen.append(message.body.decode())
        return OrderedStatus.ROLLBACK

    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(3)})
        consumer = here.consumer(ordered=True, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(seen) == 3)
    assert seen == ["k:0", "k:1", "k:2"]
    assert "auto_commit=False" in here.lines("RESULT")[0]["reason"]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_plain_function_is_run_in_order_too_and_a_coroutine_of_it_awaited(tmp_path: Path, waits: bool) -> None:
    seen: list[str] = []

    def note(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async def later(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        note(message)

    handler: Handler = (lambda message: later(message)) if waits else note

    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(20)})
        consumer = here.consumer(ordered=True, **TIMES)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(seen) == 20)
    assert seen == [f"k:{number}" for number in range(20)]


async def test_a_queue_that_never_rests_gives_its_worker_to_the_others(tmp_path: Path) -> None:
    """RocketMQ: MAX_TIME_CONSUME_CONTINUOUSLY, 60 s."""
    ledger = Ledger()
    async with servers(tmp_path) as here, here.producer() as producer:
        first, second = (await producer.publish_queues("orders"))[:2]
        for number in range(60):
            await producer.send(Message("orders", f"long:{number}".encode()), queue=first)
        await producer.send(Message("orders", b"short:0"), queue=second)
        times = TIMES | {"max_time_consume_continuously_ms": 30, "max_concurrency": 1}
        async with ordered(here, ledger, "one", seconds=0.01, **times):
            await until(lambda: len(ledger.entered) == 61)
    place = next(index for index, (_, key, _) in enumerate(ledger.entered) if key == "short")
    assert place < 60
    assert ledger.numbers("long") == list(range(60))


async def test_the_journal_says_who_held_which_lock_when(tmp_path: Path) -> None:
    ledger = Ledger()
    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(3)})
        async with ordered(here, ledger, "one") as consumer:
            await until(lambda: len(ledger.entered) == 3)
            # The retry topic is new with the group: its route, and so its lock, may come a rebalance later.
            await until(lambda: len({(line["topic"], line["queue_id"]) for line in here.server_lines("LOCK")}) == 5)
            client_id, boot_id = consumer.client_id, consumer.boot_id
    locks, unlocks, given_back = here.server_lines("LOCK"), here.server_lines("UNLOCK"), here.lines("UNLOCK")
    assert {line["client_id"] for line in locks} == {client_id}
    assert {line["client_boot_id"] for line in locks} == {boot_id}
    places = {(line["topic"], line["queue_id"]) for line in locks}
    assert len(places) == 5, "four queues and the one of the retry topic"
    assert {(line["topic"], line["queue_id"]) for line in unlocks if line.get("granted", True)} == places
    assert {line["request_seq"] for line in unlocks} == {line["request_seq"] for line in given_back}
    assert all("forced" not in line for line in given_back)


async def _read(here: Servers, topic: str, into: list[ReceivedMessage]) -> None:
    """The messages of a topic, by a group of its own."""

    async def keep(message: ReceivedMessage) -> None:
        into.append(message)

    consumer = here.consumer("readers", journal_dir=None)
    consumer.subscribe(topic, keep)
    async with consumer:
        await until(lambda: into)
