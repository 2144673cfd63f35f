"""Random histories of what a group pops, beside a plain model of it: a few lists.

The model knows messages by what a consumer sees: body and attempt. Deliveries in flight have a time at which they end.
A crash changes nothing in the model: that is the claim. Members of the group share the queues as RocketMQ's broker
shares them (``popShareQueueNum``): each pops one queue, or any; what it has in hand stays its own over a rebalance.
"""

import random
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import msgspec
from dejamq_broker.pop.query import ANY_QUEUE
from dejamq_broker.tables.offsets import Asker, Position
from pop_world import GROUP, TOPIC, Given, PopWorld, bodies

QUEUES, TRIES = 2, 4
INVISIBLE_MS = (1_000, 5_000, 20_000)
START_MS = 10
"""No start takes less. Pop times run ahead of the clock by a few ms, and a start does not know those of ended pops."""
SHARES = ((ANY_QUEUE, ANY_QUEUE), (0, 1), (1, 0), (0, 0), (0, ANY_QUEUE))
"""The queue of each of two members."""


class Delivery(msgspec.Struct, eq=False):
    """``place`` is queue and offset of a first delivery; retries have none."""

    given: Given
    until_ms: int
    place: tuple[int, int] | None
    state: str = "flight"


class PopMachine:
    """``run`` makes one history. Raises AssertionError where broker and model part."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.world, self.chance = PopWorld(directory, QUEUES), chance
        self.world.domain.tables.groups.update(GROUP, retry_max_times=TRIES)
        self.queues: list[list[bytes]] = [[] for _ in range(QUEUES)]
        self.next = [0] * QUEUES
        self.retries: Counter[tuple[bytes, int]] = Counter()
        self.dead: Counter[bytes] = Counter()
        self.deliveries: list[Delivery] = []
        self.shares = SHARES[0]
        self.sent = 0
        self.told: list[str] = []

    async def run(self, steps: int) -> None:
        kinds = [self.send, self.pop, self.pop, self.ack, self.ack, self.change, self.time, self.crash, self.stop]
        seldom = [self.flush, self.reset, self.rebalance]
        points = patch("dejamq_broker.pop.service.POINT_MESSAGES", self.chance.choice((2, 32)))
        try:
            with points:  # a pop makes several check points here and there
                for _ in range(steps):
                    step = self.chance.choice([*kinds, *seldom] if self.chance.random() < 0.3 else kinds)
                    self.told.append(step.__name__)
                    await step()
                await self.drain()
        except AssertionError as error:
            raise AssertionError(f"after {' '.join(self.told)}: {error}") from error
        finally:
            self.world.close()

    # steps

    async def send(self) -> None:
        queue_id = self.chance.randrange(QUEUES)
        for _ in range(self.chance.randint(1, 6)):
            body = b"m%d" % self.sent
            self.sent += 1
            self.queues[queue_id].append(body)
            self.world.send(body, queue_id=queue_id)

    async def pop(self, most: int = 0) -> None:
        """By one of the members, of its share; retries are everybody's."""
        most, invisible_ms = most or self.chance.randint(1, 8), self.chance.choice(INVISIBLE_MS)
        member = self.chance.randrange(len(self.shares))
        share, asker = self.shares[member], Asker(f"c{member}", f"b{member}", len(self.told))
        given = self.world.pop(most, invisible_ms, queue_id=share, asker=asker)
        queues = range(QUEUES) if share == ANY_QUEUE else (share,)
        waiting = sum(len(self.queues[one]) - self.next[one] for one in queues) + self.retries.total()
        assert len(given) == min(most, waiting), f"{len(given)} of {waiting} were given, {most} were asked for"
        for each in given:
            self._given(each, self.world.now_ms + invisible_ms)

    async def ack(self) -> None:
        if not self.deliveries:
            return
        chosen = self.chance.sample(self.deliveries, min(len(self.deliveries), self.chance.randint(1, 4)))
        for delivery, code in zip(chosen, self.world.ack(*(each.given for each in chosen)), strict=True):
            if delivery.state == "flight":
                assert code == 0, f"{delivery} was refused with {code}"
                delivery.state = "done"
            elif delivery.state == "over":
                # a start reads no more what was given again long ago, and cannot tell it from what is done
                assert code in (0, 208), f"{delivery} was refused with {code}"

    async def change(self) -> None:
        if not self.deliveries:
            return
        delivery = self.chance.choice(self.deliveries)
        invisible_ms = self.chance.choice((0, *INVISIBLE_MS))
        changed = self.world.change(delivery.given, invisible_ms)
        if delivery.state != "flight":
            assert changed == 208, f"{delivery} could be changed"
            return
        assert not isinstance(changed, int), f"{delivery} was refused with {changed}"
        if self.chance.random() < 0.7:  # else the answer is lost, and the old handle is used on
            delivery.given = changed
        delivery.until_ms = changed.handle.pop_time + changed.handle.invisible_ms

    async def time(self, ms: int = 0) -> None:
        await self.world.after(ms or self.chance.choice((1, 500, 3_000, 30_000)))
        for delivery in self.deliveries:
            if delivery.state == "flight" and delivery.until_ms <= self.world.now_ms:
                delivery.state = "over"
                if delivery.given.attempt > TRIES:
                    self.dead[delivery.given.body] += 1
                else:
                    self.retries[delivery.given.body, delivery.given.attempt + 1] += 1

    async def crash(self) -> None:
        self.world.now_ms += START_MS
        self.world.crash()

    async def flush(self) -> None:
        await self.world.flush()

    async def stop(self) -> None:
        if self.chance.random() < 0.3:
            self.world.now_ms += START_MS
            await self.world.restart()

    async def reset(self) -> None:
        """What is behind the offset comes again as new; what is in flight before it stays so."""
        queue_id = self.chance.randrange(QUEUES)
        offset = self.chance.randint(0, len(self.queues[queue_id]))
        at, offsets = Position(GROUP, TOPIC, queue_id), self.world.domain.tables.offsets
        offsets.move(at, offset, by="reset")
        if self.world.popping.state.flights.get(at) is None:  # then only the file has it, which a broker writes at once
            await offsets.flush()
        self.next[queue_id] = offset
        for delivery in self.deliveries:
            if delivery.place is not None and delivery.place[0] == queue_id and delivery.place[1] >= offset:
                delivery.state = "over" if delivery.state == "flight" else delivery.state

    async def rebalance(self) -> None:
        """The members have other shares from now on."""
        self.shares = self.chance.choice(SHARES)

    async def drain(self) -> None:
        """Everything comes to an end, and nothing is left."""
        self.shares = SHARES[0]
        while True:
            await self.time(30_000)
            self.world.crash()
            before = len(self.deliveries)
            await self.pop(32)
            self.world.crash()
            if len(self.deliveries) == before:
                break
            new = self.deliveries[before:]
            assert not any(self.world.ack(*(each.given for each in new)))
            for delivery in new:
                delivery.state = "done"
        assert self.next == [len(queue) for queue in self.queues]
        assert not self.retries.total()
        assert Counter(self.world.bodies_in(f"%DLQ%{GROUP}")) == self.dead, "other dead letters than the model's"
        ever = {each.given.body for each in self.deliveries} | set(self.dead)
        skipped = {body for queue in self.queues for body in queue} - ever
        assert not skipped or "reset" in self.told, f"never given: {bodies([])} {skipped}"

    def _given(self, given: Given, until_ms: int) -> None:
        place = None
        if given.topic == TOPIC:
            queue_id, offset = given.handle.queue_id, given.handle.queue_offset
            assert offset == self.next[queue_id], f"{given} is not the next one, which is {self.next[queue_id]}"
            assert (given.body, given.attempt) == (self.queues[queue_id][offset], 1)
            self.next[queue_id] += 1
            place = queue_id, offset
        else:
            assert self.retries[given.body, given.attempt] > 0, f"{given} was in flight, or done"
            self.retries[given.body, given.attempt] -= 1
        self.deliveries.append(Delivery(given, until_ms, place))
