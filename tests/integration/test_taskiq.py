"""What the broker of taskiq does with tasks, against a real broker and taskiq's own receiver."""

import asyncio
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import servers, until
from dejamq import Admin, ConfigError, InvalidName, Producer, ReceivedMessage, RouteNotFound
from dejamq.integrations.taskiq import DejamqBroker
from dejamq_lab.duplicates import find_duplicates
from task_cluster import RESULTS, acknowledged, nothing_is_left, task_broker, working
from taskiq import (
    AsyncTaskiqDecoratedTask,
    Context,
    SendTaskError,
    SimpleRetryMiddleware,
    TaskiqDepends,
    TaskiqMessage,
    TaskiqMiddleware,
)

CONTEXT: Any = TaskiqDepends()


@pytest.fixture(autouse=True)
def _short_receives_and_patient_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is shut down waits for the end of its receive. A send may take long on a busy machine."""
    monkeypatch.setattr("dejamq.integrations.taskiq.RECEIVE_MS", 50)
    monkeypatch.setattr("dejamq.integrations.taskiq.Producer", partial(Producer, send_msg_timeout_ms=20_000))


async def dead_letters(admin: Admin) -> list[ReceivedMessage]:
    async with asyncio.timeout(20):
        while True:
            try:
                if letters := [letter async for letter in admin.dead_letters("workers")]:
                    return letters
            except RouteNotFound:
                pass  # none so far
            await asyncio.sleep(0.05)


async def test_a_task_is_executed_once_and_acknowledged_after_its_result_is_saved(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker = task_broker(here)

        @broker.task
        async def add(left: int, right: int, context: Context = CONTEXT) -> list[int]:
            assert not acknowledged(here)
            return [left + right, context.message.labels["dejamq_attempt"]]

        async with working(broker):
            await broker.startup()
            sent = await add.kiq(1, 2)
            result = await sent.wait_result(timeout=15)
            assert result.return_value == [3, 1]
            await nothing_is_left(here, 1)
        assert len(here.lines("DELIVER")) == 1


async def test_a_task_that_was_sent_before_the_first_worker_came_is_executed(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, done = task_broker(here), list[str]()

        @broker.task
        async def note(text: str) -> None:
            done.append(text)

        await broker.startup()
        for text in ("one", "two", "three"):
            await note.kiq(text)
        await broker.shutdown()
        async with working(broker):
            await until(lambda: sorted(done) == ["one", "three", "two"])


async def test_a_delayed_task_is_not_executed_before_its_time(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, executed_s = task_broker(here), list[float]()

        @broker.task
        async def note() -> None:
            executed_s.append(time.time())

        async with working(broker):
            await broker.startup()
            sent_s = time.time()
            await note.kicker().with_labels(delay=1.2).kiq()
            await until(lambda: executed_s)
        assert executed_s[0] - sent_s >= 1.2


async def test_a_task_is_found_by_its_id_and_by_its_keys_and_its_name_is_the_tag(tmp_path: Path) -> None:
    async with servers(tmp_path) as here, Admin(here.namesrv.address) as admin:
        broker = task_broker(here)
        charge = broker.register_task(lambda: None, "shop:charge")
        await broker.startup()
        sent = await charge.kicker().with_labels(keys="order-17 customer-4").kiq()
        for key in (sent.task_id, "order-17", "customer-4"):
            (found,) = await admin.messages_by_key("tasks", key)
            assert (found.tags, found.keys[0]) == ("shop:charge", sent.task_id)
        await broker.shutdown()


async def test_a_task_with_a_known_dedup_id_is_not_sent_again_but_its_retry_is(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, tries = task_broker(here), list[str]()
        broker.add_middlewares(SimpleRetryMiddleware())

        @broker.task(retry_on_error=True)
        async def charge(order: str) -> None:
            tries.append(order)
            if len(tries) == 1:
                raise ValueError("the bank is away")

        await broker.startup()
        for _ in range(3):
            sent = await charge.kicker().with_labels(dedup_id="order-17").kiq("17")
        async with working(broker):
            await nothing_is_left(here, 2)
        assert tries == ["17", "17"]
        assert sent.task_id


async def test_a_task_that_fails_comes_again_with_its_attempt_until_its_tries_are_used_up(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, attempts = task_broker(here), list[int]()

        @broker.task(retry_on_error=True, max_retries=3)
        async def charge(context: Context = CONTEXT) -> None:
            attempts.append(context.message.labels["dejamq_attempt"])
            raise ValueError("the bank is away")

        async with working(broker):
            await broker.startup()
            sent = await charge.kiq()
            result = await sent.wait_result(timeout=15)
            await nothing_is_left(here, 1)
        assert attempts == [1, 2, 3]
        assert isinstance(result.error, ValueError)
        assert find_duplicates(tmp_path / "journal", "workers", [tmp_path / "servers"]) == []


async def test_a_task_without_retries_that_fails_is_acknowledged_with_its_error(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker = task_broker(here)

        @broker.task
        async def charge() -> None:
            raise ValueError("no such card")

        async with working(broker):
            await broker.startup()
            sent = await charge.kiq()
            assert isinstance((await sent.wait_result(timeout=15)).error, ValueError)
            await nothing_is_left(here, 1)


async def test_a_task_that_fails_as_often_as_its_group_allows_is_a_dead_letter_which_can_be_replayed(
    tmp_path: Path,
) -> None:
    async with servers(tmp_path) as here, Admin(here.namesrv.address) as admin:
        await admin.create_group("workers")
        await admin.update_group("workers", retry_max_times=1)
        broker, attempts = task_broker(here, retry_on_error=True), list[int]()

        @broker.task
        async def charge(context: Context = CONTEXT) -> None:
            attempts.append(context.message.labels["dejamq_attempt"])
            if len(attempts) < 3:
                raise ValueError("the bank is away")

        async with working(broker):
            await broker.startup()
            sent = await charge.kiq()
            letters = await dead_letters(admin)
            assert attempts == [1, 2]
            assert sent.task_id in letters[0].body.decode()
            assert not await RESULTS.is_result_ready(sent.task_id)
            await admin.replay_dead_letter("workers", letters[0])
            assert not (await sent.wait_result(timeout=20)).is_err


async def test_what_a_worker_cannot_read_or_does_not_know_goes_to_one_that_does(tmp_path: Path) -> None:
    async with servers(tmp_path) as here, Admin(here.namesrv.address) as admin:
        await admin.create_group("workers")
        await admin.update_group("workers", retry_max_times=8)
        old, new, client = task_broker(here), task_broker(here), task_broker(here)
        done: list[str] = []

        async def note(text: str) -> None:
            done.append(text)

        later, _ = client.register_task(note, "added:later"), new.register_task(note, "added:later")
        await client.startup()
        await later.kiq("done")
        await here.send("no task", topic="tasks")
        async with working(old):
            await until(lambda: len(here.server_lines("CHANGE")) >= 2)
        async with working(new):
            await until(lambda: done)
            letters = await dead_letters(admin)
        await client.shutdown()
        assert [letter.body for letter in letters] == [b"no task"]
        assert done == ["done"]


async def test_a_task_that_takes_longer_than_its_time_is_renewed_and_executed_once(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, started = task_broker(here, invisible_ms=3_000), list[str]()

        @broker.task
        async def count() -> None:
            started.append("")
            await until(lambda: [line["how"] for line in here.server_lines("CHANGE")].count("renewed") >= 3)

        async with working(broker):
            await broker.startup()
            await count.kiq()
            await nothing_is_left(here, 1)
        assert len(started) == 1
        assert not here.server_lines("REVIVE")


async def test_a_worker_that_is_stopped_gives_what_it_does_not_finish_to_another_one_at_once(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        first, second, attempts = task_broker(here), task_broker(here), list[int]()
        endless, done = asyncio.Event(), asyncio.Event()

        async def hold(context: Context = CONTEXT) -> None:
            attempts.append(context.message.labels["dejamq_attempt"])
            if len(attempts) == 1:
                await endless.wait()
            done.set()

        held, _ = first.register_task(hold, "hold"), second.register_task(hold, "hold")
        async with working(first, wait_tasks_timeout=0.05):
            await first.startup()
            await held.kiq()
            await until(lambda: attempts)
        async with working(second):
            await asyncio.wait_for(done.wait(), 15)
            await nothing_is_left(here, 1)
        assert attempts == [1, 2]
        assert find_duplicates(tmp_path / "journal", "workers", [tmp_path / "servers"]) == []
        endless.set()


class Broken(TaskiqMiddleware):
    """Fails at the first task."""

    failed = False

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        if not self.failed:
            self.failed = True
            raise RuntimeError("the middleware is broken")
        return message


async def test_a_task_whose_middleware_fails_comes_again_when_its_time_is_over(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, attempts = task_broker(here, invisible_ms=3_000), list[int]()
        broker.add_middlewares(Broken())

        @broker.task
        async def note(context: Context = CONTEXT) -> None:
            attempts.append(context.message.labels["dejamq_attempt"])

        async with working(broker):
            await broker.startup()
            await note.kiq()
            await until(lambda: attempts)
        assert attempts == [2]


async def test_a_task_that_acknowledges_by_itself_comes_again_where_it_did_not(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, attempts = task_broker(here, invisible_ms=3_000), list[int]()

        @broker.task(ack_type="manual")
        async def note(context: Context = CONTEXT) -> None:
            attempts.append(context.message.labels["dejamq_attempt"])
            if len(attempts) == 2:
                await context.ack()

        async with working(broker):
            await broker.startup()
            await note.kiq()
            await nothing_is_left(here, 1)
        assert attempts == [1, 2]


async def test_a_task_that_is_acknowledged_when_it_is_received_is_not_tried_again(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, seen = task_broker(here, retry_on_error=True), list[int]()

        @broker.task(ack_type="when_received")
        async def note() -> None:
            await until(lambda: acknowledged(here))
            seen.append(1)
            raise ValueError("no")

        async with working(broker):
            await broker.startup()
            sent = await note.kiq()
            assert isinstance((await sent.wait_result(timeout=15)).error, ValueError)
        assert seen == [1]


async def test_workers_go_on_when_their_broker_comes_back(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker, done = task_broker(here, receive_at_once=4), list[str]()

        @broker.task
        async def note(text: str) -> None:
            done.append(text)

        async with working(broker):
            await broker.startup()
            await note.kiq("before")
            await nothing_is_left(here, 1)
            await here.stop_broker()
            await here.start_broker()
            async with asyncio.timeout(20):
                while not await is_sent(note):  # until its name server knows it again
                    await asyncio.sleep(0.05)
            await until(lambda: done[1:] and set(done) == {"before", "after"})


async def is_sent(note: "AsyncTaskiqDecoratedTask[[str], Any]") -> bool:
    try:
        await note.kiq("after")
    except SendTaskError:
        return False
    return True


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"invisible_ms": 10}, r"invisible_ms is 1000 to \d+, not 10"),
        ({"invisible_ms": "1m"}, "not '1m'"),
        ({"invisible_ms": 30_000, "retry_delay_ms": 10_001}, "retry_delay_ms is 0 to 10000, not 10001"),
        ({"receive_at_once": 0}, "receive_at_once is 1 to"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_once(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        DejamqBroker(**settings)
    with pytest.raises(InvalidName):
        DejamqBroker("no topic")


@pytest.mark.parametrize("labels", [{"delay": "soon"}, {"delay": -1}, {"max_retries": "many"}])
async def test_a_label_that_cannot_be_read_is_refused_by_the_send(labels: dict[str, Any], tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        broker = task_broker(here)
        note = broker.register_task(lambda: None, "note")
        with pytest.raises(SendTaskError) as refused:
            await note.kiq()
        assert "start the broker first" in str(refused.value.__cause__)
        await broker.startup()
        with pytest.raises(SendTaskError) as refused:
            await note.kicker().with_labels(**labels).kiq()
        assert next(iter(labels)) in str(refused.value.__cause__)
        await broker.shutdown()


def test_dejamq_imports_no_taskiq_and_its_broker_says_what_to_install_without_it() -> None:
    program = """import sys, dejamq, dejamq.sync
assert "taskiq" not in sys.modules
sys.modules["taskiq"] = None
import dejamq.integrations.taskiq"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert "pip install 'dejamq[taskiq]'" in done.stderr.splitlines()[-1]
