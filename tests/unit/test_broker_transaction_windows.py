"""RocketMQ's windows, in which a transaction is committed twice, and the settings that close them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import decode
from transaction_parts import ROLLBACK, TransactionHouse, TransactionParts, refusal

ONCE = {"transaction_finish_once": True}
WITH_COMMIT = {"transaction_op_with_commit": True}


@pytest.fixture
def house(tmp_path: Path) -> TransactionHouse:
    return TransactionHouse(tmp_path)


@pytest.fixture
def parts(house: TransactionHouse) -> Iterator[TransactionParts]:
    with house.open() as opened:
        yield opened


def attempt(end: Callable[[Any], None], what: Any) -> None:
    """End it, unless it has ended before and the broker looks at that."""
    try:
        end(what)
    except DejamqError as refused:
        if refused.code != Code.ILLEGAL_OPERATION:
            raise


async def committed_late(parts: TransactionParts) -> list[str]:
    """A check is answered, then the program's own commit arrives: it names the first place (cause P7)."""
    parts.producer()
    half = parts.begin("k")
    await parts.round()
    parts.answer()
    attempt(parts.end, half)
    await parts.round()
    return parts.orders()


async def two_checks(parts: TransactionParts) -> list[str]:
    """The answer to the first check comes when the second was asked."""
    parts.producer()
    parts.begin("k")
    await parts.round()
    await parts.round()
    parts.answer(0)
    attempt(parts.answer, 1)
    await parts.round()
    return parts.orders()


async def the_same_commit_twice(parts: TransactionParts) -> list[str]:
    half = parts.begin("k")
    parts.end(half)
    attempt(parts.end, half)
    return parts.orders()


async def asked_while_its_mark_was_gathered(parts: TransactionParts) -> list[str]:
    parts.producer()
    half = parts.begin("k")
    parts.clock.move(30)
    parts.end(half)
    await parts.rounds.step()
    if parts.asked:
        parts.answer()
    return parts.orders()


WINDOWS = [committed_late, two_checks, the_same_commit_twice, asked_while_its_mark_was_gathered]


@pytest.mark.parametrize("window", WINDOWS)
async def test_rocketmq_commits_twice_and_so_does_this_broker_by_default(parts: TransactionParts, window: Any) -> None:
    assert await window(parts) == ["k", "k"]


@pytest.mark.parametrize("window", WINDOWS)
async def test_with_finish_once_a_transaction_is_committed_once(house: TransactionHouse, window: Any) -> None:
    with house.open(**ONCE) as parts:
        assert await window(parts) == ["k"]
        assert len(parts.transactions.open or ()) == 0
        parts.producer()
        asked = len(parts.asked)
        await parts.round()
        assert len(parts.asked) == asked


async def test_with_finish_once_a_rollback_is_not_followed_by_a_commit(house: TransactionHouse) -> None:
    with house.open(**ONCE) as parts:
        half = parts.begin()
        parts.end(half, ROLLBACK)
        assert refusal(parts, half).code == Code.ILLEGAL_OPERATION
        assert parts.orders() == []


async def test_with_finish_once_a_late_first_answer_still_commits(house: TransactionHouse) -> None:
    """Two rounds asked; only the first question was answered: nobody has to wait for the second one's answer."""
    with house.open(**ONCE) as parts:
        parts.producer()
        half = parts.begin("k")
        await parts.round()
        await parts.round()
        parts.end(half)
        assert parts.orders() == ["k"]
        for _ in range(3):
            await parts.round()
        assert len(parts.asked) == 2


async def lost_with_the_process(house: TransactionHouse, **settings: Any) -> list[str]:
    """Committed, and killed before the mark was stored (cause P8); then a check asks again."""
    with house.open(**settings) as parts:
        parts.end(parts.begin("k"))
    with house.open(**settings) as parts:
        parts.producer()
        house.clock.move(30)
        await parts.rounds.step()
        if parts.asked:
            parts.answer()
        return parts.orders()


async def test_a_crash_that_loses_a_mark_commits_twice_by_default(house: TransactionHouse) -> None:
    assert await lost_with_the_process(house) == ["k", "k"]


async def test_finish_once_alone_does_not_help_against_a_lost_mark(house: TransactionHouse) -> None:
    assert await lost_with_the_process(house, **ONCE) == ["k", "k"]


async def test_with_the_mark_behind_the_commit_a_crash_commits_nothing_twice(house: TransactionHouse) -> None:
    assert await lost_with_the_process(house, **WITH_COMMIT) == ["k"]


@pytest.mark.parametrize("asked_before", [False, True])
async def test_a_mark_that_a_crash_cut_off_is_added_at_the_start(house: TransactionHouse, asked_before: bool) -> None:
    """The process died between the committed message and its mark, which with this setting are neighbours."""
    with house.open(**WITH_COMMIT) as parts:
        parts.end(parts.begin("before"))
        half = parts.begin("k")
        parts.begin("other")
        if asked_before:
            parts.producer()
            await parts.round()
        parts.transactions.ops.write = lambda: None  # type: ignore[method-assign]
        parts.end(half)
    with house.open(**WITH_COMMIT, **ONCE) as parts:
        parts.producer()
        house.clock.move(30)
        await parts.rounds.step()
        assert {decode(command.record).body for _, command in parts.asked} == {b"other"}
        parts.answer()
        assert sorted(parts.orders()) == ["before", "k", "other"]


async def test_rounds_set_back_by_a_crash_ask_twice_and_finish_once_counts_one(house: TransactionHouse) -> None:
    for settings, found in (({}, ["a", "a"]), (ONCE, ["a", "a", "b"])):
        key = "a" if not settings else "b"
        with house.open(**settings) as parts:
            parts.begin(key)
            await parts.round()
        with house.open(**settings) as parts:
            parts.producer()
            await parts.round()
            for number, _ in enumerate(parts.asked):
                attempt(parts.answer, number)
            await parts.round()
            assert sorted(parts.orders()) == found
            await parts.offsets.flush()


def test_after_a_restart_the_same_halves_can_be_ended(house: TransactionHouse) -> None:
    with house.open() as parts:
        half = parts.begin("k")
    with house.open(**ONCE) as parts:
        parts.end(half)
        assert parts.orders() == ["k"]
