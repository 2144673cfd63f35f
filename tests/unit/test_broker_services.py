"""Repeated steps, delayed delivery and registration, with stand-ins for what they talk to."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_tables import delay_progress
from dejamq_broker import registrar as registrar_file
from dejamq_broker.base.periodic import Periodic
from dejamq_broker.deferred.delay import DelayService
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.registrar import Registrar, Registration
from dejamq_broker.store import ReadResult, ReadStatus, StoreFull
from dejamq_broker.writing.record_writer import RecordOrigin
from dejamq_proto.codes import BrokerUnavailable, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import Record, encode, encode_properties

HOUR_MS = 3_600_000


async def test_a_step_that_fails_is_tried_again() -> None:
    calls, twice = [0], asyncio.Event()

    async def step() -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise RuntimeError("once")
        twice.set()

    periodic = Periodic("test", 1, step)
    periodic.start()
    async with asyncio.timeout(10):
        await twice.wait()
    await periodic.close()
    await periodic.close()


async def test_closing_finishes_the_step_under_way_and_cancelling_does_not() -> None:
    started, go, finished = asyncio.Event(), asyncio.Event(), []

    async def step() -> None:
        started.set()
        await go.wait()
        finished.append(1)

    for end in ("close", "cancel"):
        started.clear()
        go.clear()
        periodic = Periodic("test", HOUR_MS, step)
        periodic.start()
        periodic.poke()
        async with asyncio.timeout(10):
            await started.wait()
            asyncio.get_running_loop().call_soon(go.set if end == "close" else lambda: None)
            await getattr(periodic, end)()
    assert finished == [1]


class Schedule:
    """A store with one level's queue, and a writer that can be made to fail."""

    def __init__(self, due_ms: list[int]) -> None:
        self._due_ms = due_ms
        self.delivered: list[tuple[int, str]] = []
        self.full = False

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self._due_ms) if queue_id == 0 else 0

    def tags_code_at(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        return self._due_ms[queue_offset]

    def read(self, topic: str, queue_id: int, queue_offset: int, *, max_messages: int, max_bytes: int) -> ReadResult:
        properties = encode_properties({"REAL_TOPIC": "t", "REAL_QID": "0"})
        end = min(queue_offset + max_messages, len(self._due_ms))
        raw = [
            encode(Record(topic=topic, queue_id=0, body=b"", raw_properties=properties, queue_offset=number))
            for number in range(queue_offset, end)
        ]
        return ReadResult(ReadStatus.FOUND, end, sizes=[len(each) for each in raw], pieces=raw)

    def put(self, record: Record, origin: RecordOrigin) -> None:
        if self.full:
            raise StoreFull("no room")
        self.delivered.append((record.queue_offset, origin.ref))


def service(schedule: Any, directory: Path, clock_ms: Callable[[], int]) -> tuple[DelayService, DelayProgress]:
    journal = Journal(None, role="broker", process="b", boot_id="x", level=Level.OFF)
    progress = delay_progress(directory / "delayOffset.json", journal, name="b")
    return DelayService(schedule, schedule, progress, (1000, 5000), clock_ms, 10_000, lambda topic: True), progress


async def test_everything_due_is_delivered_in_one_step_and_nothing_else(tmp_path: Path) -> None:
    schedule = Schedule([1] * 100 + [10_500, 10_500])
    delays, progress = service(schedule, tmp_path, lambda: 10_000)
    await delays.step()
    assert [number for number, _ in schedule.delivered] == list(range(100))
    assert schedule.delivered[7][1] == "1:7"
    assert progress.get(1) == 100


async def test_a_due_time_further_away_than_the_delay_is_due_at_once(tmp_path: Path) -> None:
    schedule = Schedule([11_001])
    await service(schedule, tmp_path, lambda: 10_000)[0].step()
    assert len(schedule.delivered) == 1


async def test_progress_stays_where_a_put_failed_until_the_pause_is_over(tmp_path: Path) -> None:
    schedule, now = Schedule([1, 1]), [10_000]
    delays, progress = service(schedule, tmp_path, lambda: now[0])
    schedule.full = True
    await delays.step()
    schedule.full = False
    await delays.step()
    assert (schedule.delivered, progress.get(1)) == ([], 0)
    now[0] += 10_000
    await delays.step()
    assert progress.get(1) == 2


@pytest.mark.parametrize(("loaded", "clamped"), [(7, 2), (1, 1), (-3, 0)])
async def test_loaded_progress_is_clamped_to_the_queue(tmp_path: Path, loaded: int, clamped: int) -> None:
    delays, progress = service(Schedule([1, 1]), tmp_path, lambda: 0)
    progress.set(1, loaded)
    delays.clamp()
    assert progress.get(1) == clamped


class NameServer:
    """A name server that answers, refuses or hangs."""

    def __init__(self, address: str, *, refuses: bool = False, hangs: bool = False) -> None:
        self.address, self.refuses, self.hangs = address, refuses, hangs
        self.registered = self.unregistered = self.asked = 0
        self.slow: asyncio.Event | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def register(self) -> None:
        self.asked += 1
        if self.slow is not None:
            await self.slow.wait()
        if self.hangs:
            await asyncio.sleep(HOUR_MS)
        if self.refuses:
            raise BrokerUnavailable("nobody there")
        self.registered += 1

    async def unregister(self, timeout_ms: float) -> None:
        self.unregistered += 1
        raise DejamqError("too late")

    async def hold(self, on_open: Callable[[], None]) -> None:
        on_open()
        await asyncio.shield(self.lost)

    async def close(self) -> None:
        pass


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)


