"""Random histories of what a group pops in order, beside a plain model: a list, and the batch that somebody has of it.

A crash changes nothing in the model: that is the claim.
"""

import random
from collections import Counter
from pathlib import Path

import msgspec
from dejamq_broker.tables.offsets import Position
from pop_world import GROUP, TOPIC, Given, PopWorld

QUEUES, TRIES = 2, 2
INVISIBLE_MS = (1_000, 5_000, 20_000)


class ModelQueue(msgspec.Struct, eq=False):
    """``next`` is the first message that is not done. The rest is about the last batch; ``until`` tells who is busy."""

    bodies: list[bytes] = []
    next: int = 0
    pop_time: int = 0
    until: dict[int, int] = {}
    counts: dict[int, int] = {}
    done: set[int] = set()
    attempt: str = ""

    @property
    def left(self) -> list[int]:
        return [offset for offset in sorted(self.until) if offset not in self.done]

    def move_on(self) -> None:
        self.next = next(iter(self.left), max(self.until) + 1)

    def forget(self, offset: int) -> None:
        self.next, self.pop_time, self.attempt = offset, 0, ""
        self.until, self.counts, self.done = {}, {}, set()


class OrderedPopMachine:
    """``run`` makes one history. Raises AssertionError where broker and model part."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.world, self.chance = PopWorld(directory, QUEUES), chance
        self.world.domain.tables.groups.update(GROUP, retry_max_times=TRIES)
        self.queues = [ModelQueue() for _ in range(QUEUES)]
        self.given: list[Given] = []
        self.dead: Counter[bytes] = Counter()
        self.sent = 0
        self.told: list[str] = []

    async def run(self, steps: int) -> None:
        kinds = [self.send, self.pop, self.pop, self.ack, self.ack, self.change, self.time, self.crash, self.stop]
        try:
            for _ in range(steps):
                step = self.chance.choice([*kinds, self.flush, self.reset] if self.chance.random() < 0.3 else kinds)
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
            self.queues[queue_id].bodies.append(body)
            self.world.send(body, queue_id=queue_id)

    async def pop(self) -> None:
        queue_id = self.chance.randrange(QUEUES)
        attempt = self.chance.choice(("", "", self.queues[queue_id].attempt, f"a{self.chance.random()}"))
        self.pop_of(queue_id, self.chance.randint(1, 6), self.chance.choice(INVISIBLE_MS), attempt)

    def pop_of(self, queue_id: int, most: int, invisible_ms: int, attempt: str = "") -> list[Given]:
        found = self.world.pop(most, invisible_ms, queue_id=queue_id, ordered=True, attempt_id=attempt)
        queue = self.queues[queue_id]
        again = bool(attempt) and attempt == queue.attempt
        busy = any(queue.until[offset] > self.world.now_ms for offset in queue.left)
        offsets = [] if busy and not again else self._wanted(queue, most)
        before = queue.counts if queue.until else {}
        counts = {
            offset: before.get(offset, 0) + (not again) if offset in queue.until else 0 for offset in offsets
        }  # fmt: skip
        wanted = [(queue.bodies[offset], offset, counts[offset] + 1) for offset in offsets]
        told = [(each.body, each.handle.queue_offset, each.attempt) for each in found]
        assert told == wanted, f"{told} of queue {queue_id}, and not {wanted}"
        if found:
            queue.done = {offset for offset in queue.done if offset > offsets[0]}
            until = self.world.now_ms + invisible_ms
            queue.until = dict.fromkeys(queue.done, 0) | dict.fromkeys(offsets, until)
            queue.counts, queue.attempt, queue.pop_time = counts, attempt, found[0].handle.pop_time
        self.given += found
        return found

    def _wanted(self, queue: ModelQueue, most: int) -> list[int]:
        """What is read of the queue, without what is done or has no try left."""
        while True:
            read = range(queue.next, min(queue.next + most, len(queue.bodies)))
            for offset in read:
                if offset in queue.left and queue.counts.get(offset, 0) >= TRIES:
                    queue.done.add(offset)
                    self.dead[queue.bodies[offset]] += 1
            wanted = [offset for offset in read if offset not in queue.done]
            if wanted or not read:
                return wanted
            queue.move_on()

    async def ack(self) -> None:
        chosen = self.chance.sample(self.given, min(len(self.given), self.chance.randint(1, 4)))
        for each, code in zip(chosen, self.world.ack(*chosen), strict=True):
            queue, offset = self.queues[each.handle.queue_id], each.handle.queue_offset
            if offset in queue.done or offset < queue.next:
                # a start reads no more what was done long ago, and cannot tell it from what was given again
                assert code in (0, 208), f"{each} was answered {code}"
            elif queue.until and each.handle.pop_time == queue.pop_time:
                assert code == 0, f"{each} was refused with {code}"
                queue.done.add(offset)
                queue.move_on()
            else:
                assert code == 208, f"{each} was answered {code}"

    async def change(self) -> None:
        if not self.given:
            return
        each, ms = self.chance.choice(self.given), self.chance.choice((0, *INVISIBLE_MS))
        queue, offset = self.queues[each.handle.queue_id], each.handle.queue_offset
        changed = self.world.change(each, ms)
        if queue.until and each.handle.pop_time == queue.pop_time and offset not in queue.done:
            assert not isinstance(changed, int), f"{each} was refused with {changed}"
            queue.until[offset] = self.world.now_ms + ms
        else:
            assert changed == 208, f"{each} could be changed"

    async def time(self) -> None:
        await self.world.after(self.chance.choice((1, 500, 3_000, 30_000)))

    async def crash(self) -> None:
        self.world.now_ms += 1  # no start takes less
        self.world.crash()

    async def flush(self) -> None:
        await self.world.flush()

    async def stop(self) -> None:
        if self.chance.random() < 0.3:
            self.world.now_ms += 1
            await self.world.restart()

    async def reset(self) -> None:
        """Everything of the queue is as if nobody had popped it, from there on."""
        queue_id = self.chance.randrange(QUEUES)
        queue, at = self.queues[queue_id], Position(GROUP, TOPIC, queue_id)
        offset = self.chance.randint(0, len(queue.bodies))
        offsets = self.world.domain.tables.offsets
        offsets.move(at, offset, by="reset")
        if self.world.popping.state.orders.get(at) is None:  # then only the file has it, which a broker writes at once
            await offsets.flush()
        queue.forget(offset)

    async def drain(self) -> None:
        """Everything comes to an end, and nothing is left."""
        for queue_id, queue in enumerate(self.queues):
            while queue.next < len(queue.bodies):
                await self.world.after(30_000)
                self.world.crash()
                for each in self.pop_of(queue_id, 32, 1_000):
                    assert self.world.ack(each) == [0]
                    queue.done.add(each.handle.queue_offset)
                if queue.until:
                    queue.move_on()
            committed = self.world.domain.tables.offsets.get(Position(GROUP, TOPIC, queue_id))
            assert committed in (None, len(queue.bodies)), f"queue {queue_id} is at {committed}"
        assert Counter(self.world.bodies_in(f"%DLQ%{GROUP}")) == self.dead, "other dead letters than the model's"
