"""How much all queues of a consumer may hold and ask for together, and who is next."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest
from consumer_fakes import until
from dejamq.receiving import memory_budget
from dejamq.receiving.memory_budget import Room

PULL, INTERVAL_S, NEVER_S = 100, 0.01, 3600.0


def room_for(pulls: int, held: list[int], interval_s: float = NEVER_S) -> Room:
    return Room(pulls * PULL, lambda: sum(held), PULL, interval_s)


def is_free(room: Room) -> bool:
    """As the room says now: it changes from one line to the next."""
    return room.is_free


@asynccontextmanager
async def waiting(room: Room, count: int, turns: list[int]) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """So many queues that wait, one after the other; ``turns`` says whose turn came."""

    async def wait(number: int) -> None:
        await room.turn()
        turns.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(count)]
    await asyncio.sleep(0)
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_no_more_is_asked_for_at_once_than_there_is_room_for() -> None:
    room = room_for(2, [])
    with room.asked("a", True), room.asked("a", True):
        assert is_free(room), "what is held may be exceeded by one pull"
        with room.asked("a", True):
            assert not is_free(room)
    assert is_free(room)


async def test_pulls_of_which_is_known_that_they_bring_nothing_take_no_room() -> None:
    room = room_for(0, [])
    with room.asked("a", False):
        assert is_free(room)


async def test_what_a_pull_brought_counts_until_it_is_not_held_any_more() -> None:
    held: list[int] = []
    room = room_for(1, held, INTERVAL_S)
    with room.asked("a", True):
        held.append(150)
        room.came(150)
    assert not is_free(room)
    turns: list[int] = []
    async with waiting(room, 1, turns):
        await asyncio.sleep(3 * INTERVAL_S)
        assert not turns
        held.clear()
        await until(lambda: turns)


async def test_who_waits_first_pulls_first_and_nobody_new_before_them() -> None:
    room, turns, first, second = room_for(1, []), list[int](), ExitStack(), ExitStack()
    first.enter_context(room.asked("a", True))
    second.enter_context(room.asked("a", True))
    async with waiting(room, 3, turns):
        first.close()
        await until(lambda: turns)
        assert turns == [0]
        assert not is_free(room)
        second.close()
        await until(lambda: len(turns) == 3)
        assert turns == [0, 1, 2]


async def test_a_pull_of_a_new_queue_takes_no_room_once_a_later_one_of_its_broker_is_answered() -> None:
    """Brokers answer in the order in which they are asked, and hold what they have nothing for."""
    room = room_for(0, [])
    with room.asked("a", None), room.asked("b", None):
        assert not is_free(room)
        with room.asked("a", False):
            pass
        assert not is_free(room), "the other broker has answered nothing"
        with room.asked("b", False):
            pass
        assert is_free(room)
    assert is_free(room)


async def test_where_no_answer_comes_at_all_pulls_of_new_queues_take_no_room_for_long() -> None:
    room, turns = room_for(0, [], INTERVAL_S), list[int]()
    with room.asked("a", None):
        async with waiting(room, 1, turns):
            assert not turns
            await until(lambda: turns)


async def test_who_waits_no_more_has_no_place_and_keeps_nobody_else_from_theirs() -> None:
    room, turns = room_for(0, [PULL]), list[int]()
    async with waiting(room, 2, turns) as tasks:
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        assert len(room._waiting) == 1
    assert not room._waiting


async def test_turns_that_are_given_and_not_taken_yet_count() -> None:
    """Answers that come in one frame, or fail with one connection, all end pulls in one turn of the loop."""
    room, turns, pulls = room_for(5, [], INTERVAL_S), list[int](), [ExitStack() for _ in range(10)]
    for one in pulls:
        one.enter_context(room.asked("a", True))
    async with waiting(room, 100, turns):
        for one in pulls:
            one.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns == list(range(6))


async def test_a_turn_that_is_not_taken_is_another_ones() -> None:
    room, turns, first = room_for(0, [], INTERVAL_S), list[int](), ExitStack()
    first.enter_context(room.asked("a", True))
    async with waiting(room, 2, turns) as tasks:
        first.close()
        tasks[0].cancel()  # in the very moment in which its turn has come
        await until(lambda: turns)
    assert turns == [1]


async def test_a_broker_that_answers_nobody_keeps_nobody_from_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "SILENT_S", 3 * INTERVAL_S)
    room, turns = room_for(0, [], INTERVAL_S), list[int]()
    with room.asked("frozen", True):
        async with waiting(room, 1, turns):
            await until(lambda: turns)


async def test_a_pull_that_fails_says_nothing_of_those_asked_before_it() -> None:
    room = room_for(0, [])
    with room.asked("a", None):
        with suppress(OSError), room.asked("a", None):
            raise OSError("the connection is lost")
        assert not is_free(room)
    assert is_free(room)


async def test_of_a_broker_that_was_silent_nothing_counts_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "SILENT_S", 3 * INTERVAL_S)
    room, turns = room_for(0, [], INTERVAL_S), list[int]()
    with room.asked("frozen", True):
        async with waiting(room, 1, turns):
            await until(lambda: turns)
        with room.asked("frozen", True):
            assert is_free(room)
        with room.asked("frozen", True):
            assert not is_free(room), "it has answered"


async def test_answers_to_pulls_that_were_held_say_nothing_of_those_asked_since() -> None:
    """A broker answers what it held whenever a message comes, also where it has nothing for anybody new."""
    room, turns, held = room_for(0, [], INTERVAL_S), list[int](), [ExitStack() for _ in range(40)]
    for one in held:
        one.enter_context(room.asked("a", False))
    with room.asked("a", None):
        async with waiting(room, 1, turns):
            for one in held:
                if not turns:
                    one.close()
                    await asyncio.sleep(INTERVAL_S / 2)
            assert turns
