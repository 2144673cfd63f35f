"""The timer: when messages come, how often, and what a crash or a lost file changes about it."""

import asyncio
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store import StoreFull
from dejamq_broker.tables.offsets import Asker
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.recall_handle import RecallHandle
from delay_world import Clock
from journalled import journalled
from lease import OVER, lease_ends
from timer_world import BACKOFF_MS, TIMER, Limits, World, world

START = Clock().now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_message_comes_when_its_second_is_over_and_never_early(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        here.send("exact", TIMER_DELIVER_MS=START + 5000)
        here.send("between", TIMER_DELAY_MS=5001)
        assert (await here.at(START + 4999)).keys() == []
        assert (await here.at(START + 5000)).keys() == ["exact"]
        assert (await here.at(START + 5999)).keys() == ["exact"]
        assert (await here.at(START + 6000)).keys() == ["exact", "between"]
        exact = here.records()[0]
        assert (exact.born_timestamp_ms, exact.born_host, exact.queue_id) == (17, ("1.2.3.4", 5), 1)
        assert exact.properties == {
            "UNIQ_KEY": "exact", "TIMER_DELIVER_MS": str(START + 5000), "TIMER_OUT_MS": str(START + 4000),
            "REAL_TOPIC": "orders", "REAL_QID": "1", "TIMER_ENQUEUE_MS": str(START),
            "TIMER_DEQUEUE_MS": str(START + 5000),
        }  # fmt: skip
        assert [(one.kind, one.ref) for one in here.deliveries] == [
            ("timer", f"{START + 4000}:0"), ("timer", f"{START + 5000}:1"),
        ]  # fmt: skip


async def test_messages_of_one_slot_come_in_the_order_in_which_they_were_stored(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        for number in range(200):
            here.send(str(number), TIMER_DELIVER_MS=START + 5000 + number % 3)
            if not number % 50:
                await here.service.step()
        await here.at(START + 7000)
        assert sorted(here.keys(), key=lambda key: (int(key) % 3 > 0, int(key))) == here.keys()


async def test_what_became_due_before_it_was_looked_at_comes_with_the_next_slot(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        await here.at(START)
        here.send("a", TIMER_DELAY_MS=1500)
        clock.now_ms = START + 60_000
        here.send("b", TIMER_DELAY_MS=1500)
        await here.at(START + 60_000)
        assert here.keys() == ["a"]
        assert (await here.at(START + 62_000)).keys() == ["a", "b"]


async def test_a_recalled_message_never_comes_and_others_do(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        for key in ("a", "b", "c"):
            here.send(key, TIMER_DELIVER_MS=START + 5000)
        assert here.recall("b", START + 4000) == "b"
        assert here.recall("unknown", START + 4000) == "unknown"
        clock.now_ms = START + 4000
        here.recall("c", START + 4000)
        assert (await here.at(START + 5000)).keys() == ["a"]
        assert (await here.at(START + 9000)).keys() == ["a"]


async def test_a_recall_after_which_the_lease_is_over_is_not_called_done(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    with world(tmp_path, clock) as here:
        here.send("a", TIMER_DELIVER_MS=START + 5000)
        lease_ends(here.writer, monkeypatch)
        with pytest.raises(DejamqError, match=OVER):
            here.recall("a", START + 4000)
        assert (await here.at(START + 9000)).keys() == [], "the mark is stored"


async def test_the_marks_of_a_rocketmq_of_before_5_3_2_name_the_unique_key_alone(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        here.send("a", TIMER_DELIVER_MS=START + 5000)
        here.send("mark", TIMER_DELIVER_MS=START + 5000, TIMER_DEL_UNIQKEY="a")
        assert (await here.at(START + 5000)).keys() == []


@pytest.mark.parametrize("mark", ["a", "orders+a"])
async def test_a_mark_of_another_topic_recalls_nothing(tmp_path: Path, clock: Clock, mark: str) -> None:
    """Who may send to a topic may recall what is in it, and nothing else."""
    with world(tmp_path, clock) as here:
        here.send("a", TIMER_DELIVER_MS=START + 5000)
        here.send("mark", topic="others", TIMER_DELIVER_MS=START + 5000, TIMER_DEL_UNIQKEY=mark)
        came = (await here.at(START + 5000)).keys()
        assert "a" in came


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        ({}, Code.ILLEGAL_OPERATION), ({"broker_name": "broker-b"}, Code.ILLEGAL_OPERATION),
        ({"topic": "others"}, Code.ILLEGAL_OPERATION),
    ],
    ids=["its slot has begun", "of another broker", "of another topic"],
)  # fmt: skip
async def test_a_recall_that_cannot_be_sure_is_refused(
    tmp_path: Path, clock: Clock, handle: dict[str, Any], code: Code
) -> None:
    timestamp_ms = START + (4001 if handle else 0)
    known: dict[str, Any] = {"topic": "orders", "broker_name": "broker-a", "timestamp_ms": timestamp_ms}
    text = RecallHandle(**(known | handle), message_id="a").encode()
    with world(tmp_path, clock) as here, pytest.raises(DejamqError) as refused:
        here.recalls.recall("orders", text, "g", Asker(), (0, 0))
    assert refused.value.code is code


@pytest.mark.parametrize("text", ["", "x", "djEgb3JkZXJz", "$$$", "djIgYSBiIDEgYw==", "djEgYSBiIMOkIGM="])
async def test_a_text_that_is_no_handle_is_refused(tmp_path: Path, clock: Clock, text: str) -> None:
    with world(tmp_path, clock) as here, pytest.raises(DejamqError) as refused:
        here.recalls.recall("orders", text, "g", Asker(), (0, 0))
    assert refused.value.code is Code.ILLEGAL_OPERATION


async def test_what_waits_long_is_stored_again_on_its_way_and_comes_once(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock, Limits(window=100)) as here:
        here.send("far", TIMER_DELAY_SEC=250)
        here.send("recalled", TIMER_DELAY_SEC=250)
        here.recall("recalled", START + 249_000)
        for second in range(1, 250):
            assert (await here.at(START + second * 1000)).keys() == []
        assert (await here.at(START + 250_000)).keys() == ["far"]
        rolled = [one for one in here.deliveries if one.kind == "timer_roll"]
        assert len(rolled) == 3 * 2  # by 100 s each time, and the last time by half of that
        assert here.records()[0].properties["TIMER_ROLL_TIMES"] == "2"


async def test_a_clean_restart_repeats_nothing_and_loses_nothing(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        here.send("a", TIMER_DELAY_SEC=2)
        here.send("b", TIMER_DELAY_SEC=5)
        await here.at(START + 3000)
        await here.service.flush()
    with world(tmp_path, clock) as here:
        here.send("c", TIMER_DELAY_SEC=1)
        assert (await here.at(START + 60_000)).keys() == ["a", "c", "b"]


async def test_a_crash_repeats_what_was_delivered_since_the_progress_was_written(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        for second in range(1, 6):
            here.send(str(second), TIMER_DELAY_SEC=second)
        await here.at(START + 2000)
        await here.service.flush()
        assert (await here.at(START + 4000)).keys() == ["1", "2", "3", "4"]
    with world(tmp_path, clock) as here:
        assert (await here.at(START + 9000)).keys() == ["1", "2", "3", "4", "3", "4", "5"]
        lines = journalled(tmp_path / "j.jsonl")
        told = [json.loads(line["progress"]) for line in lines if line["event"] in ("PROGRESS_LOAD", "PROGRESS_FLUSH")]
        assert [(one["read_ms"], one["queue_offset"]) for one in told] == [
            (0, 0), (START + 2000, 5), (START + 2000, 5),
        ]  # fmt: skip


async def test_a_slot_that_was_half_done_goes_on_where_the_progress_says(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        for number in range(50):
            here.send(str(number), TIMER_DELIVER_MS=START + 5000)
        put = here.writer.put

        def until_full(record: Any, origin: Any) -> Any:
            if len(here.deliveries) == 20:
                raise StoreFull("no room")
            return put(record, origin)

        here.writer.put = until_full  # type: ignore[method-assign]  # the disk is full from there on
        await here.at(START + 5000)
        await here.service.flush()
    with world(tmp_path, clock) as here:
        assert (await here.at(START + 5000)).keys() == [str(number) for number in range(50)]


async def test_a_store_that_takes_nothing_is_asked_again_after_a_rest(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        here.send("a", TIMER_DELAY_SEC=1)
        put = here.writer.put
        here.writer.put = refusing  # type: ignore[method-assign,assignment]  # the disk is full
        await here.at(START + 2000)
        here.writer.put = put  # type: ignore[method-assign]
        assert (await here.at(START + 2000 + BACKOFF_MS - 1)).keys() == []
        assert (await here.at(START + 2000 + BACKOFF_MS)).keys() == ["a"]


def refusing(*_: object) -> Any:
    raise StoreFull("no room")


@pytest.mark.parametrize("gone", ["timerwheel", "timerlog", "both"])
async def test_a_lost_file_is_made_anew_and_repeats_nothing(tmp_path: Path, clock: Clock, gone: str) -> None:
    with world(tmp_path, clock, Limits(window=100)) as here:
        await fill(here)
        await here.service.flush()
    store = tmp_path / "store"
    if gone != "timerlog":
        (store / "timerwheel").unlink()
    if gone != "timerwheel":
        shutil.rmtree(store / "timerlog")
    with world(tmp_path, clock, Limits(window=100)) as here:
        assert_all_once(await finished(here))


async def test_slots_of_another_length_are_made_anew(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        await fill(here)
        await here.service.flush()
    with world(tmp_path, clock, Limits(precision_ms=500)) as here:
        assert_all_once(await finished(here))


async def test_a_crash_while_the_wheel_is_made_anew_loses_nothing(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        await fill(here)
        await here.service.flush()
    (tmp_path / "store" / "timerwheel").unlink()
    with world(tmp_path, clock):
        pass  # it began to, and had no time
    with world(tmp_path, clock) as here:
        assert_all_once(await finished(here))


async def test_a_slave_that_becomes_the_master_goes_on_by_the_progress_that_it_copied(
    tmp_path: Path, clock: Clock
) -> None:
    with world(tmp_path, clock) as here:
        await fill(here)
        told = here.progress.content()
    shutil.rmtree(tmp_path / "store" / "timerlog")
    (tmp_path / "store" / "timerwheel").unlink()
    with world(tmp_path, clock) as here:
        here.progress.take_copy(told["read_ms"], told["queue_offset"])
        await here.service.flush()
        check = (tmp_path / "store" / "config" / "timercheck").read_bytes()
        assert struct.unpack_from(">4q", check) == (told["read_ms"], 0, 0, 0), "a RocketMQ would pass over what waits"
    with world(tmp_path, clock) as here:
        assert_all_once(await finished(here))


@pytest.mark.parametrize("windows", [(120, 16), (16, 120)], ids=["shorter", "longer"])
@pytest.mark.parametrize("copied", [False, True], ids=["restarted", "promoted"])
async def test_a_start_with_another_longest_wait_delivers_every_message_once(
    tmp_path: Path, clock: Clock, windows: tuple[int, int], copied: bool
) -> None:
    """It follows from how long log files are kept, which an operator changes, and a slave may have otherwise."""
    before, after = (Limits(window=window) for window in windows)
    with world(tmp_path, clock, before) as here:
        await fill(here)
        await here.service.flush()
        told = here.progress.content()
    if copied:
        shutil.rmtree(tmp_path / "store" / "timerlog")
        (tmp_path / "store" / "timerwheel").unlink()
        (tmp_path / "store" / "config" / "timercheck").unlink()
        with world(tmp_path, clock, after) as here:
            here.progress.take_copy(**told)
            await here.service.flush()
    for _ in range(2):  # the second start has what the first one left
        with world(tmp_path, clock, after) as here:
            await here.at(clock.now_ms + 5000)
            await here.service.flush()
    with world(tmp_path, clock, after) as here:
        assert_all_once(await finished(here))


async def test_units_that_the_crash_left_without_a_slot_are_found(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        await fill(here)
        await here.service.flush()
        wheel = (tmp_path / "store" / "timerwheel").read_bytes()
        here.send("late", TIMER_DELAY_SEC=80)
        here.send("later", TIMER_DELAY_SEC=81)
        await here.service.step()
    (tmp_path / "store" / "timerwheel").write_bytes(wheel)
    with world(tmp_path, clock) as here:
        assert_all_once(await finished(here), more=("late", "later"))


async def test_a_torn_unit_is_cut_and_its_message_taken_from_the_topic_again(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        await fill(here)
        await here.service.flush()
        here.send("late", TIMER_DELAY_SEC=80)
        await here.service.step()
        end = here.unit_log.end
    name, at = f"{end // 4096 * 4096:020d}", end % 4096
    with (tmp_path / "store" / "timerlog" / name).open("r+b") as file:
        file.seek(at - 52)
        file.write(bytes(52))
    with world(tmp_path, clock) as here:
        assert_all_once(await finished(here), more=("late",))


async def test_strangers_records_and_those_of_pop_are_passed_over(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        for properties in (
            {}, {"TIMER_OUT_MS": "soon"}, {"TIMER_OUT_MS": "1" * 4000, "REAL_TOPIC": "orders", "REAL_QID": "1"},
            {"TIMER_OUT_MS": START, "REAL_TOPIC": "rmq_sys_REVIVE_LOG_c", "REAL_QID": "0"},
            {"TIMER_OUT_MS": START}, {"TIMER_OUT_MS": START, "REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "1"},
            {"TIMER_OUT_MS": START, "REAL_TOPIC": "deleted", "REAL_QID": "1"},
        ):  # fmt: skip
            here.send("x", topic=TIMER, **properties)
        here.send("good", TIMER_DELAY_SEC=1)
        assert (await here.at(START + 5000)).keys() == ["good"]
        assert [one.ref for one in here.deliveries] == [f"{START}:7"]


async def test_records_of_pop_in_the_wheel_of_a_rocketmq_are_left_to_pop(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        here.topics.ensure("rmq_sys_REVIVE_LOG_other", 1)
        here.send("ck", topic="rmq_sys_REVIVE_LOG_other", TIMER_DELAY_SEC=5)
        await here.at(START)
        assert here.service.waiting == 1
        here.service.left_to_others = "rmq_sys_REVIVE_LOG_other"  # as it is at the broker that opens the store
        here.send("good", TIMER_DELAY_SEC=5)
        assert (await here.at(START + 9000)).keys() == ["good"]
        assert len(here.deliveries) == 1


async def test_many_due_at_once_leave_the_loop_to_others(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock, mapped_file_size_commit_log=16 << 20) as here:
        for number in range(3000):
            here.send(str(number), TIMER_DELIVER_MS=START + 5000)
        clock.now_ms = START + 5000
        step = asyncio.ensure_future(here.service.step())
        turns = 0
        while not step.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(here.keys()) == 3000
        assert turns > 10


async def test_files_of_the_timer_log_go_with_the_log(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        for number in range(300):
            here.send(str(number), TIMER_DELAY_SEC=5)
        await here.service.step()
        names = sorted(path.name for path in (tmp_path / "store" / "timerlog").iterdir())
        assert len(names) == 4
        here.unit_log.delete_before(0)
        assert sorted(path.name for path in (tmp_path / "store" / "timerlog").iterdir()) == names
        here.unit_log.delete_before(here.store.log_max)
        assert sorted(path.name for path in (tmp_path / "store" / "timerlog").iterdir()) == names[-1:]


async def test_time_that_passes_without_work_is_not_written(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        here.send("a", TIMER_DELAY_SEC=2)
        await here.at(START + 3000)
        await here.service.flush()
        written = (tmp_path / "store" / "config" / "timercheck").read_bytes()
        await here.at(START + 90_000)
        await here.service.flush()
        assert (tmp_path / "store" / "config" / "timercheck").read_bytes() == written
        here.send("b", TIMER_DELAY_SEC=2)
        await here.at(START + 91_000)
        await here.service.flush()
        assert (tmp_path / "store" / "config" / "timercheck").read_bytes() != written


async def test_the_number_that_wait_is_told(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as here:
        await fill(here)
        assert here.service.waiting == 40
        here.send("more", TIMER_DELAY_SEC=50)
        assert (here.service.waiting, here.service.messages_behind) == (41, 1)
        clock.now_ms += 7000
        assert here.service.behind_ms == 7000


async def fill(here: World) -> None:
    """100 messages due within 100 s, of which 60 are delivered."""
    for number in range(100):
        here.send(str(number), TIMER_DELAY_SEC=number + 1)
        if number % 7 == 0:
            await here.service.step()
    await here.at(START + 60_000)
    assert len(here.keys()) == 60


async def finished(here: World) -> list[str]:
    for second in range(60, 200):
        await here.at(START + second * 1000)
    return here.keys()


def assert_all_once(keys: list[str], more: tuple[str, ...] = ()) -> None:
    assert sorted(keys) == sorted([*map(str, range(100)), *more])


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_any_history_ends_with_every_message_delivered_as_often_as_its_crashes_explain(
    tmp_path: Path, chance: random.Random
) -> None:
    for number in range(12):
        await Histories(tmp_path / str(number), chance).run()


class Histories:
    """Sends, recalls, turns, flushes, restarts and crashes at random, beside what has to come of them.

    A crash keeps all files, as a killed process does; it forgets what was delivered since the last flush. Now and then
    a file of the timer is lost too.
    """

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._directory, self._chance, self._clock = directory, chance, Clock()
        directory.mkdir()
        self._limits = Limits(chance.choice([200, 1000]), chance.choice([20, 172_800]), 4096)
        self._due: dict[str, int] = {}
        self._recalled: set[str] = set()
        self._seen: dict[str, int] = {}
        self._twice: set[str] = set()
        self._since_flush: set[str] = set()

    async def run(self) -> None:
        for _ in range(self._chance.randint(2, 5)):
            with world(self._directory, self._clock, self._limits) as here:
                for _ in range(self._chance.randint(1, 60)):
                    await self._one(here)
                if self._chance.random() < 0.5:
                    await here.service.flush()
                    self._since_flush.clear()
            self._twice |= self._since_flush
            self._since_flush.clear()
            self._lose_a_file()
        with world(self._directory, self._clock, self._limits) as here:
            for _ in range(60):
                self._clock.now_ms += 2000
                await self._turn(here)
        expected = self._due.keys() - self._recalled
        assert expected <= self._seen.keys() <= set(self._due)
        assert not self._recalled & self._seen.keys()
        assert {key for key, count in self._seen.items() if count > 1} <= self._twice

    async def _one(self, here: World) -> None:
        dice = self._chance.random()
        if dice < 0.5:
            self._send(here)
        elif dice < 0.6 and self._due:
            self._recall(here)
        elif dice < 0.65:
            await here.service.flush()
            self._since_flush.clear()
        else:
            self._clock.now_ms += self._chance.choice([1, 50, 1000, 1000, 5000])
            await self._turn(here)

    def _send(self, here: World) -> None:
        key, delay_ms = f"k{len(self._due)}", self._chance.randint(1, 60_000)
        self._due[key] = self._clock.now_ms + delay_ms
        here.send(key, TIMER_DELAY_MS=delay_ms)

    def _recall(self, here: World) -> None:
        key = self._chance.choice(sorted(self._due))
        try:
            here.recall(key, here.rules.out_ms(self._due[key]))
        except DejamqError:
            return
        self._recalled.add(key)

    async def _turn(self, here: World) -> None:
        before = len(here.keys())
        await here.service.step()
        for key in here.keys()[before:]:
            assert self._due[key] <= self._clock.now_ms, "early"
            self._seen[key] = self._seen.get(key, 0) + 1
            self._since_flush.add(key)
        self._since_flush |= set(here.rolled)  # one that is stored twice to wait on comes twice
        here.rolled.clear()

    def _lose_a_file(self) -> None:
        store = self._directory / "store"
        if self._chance.random() < 0.2:
            (store / "timerwheel").unlink(missing_ok=True)
        if self._chance.random() < 0.2:
            shutil.rmtree(store / "timerlog", ignore_errors=True)
