"""Messages that the broker keeps for their consumers, and messages that a consumer gives up."""

from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.pop.state import PopState
from dejamq_broker.tables.offsets import Asker
from dejamq_proto.codes import Code
from dejamq_proto.journal.events import Change
from dejamq_proto.journal.lines import events, files_in
from pop_world import GROUP, TOPIC, Given, PopWorld, bodies, pop_world

CLIENT = Asker("c1", "boot", 1)
LETTERS = f"%DLQ%{GROUP}"


def kept(world: PopWorld, given: list[Given]) -> None:
    world.popping.renewals.keep(CLIENT, GROUP, TOPIC, [each.handle for each in given])


async def passes(world: PopWorld, ms: int, *, alive: bool = True) -> None:
    """Time passes in steps of a second, and messages are renewed."""
    for _ in range(ms // 1000):
        world.now_ms += 1000
        world.popping.renewals.turn(lambda _: alive)
        await world.popping.revive()


async def crashed(world: PopWorld) -> None:
    world.crash()


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_is_its_consumers_for_as_long_as_that_lives(tmp_path: Path, ordered: bool) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        given = world.pop(invisible_ms=60_000, ordered=ordered)
        kept(world, given)
        await passes(world, 600_000)
        assert world.pop(ordered=ordered) == []
        handle = world.popping.renewals.ended(GROUP, TOPIC, given[0].handle)
        assert world.ack_handles([handle, given[0].handle]) == [0, 0]
        assert len(world.popping.renewals) == 0


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("clean", [False, True])
async def test_a_restart_goes_on_keeping_a_message_and_its_first_handle_stays_good(
    tmp_path: Path, ordered: bool, clean: bool
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        given = world.pop(invisible_ms=60_000, ordered=ordered, kept=True, asker=CLIENT)
        kept(world, given)
        for _ in range(3):
            await passes(world, 130_000)
            await (world.restart() if clean else crashed(world))
        world.now_ms += 3_600_000  # the broker was away, and the message's time is over
        await crashed(world)
        await passes(world, 30_000, alive=False)  # its client is not back yet
        await passes(world, 100_000)
        assert world.pop(ordered=ordered) == []
        handle = world.popping.renewals.ended(GROUP, TOPIC, given[0].handle)
        assert world.ack_handles([handle]) == [0]
        assert world.ack_handles([given[0].handle]) == [0]  # it says so again
        assert len(world.popping.renewals) == 0


@pytest.mark.parametrize("ordered", [False, True])
async def test_after_a_restart_messages_of_a_client_that_does_not_come_back_come_again(
    tmp_path: Path, ordered: bool
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        kept(world, world.pop(invisible_ms=60_000, ordered=ordered, kept=True, asker=CLIENT))
        await world.restart()
        await passes(world, 58_000, alive=False)
        assert world.pop(ordered=ordered) == []
        await passes(world, 180_000, alive=False)
        assert [(each.body, each.attempt) for each in world.pop(ordered=ordered)] == [(b"x", 2)]


async def test_after_a_crash_a_message_that_was_not_renewed_yet_comes_again_as_its_answer_may_be_lost(
    tmp_path: Path,
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        kept(world, world.pop(invisible_ms=60_000, kept=True, asker=CLIENT))
        await crashed(world)
        await passes(world, 61_000)
        assert [(each.body, each.attempt) for each in world.pop()] == [(b"x", 2)]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_that_was_given_back_is_not_kept_after_a_restart(tmp_path: Path, ordered: bool) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop(invisible_ms=60_000, ordered=ordered, kept=True, asker=CLIENT)
        kept(world, [given])
        world.popping.renewals.changed(GROUP, TOPIC, given.handle, 5_000, CLIENT)
        await world.restart()
        assert len(world.popping.renewals) == 0
        await passes(world, 6_000)
        assert bodies(world.pop(ordered=ordered)) == [b"x"]


async def test_after_a_lost_answer_to_a_change_the_first_handle_of_a_renewed_message_stays_good(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"x")
        (given,) = world.pop(invisible_ms=60_000, kept=True, asker=CLIENT)
        kept(world, [given])
        await passes(world, 130_000)
        renewals = world.popping.renewals
        changed = renewals.changed(GROUP, TOPIC, given.handle, 200_000, CLIENT)
        assert renewals.changed(GROUP, TOPIC, given.handle, 200_000, CLIENT) == changed
        await world.restart()
        await world.restart()  # the records before the change are not read any more
        assert world.ack_handles([given.handle]) == [0]
        await passes(world, 300_000)
        assert world.pop() == []


async def test_a_change_names_the_handle_by_which_it_was_asked_in_the_journal(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1, journal_level="forensic") as world:
        world.send(b"x")
        (given,) = world.pop(invisible_ms=60_000)
        kept(world, [given])
        await passes(world, 60_000)
        world.popping.renewals.changed(GROUP, TOPIC, given.handle, 5_000, CLIENT)
        world.journal.close()
    asked = [line for line in events(files_in(world.journal_dir), Change) if line.asked_pop_time]
    assert [line.asked_pop_time for line in asked] == [given.handle.pop_time]
    assert given.handle.pop_time < asked[0].pop_time < asked[0].new_pop_time


async def test_messages_of_a_client_that_is_gone_come_again_soon(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"silent", b"ended")
        silent, ended = world.pop(invisible_ms=60_000)
        kept(world, [silent])
        world.popping.renewals.keep(CLIENT._replace(client_id="c2"), GROUP, TOPIC, [ended.handle])
        world.popping.renewals.gone("c2")
        await passes(world, 2_000)
        assert bodies(world.pop(invisible_ms=200_000)) == [b"ended"]
        await passes(world, 60_000, alive=False)
        assert bodies(world.pop()) == [b"silent"]


async def test_a_message_whose_time_is_nearly_over_is_not_kept_longer_when_its_client_goes(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        kept(world, world.pop(invisible_ms=60_000))
        world.now_ms += 59_500
        world.popping.renewals.gone(CLIENT.client_id)
        (queue,) = [queue for queue in world.popping.state.flights if queue.flight]
        assert [point.visible_ms - world.now_ms for point in queue.popped.values()] == [490]


async def test_a_message_is_not_kept_beyond_the_longest_time(tmp_path: Path) -> None:
    with pop_world(tmp_path, renew_max_time_ms=100_000) as world:
        world.send(b"x")
        kept(world, world.pop(invisible_ms=60_000))
        await passes(world, 400_000)
        assert [(each.body, each.attempt) for each in world.pop()] == [(b"x", 2)]
        assert len(world.popping.renewals) == 0


async def test_a_message_that_was_given_back_is_not_renewed(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop(invisible_ms=60_000)
        kept(world, [given])
        await passes(world, 55_000)
        world.popping.renewals.changed(GROUP, TOPIC, given.handle, 5_000, CLIENT)
        await passes(world, 6_000)
        assert bodies(world.pop()) == [b"x"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_given_up_is_one_dead_letter_also_when_a_crash_takes_its_acknowledgement(
    tmp_path: Path, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise RuntimeError

    with pop_world(tmp_path) as world:
        world.send(b"x", b"y")
        (given, _) = world.pop(ordered=ordered)
        with monkeypatch.context() as patched:
            patched.setattr(PopState, "ordered" if ordered else "done", killed)
            with pytest.raises(RuntimeError):
                world.popping.pops.bury(GROUP, TOPIC, given.handle)
        world.crash()
        for _ in range(2):
            world.popping.pops.bury(GROUP, TOPIC, given.handle)
        await world.after(1_000_000)
        assert world.bodies_in(LETTERS) == [b"x"]
        assert bodies(world.pop(ordered=ordered)) == [b"y"]


async def test_a_message_that_was_given_away_again_cannot_be_given_up(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop(invisible_ms=1_000)
        await world.after(1_000)
        with pytest.raises(Exception, match="receipt handle") as refused:
            world.popping.pops.bury(GROUP, TOPIC, given.handle)
        assert getattr(refused.value, "code", None) == Code.NO_MESSAGE
        assert world.bodies_in(LETTERS) == []
