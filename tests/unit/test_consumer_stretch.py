"""Deliveries in stretches say what the messages would say one by one; what handlers did is settled before they wait."""

import asyncio
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
from consumer_fakes import dispatching, owned_queue, received, until
from dejamq.net.waits import before_each_suspension
from dejamq.receiving.delivery_columns import Stretches
from dejamq.receiving.received import ReceivedMessage
from dejamq_proto.records.json_columns import Listed
from hypothesis import given
from hypothesis import strategies as st
from journalled import journalled


def read(listed: Listed) -> list[Any]:
    """As a line of the journal has it."""
    found: list[Any] = msgspec.json.decode(msgspec.json.encode(listed))
    return found


@given(st.lists(st.integers(1, 2), min_size=12, max_size=12), st.lists(st.integers(1, 5), max_size=12), st.booleans())
def test_columns_are_those_of_each_message_whatever_is_left_out_or_was_delivered_between(
    steps: list[int], sizes: list[int], two_pulls: bool
) -> None:
    owned = owned_queue()
    pulled = received(owned, *range(6)) + received(owned, *range(6, 12)) if two_pulls else received(owned, *range(12))
    for message, number in zip(pulled, accumulate(steps), strict=True):
        message.delivery_number = number
    rest, gathered, expected = list(pulled), Stretches(), list[ReceivedMessage]()
    for size in sizes:
        some = [one for one in rest[:size] if one.queue_offset % 5]
        rest = rest[size:]
        if some:
            gathered.add(some)
            expected += some
    assert gathered.count == len(expected)
    assert read(gathered.numbers) == [one.delivery_number for one in expected]
    assert read(gathered.listed("queue_offset")) == [one.queue_offset for one in expected]
    assert gathered.column("queue_offset") == [one.queue_offset for one in expected]
    assert read(gathered.unique_keys) == [one.message_id for one in expected]
    assert gathered.store_hosts == [one.store_host for one in expected[:1]], "one broker stored them all"


@given(st.permutations(range(8)))
def test_messages_that_end_in_another_order_keep_it(order: list[int]) -> None:
    messages, gathered = received(owned_queue(), *range(8)), Stretches()
    for number, message in enumerate(messages, 1):
        message.delivery_number = number
    for place in order:
        gathered.add((messages[place],))
    assert read(gathered.listed("queue_offset")) == list(order)
    assert read(gathered.numbers) == [place + 1 for place in order]


async def test_whoever_waits_tells_it_each_time_and_hears_of_its_cancellation() -> None:
    told, heard = [], []

    async def work() -> None:
        for number in range(3):
            heard.append(number)
            await asyncio.sleep(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append(-1)
            raise

    async def whole() -> None:
        await before_each_suspension(work(), lambda: told.append(len(heard)))

    task = asyncio.create_task(whole())
    await until(lambda: len(told) == 4)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert (told, heard) == ([1, 2, 3, 3], [0, 1, 2, -1])


async def test_a_handler_that_waits_leaves_nothing_unsettled_behind(tmp_path: Path) -> None:
    """Others run while it waits: the ones before it are done, it is entered and in flight, at level audit too."""
    go_on = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        if message.queue_offset == 5:
            await go_on.wait()

    owned = owned_queue()
    async with dispatching(handler, workers=1, level="audit", directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(10)))
        await until(lambda: owned.process_queue.in_flight)
        assert (owned.process_queue.in_flight, owned.process_queue.commit_offset, len(owned.process_queue)) == (1, 5, 5)
        await until(lambda: len(journalled(tmp_path)) == 2)
        entered, ended = journalled(tmp_path)
        assert (entered["event"], entered["queue_offsets"]) == ("DELIVER", [0, 1, 2, 3, 4, 5])
        assert (ended["event"], ended["queue_offsets"], ended["mem_off"]) == ("RESULT", [0, 1, 2, 3, 4], 5)
        go_on.set()
        await until(lambda: owned.process_queue.commit_offset == 10)
    assert owned.process_queue.in_flight == 0
    assert [line["queue_offsets"] for line in journalled(tmp_path)[2:]] == [[6, 7, 8, 9], [5, 6, 7, 8, 9]]