async def test_name_servers_are_registered_at_independently_and_left_at_close() -> None:
    good, bad, hung = NameServer("a"), NameServer("b", refuses=True), NameServer("c", hangs=True)
    registrar = Registrar()
    starting = asyncio.create_task(registrar.start([Registration(link, HOUR_MS, 1) for link in (good, bad, hung)]))
    await until(lambda: good.registered >= 2)
    registrar.poke()
    await until(lambda: good.registered >= 3)
    await registrar.close()
    await starting
    assert (good.unregistered, bad.unregistered, hung.unregistered) == (1, 0, 0)


async def test_whoever_waits_for_name_servers_to_be_told_waits_out_what_was_under_way() -> None:
    link = NameServer("a")
    registration = Registration(link, HOUR_MS, 1)
    registration.start()
    await until(lambda: link.registered == 2)
    answer = link.slow = asyncio.Event()
    registration.poke()
    await until(lambda: link.asked == 3)
    waiting = asyncio.create_task(registration.told())
    await asyncio.sleep(0)
    answer.set()
    await asyncio.wait_for(waiting, 10)
    assert (link.asked, link.registered) == (4, 4)
    link.refuses = True
    await asyncio.wait_for(registration.told(), 10)
    await registration.close()


async def test_a_name_server_that_hangs_is_waited_for_a_second_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrar_file, "TOLD_S", 0.01)
    good, hung = NameServer("a"), NameServer("c", hangs=True)
    registrar = Registrar()
    starting = asyncio.create_task(registrar.start([Registration(link, HOUR_MS, 1) for link in (good, hung)]))
    await until(lambda: good.registered >= 1)
    await asyncio.wait_for(registrar.told(), 10)
    await registrar.close()
    await starting


async def test_a_lost_stream_is_opened_again_and_everything_told_anew() -> None:
    link = NameServer("a")
    registration = Registration(link, HOUR_MS, 1)
    registration.start()
    await until(lambda: link.registered == 2)
    link.lost.set_result(None)
    link.lost = asyncio.get_running_loop().create_future()
    await until(lambda: link.registered == 3)
    await registration.close()
    await registration.close()
