"""Graceful hand-over against a real broker: what becomes of running handlers, killed owners and restarts."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, running
from consumer_cluster import QUICK, Servers, servers, until
from dejamq import ConsumeStatus, PushConsumer, ReceivedMessage
from dejamq_proto import client_pb2 as pb
from dejamq_proto.client_pb2_grpc import HandoverStub
from dejamq_proto.common_pb2 import QueueKey
from handover_proof import given_too_early, lines_of, owned_twice

NO_END_MS = 600_000
"""Longer than any test, for claims that must not end however busy the machine is."""
GRACEFUL: dict[str, Any] = QUICK | {"graceful_handover": True, "claim_trust_ms": NO_END_MS}
LIFE_MS = 1_500


class Handler:
    """Remembers what it was given; ``held`` bodies wait for ``go_on``."""

    def __init__(self, *held: str) -> None:
        self.entered: list[str] = []
        self.held, self.go_on = set(held), asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        body = message.body.decode()
        self.entered.append(body)
        if body in self.held:
            await self.go_on.wait()


def written(directory: Path, **settings: Any) -> AbstractAsyncContextManager[Servers]:
    """Servers whose journal is on disk before anybody sees the effect."""
    return servers(directory, journal_level="forensic", **settings)


def member(here: Servers, handler: Any, **settings: Any) -> PushConsumer:
    consumer = here.consumer(**{**GRACEFUL, **settings})
    consumer.subscribe("orders", handler)
    return consumer


def too_early(here: Servers) -> list[str]:
    """Queues that the broker gave away too early."""
    return given_too_early(lines_of(here.directory / "servers"), here.settings["claim_life_ms"])


def against(here: Servers) -> list[str]:
    """What the journals have against it where nobody was killed."""
    return too_early(here) + owned_twice(lines_of(here.directory / "journal"))


async def test_a_running_handler_is_waited_for_and_its_message_does_not_come_again(tmp_path: Path) -> None:
    """Without graceful hand-over it does, with certainty (cause O9)."""
    bodies = [str(number) for number in range(8)]
    slow, quick = Handler(*bodies), Handler()
    async with written(tmp_path, claim_life_ms=NO_END_MS) as here:
        await here.send(*bodies)
        async with member(here, slow, max_concurrency=8) as one:
            await until(lambda: len(slow.entered) == 8)
            async with member(here, quick) as two:
                await until(lambda: len(here.server_lines("CLAIM")) > 20)
                assert (len(one.assignment), two.assignment) == (4, ())
                slow.go_on.set()
                await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                await here.send("a", "b", "c", "d")
                await until(lambda: len(slow.entered) + len(quick.entered) == 12)
        assert against(here) == []
    assert sorted(slow.entered + quick.entered) == sorted([*bodies, "a", "b", "c", "d"])


async def test_what_a_draining_queue_still_has_goes_to_the_next_owner(tmp_path: Path) -> None:
    slow, quick = Handler("0", "1", "2", "3"), Handler()
    bodies = [str(number) for number in range(100)]
    async with written(tmp_path, claim_life_ms=NO_END_MS) as here:
        for body in bodies[:8]:
            await here.send(body)
        async with member(here, slow, max_concurrency=1) as one:
            await until(lambda: slow.entered)
            await here.send(*bodies[8:])
            async with member(here, quick) as two:
                await until(lambda: len(two.assignment) + len(one.assignment) == 4 and two.assignment)
                slow.go_on.set()
                await until(lambda: len(slow.entered) + len(quick.entered) >= 100)
                await until(lambda: len(one.assignment) == len(two.assignment) == 2)
    assert sorted(slow.entered + quick.entered) == sorted(bodies)


async def test_a_message_that_fails_while_its_queue_drains_is_retried_once(tmp_path: Path) -> None:
    entered, go_on, again = list[str](), asyncio.Event(), Handler()

    async def fail(message: ReceivedMessage) -> ConsumeStatus:
        entered.append(message.body.decode())
        await go_on.wait()
        return ConsumeStatus.RECONSUME_LATER

    async with written(tmp_path, claim_life_ms=NO_END_MS) as here:
        await here.send("x")
        one = member(here, fail)
        await one.start()
        await until(lambda: entered == ["x"])
        closing = asyncio.ensure_future(one.close())
        go_on.set()
        await closing
        async with member(here, again):
            await until(lambda: again.entered)
            await here.send("y")
            await until(lambda: "y" in again.entered)
    assert sorted(again.entered) == ["x", "y"]
    assert len([line for line in here.lines("SENDBACK") if line["outcome"] == "ok"]) == 1


async def test_queues_of_a_killed_owner_wait_for_the_end_of_its_claims(tmp_path: Path) -> None:
    first, second = Handler(), Handler()
    async with written(tmp_path, claim_life_ms=LIFE_MS) as here:
        await here.send("a")
        killed = member(here, first)
        await killed.start()
        await until(lambda: first.entered and len(here.lines("PQ_OPEN", killed.boot_id)) == 5)
        await _cut_off(killed)
        async with member(here, second) as heir:
            await until(lambda: len(heir.assignment) == 4)
            await here.send("b")
            await until(lambda: "b" in second.entered)
            granted = [line for line in here.server_lines("CLAIM") if line["granted"]]
            taken = [line for line in granted if line["client_id"] == heir.client_id]
            over = [line["age_ms"] for line in taken if line.get("owner") == killed.client_id]
            assert len(over) == 5
            assert min(over) > LIFE_MS
        await killed.close(0)
        assert too_early(here) == []


async def test_an_owner_that_was_away_longer_than_its_claims_finds_its_queues_taken(tmp_path: Path) -> None:
    """Cause R6 does little harm: what it still does counts for nothing, and it cannot set the next owner back."""
    first, second = Handler("a"), Handler()
    async with written(tmp_path, claim_life_ms=LIFE_MS) as here:
        await here.send("a")
        away = member(here, first)
        await away.start()
        await until(lambda: first.entered and len([*away.inspect().rebalancer.assignment]) == 5)
        owned = list(away.inspect().rebalancer.assignment)
        await _cut_off(away)
        async with member(here, second) as heir:
            await until(lambda: len(heir.assignment) == 4 and "a" in second.entered)
            handover = away.inspect().handover
            assert handover is not None
            first.go_on.set()
            away.inspect().offsets.commit_oneway(owned)
            await handover.claims.renew()
            assert [one.dropped for one in owned] == [True] * 5
            await away.close(0)
            await here.send("b")
            await until(lambda: "b" in second.entered)
        assert too_early(here) == []
    assert sorted(second.entered) == ["a", "b"]


async def test_owners_come_first_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    """Or the member that is back first would take what the others still handle."""
    bodies = [str(number) for number in range(60)]
    handlers = [Handler(*bodies) for _ in range(3)]
    async with written(tmp_path, claim_life_ms=NO_END_MS, claim_settle_ms=4_000) as here:
        await here.send("warm")
        members = [member(here, handler, persist_consumer_offset_interval_ms=50) for handler in handlers]
        for one in members:
            await one.start()
        await until(lambda: sorted(len(one.assignment) for one in members) == [1, 1, 2])
        await until(lambda: any("warm" in handler.entered for handler in handlers))
        await until(lambda: here.server_lines("OFF_SET"))
        await here.send(*bodies)
        await until(lambda: sum(len(handler.entered) for handler in handlers) >= 31)
        await here.stop_broker()
        await here.start_broker()
        boots = here.server_lines("BOOT")
        assert len(boots) == 2
        await until(lambda: len(_claims_of(here, boots[1]["boot_id"])) >= 5)
        for handler in handlers:
            handler.go_on.set()
        await until(lambda: {*bodies} <= {body for handler in handlers for body in handler.entered})
        await until(lambda: sum(len(one.assignment) for one in members) == 4)
        for one in members:
            await one.close()
        assert against(here) == []
    assert sorted(body for handler in handlers for body in handler.entered) == sorted([*bodies, "warm"])


def _claims_of(here: Servers, boot_id: str) -> list[dict[str, Any]]:
    return [line for line in here.server_lines("CLAIM") if line["boot_id"] == boot_id and line["granted"]]


async def test_unsubscribing_keeps_the_progress(tmp_path: Path) -> None:
    """Without graceful hand-over up to 5 s of it are forgotten (cause O14)."""
    first, second = Handler(), Handler()
    never = {"persist_consumer_offset_interval_ms": NO_END_MS, "broker_suspend_max_time_ms": NO_END_MS}
    async with written(tmp_path, claim_life_ms=NO_END_MS) as here:
        await here.send(*(f"{number}" for number in range(20)))
        async with member(here, first, **never) as consumer:
            await until(lambda: len(first.entered) == 20)
            consumer.unsubscribe("orders")
            await until(lambda: not consumer.assignment)
            consumer.subscribe("orders", second)
            await until(lambda: len(consumer.assignment) == 4)
            await here.send("next")
            await until(lambda: second.entered)
    assert second.entered == ["next"]


async def test_a_member_without_it_is_told_that_the_others_have_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        async with member(here, Handler()), member(here, Handler(), graceful_handover=False) as other:
            await until(lambda: f"{other.client_id} has the hand-over immediate" in caplog.text)


async def test_claims_over_the_wire(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, Wire(broker.address, "a") as one, Wire(broker.address, "b") as two:
        first = await _claim(one, 0, 1)
        assert list(first) == [0, 1]
        assert list(await _claim(two, 1, 2)) == [2]
        assert await _release(one, 1, first[1], 7) == [1]
        assert await _release(two, 0, first[0], 9) == []
        assert (await _claim(two, 1))[1] > first[1]
        assert list(broker.domain.tables.offsets.of_group("g")) == [("orders", 1, 7)]


async def _claim(wire: Wire, *queue_ids: int) -> dict[int, int]:
    stub: Any = HandoverStub(wire.channel)
    claims = [pb.QueueClaim(queue=QueueKey(topic="orders", queue_id=queue_id)) for queue_id in queue_ids]
    answer = await wire.call(stub.Claim, pb.ClaimRequest(caller=wire.caller(), group="g", claims=claims))
    return {each.queue.queue_id: each.generation for each in answer.granted}


async def _release(wire: Wire, queue_id: int, generation: int, offset: int) -> list[int]:
    queue = QueueKey(topic="orders", queue_id=queue_id)
    releases = [pb.QueueRelease(queue=queue, generation=generation, offset=offset)]
    stub: Any = HandoverStub(wire.channel)
    answer = await wire.call(stub.Release, pb.ReleaseRequest(caller=wire.caller(), group="g", releases=releases))
    return [each.queue_id for each in answer.released]


async def _cut_off(consumer: PushConsumer) -> None:
    """What a SIGKILL looks like to the others: nothing is said, the channel just ends."""
    instance = consumer.inspect().instance
    for task in tuple(instance.inspect().tasks):
        if not task.get_name().startswith("dejamq-worker"):
            task.cancel()
    for link in instance.inspect().links.values():
        link.heartbeats.break_off("the test cut it")
    await asyncio.sleep(0)
