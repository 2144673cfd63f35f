"""Transactions from a producer's send to a consumer's handler, over real servers."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dejamq import (
    ClientClosed,
    ConfigError,
    ConsumeFrom,
    DejamqError,
    EndTransactionContext,
    Message,
    PermissionDenied,
    ReceivedMessage,
    SendContext,
    SendStatus,
    TransactionProducer,
    TransactionState,
    sync,
)
from dejamq_lab import Cluster
from journalled import journalled
from producer_site import Site, bodies_at

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
SCALE = 0.2
SOON = {
    "transaction_timeout_ms": 250, "transaction_check_interval_ms": 500, "transaction_finish_once": True,
    "transaction_check_max": 10_000, "poll_name_server_interval_ms": 1000,
}  # fmt: skip
"""Scaled; a real broker's rounds are 30 s apart."""
ROUND_LATER = {"transaction_check_interval_ms": 600_000}


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError("nobody should ask")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(topics={"orders": 2}, settings=SOON, directory=tmp_path, time_scale=SCALE) as running:
        yield running


class Arrivals:
    """What a consumer group got."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def take(self, message: ReceivedMessage) -> None:
        self._queue.put_nowait(message)

    async def next(self) -> ReceivedMessage:
        async with asyncio.timeout(20):
            return await self._queue.get()

    async def only(self, last: bytes) -> list[bytes]:
        """Bodies up to and with this one, which was sent last."""
        bodies = [(await self.next()).body]
        while bodies[-1] != last:
            bodies.append((await self.next()).body)
        return bodies


@asynccontextmanager
async def reading(cluster: Cluster, **settings: Any) -> AsyncIterator[Arrivals]:
    arrivals = Arrivals()
    async with cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET, **settings) as consumer:
        consumer.subscribe("orders", arrivals.take)
        yield arrivals


def events(cluster: Cluster, event: str) -> list[dict[str, Any]]:
    return journalled(cluster.journal_dir, event)


def own_words(cluster: Cluster) -> list[dict[str, Any]]:
    """What producers told by themselves; answers to checks are as many as rounds of a busy machine."""
    return [one for one in events(cluster, "TX") if not one["from_check"]]


async def until(holds: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
        while not (value := holds()):
            await asyncio.sleep(0.01)
        return value


def says(state: TransactionState) -> Callable[[Any], TransactionState]:
    return lambda message: state


async def test_what_is_committed_is_delivered_and_what_is_rolled_back_is_not(cluster: Cluster) -> None:
    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=never) as producer:
        gone = await producer.send_in_transaction(Message("orders", b"no"), says(ROLLBACK))
        kept = await producer.send_in_transaction(Message("orders", b"yes", tags="paid", keys=["o1"]), says(COMMIT))
        message = await arrivals.next()
        await producer.send(Message("orders", b"last"))
        assert await arrivals.only(b"last") == [b"last"]
    assert (gone.state, kept.state, kept.status, kept.error) == (ROLLBACK, COMMIT, SendStatus.SEND_OK, None)
    assert (message.body, message.tags, message.keys, message.message_id) == (b"yes", "paid", ["o1"], kept.message_id)
    assert message.prepared_transaction_offset == kept.sent.log_offset


async def test_functions_of_either_kind_are_called_with_the_message(cluster: Cluster) -> None:
    threads = []

    async def in_the_loop(message: Message) -> TransactionState:
        await asyncio.sleep(0)
        threads.append(threading.current_thread())
        return COMMIT if message.body == b"x" else ROLLBACK

    def beside_it(message: Message) -> TransactionState:
        threads.append(threading.current_thread())
        return COMMIT if message.body == b"x" else ROLLBACK

    async with cluster.transaction_producer("shop", checker=never) as producer:
        for execute in (in_the_loop, beside_it):
            assert (await producer.send_in_transaction(Message("orders", b"x"), execute)).state is COMMIT
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_what_is_unknown_is_asked_until_the_checker_knows(cluster: Cluster, kind: str) -> None:
    answers, seen = [UNKNOWN, COMMIT], []

    def plain(message: ReceivedMessage) -> TransactionState:
        seen.append((message.topic, message.body, message.properties["TRANSACTION_CHECK_TIMES"]))
        return answers.pop(0) if answers else COMMIT  # a busy machine may have asked once more meanwhile

    async def awaited(message: ReceivedMessage) -> TransactionState:
        return plain(message)

    checker = plain if kind == "plain" else awaited
    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=checker) as producer:
        result = await producer.send_in_transaction(Message("orders", b"x"), says(UNKNOWN))
        message = await arrivals.next()
    assert result.state is UNKNOWN
    assert (message.message_id, message.body) == (result.message_id, b"x")
    assert seen[:2] == [("orders", b"x", "1"), ("orders", b"x", "2")]


def fails(message: Message) -> TransactionState:
    raise RuntimeError("the database is away")


async def stops(message: Message) -> TransactionState:
    raise StopIteration("a mistake")


@pytest.mark.parametrize(
    ("execute", "why"),
    [(fails, "RuntimeError: the database is away"), (stops, "StopIteration"), (says(None), "returned None")],  # type: ignore[arg-type]  # what a program may do by mistake
)
async def test_a_function_that_fails_leaves_it_unknown_and_everybody_is_told_why(
    cluster: Cluster, execute: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=says(COMMIT)) as producer:
        result = await producer.send_in_transaction(Message("orders", b"x"), execute)
        await arrivals.next()
    assert result.state is UNKNOWN
    assert isinstance(result.error, Exception)
    (own,) = own_words(cluster)
    assert (own["state"], why.split(":")[0] in own["reason"]) == ("unknown", True)
    assert any("transaction_unknown" in line and why.split(":")[0] in line for line in caplog.messages)


async def test_a_checker_that_fails_is_asked_again(cluster: Cluster) -> None:
    answers: list[Any] = [RuntimeError("not now"), COMMIT]

    async def checker(message: ReceivedMessage) -> TransactionState:
        answer = answers.pop(0) if answers else COMMIT
        if isinstance(answer, Exception):
            raise answer
        return COMMIT

    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=checker) as producer:
        await producer.send_in_transaction(Message("orders", b"x"), says(UNKNOWN))
        assert (await arrivals.next()).body == b"x"


async def test_another_producer_of_the_group_is_asked_though_it_has_sent_nothing(cluster: Cluster) -> None:
    async with reading(cluster) as arrivals:
        async with cluster.transaction_producer("shop", checker=never) as first:
            sent = await first.send_in_transaction(Message("orders", b"x"), says(UNKNOWN))
        async with cluster.transaction_producer("shop", checker=says(COMMIT)):
            assert (await arrivals.next()).message_id == sent.message_id


async def test_a_transaction_without_any_producer_waits_for_one(cluster: Cluster) -> None:
    async with cluster.transaction_producer("shop", checker=says(UNKNOWN)) as producer:
        await producer.send_in_transaction(Message("orders", b"x"), says(UNKNOWN))
    await until(lambda: [one for one in events(cluster, "CHECK_TRANSACTION") if not one.get("client_id")])
    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=says(COMMIT)):
        assert (await arrivals.next()).body == b"x"


async def test_closing_waits_for_what_has_begun_and_its_end_leaves(cluster: Cluster) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def execute(message: Message) -> TransactionState:
        entered.set()
        await go_on.wait()
        return COMMIT

    producer = cluster.transaction_producer("shop", checker=never)
    async with reading(cluster) as arrivals:
        await producer.start()
        sending = asyncio.ensure_future(producer.send_in_transaction(Message("orders", b"x"), execute))
        await entered.wait()
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await producer.send_in_transaction(Message("orders", b"y"), execute)
        assert not closing.done()
        go_on.set()
        assert (await sending).state is COMMIT
        await closing
        assert (await arrivals.next()).body == b"x"


async def test_a_producer_that_is_closed_in_a_hurry_leaves_the_transaction_to_a_check(cluster: Cluster) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def execute(message: Message) -> TransactionState:
        entered.set()
        await go_on.wait()
        return COMMIT

    producer = cluster.transaction_producer("shop", checker=never)
    await producer.start()
    sending = asyncio.ensure_future(producer.send_in_transaction(Message("orders", b"x"), execute))
    await entered.wait()
    await producer.close(timeout_ms=20)
    go_on.set()
    assert (await sending).state is COMMIT
    assert own_words(cluster) == []
    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=says(COMMIT)):
        assert (await arrivals.next()).body == b"x"


async def test_a_cancelled_transaction_is_unknown_and_the_checker_decides(cluster: Cluster) -> None:
    entered = asyncio.Event()

    async def execute(message: Message) -> TransactionState:
        entered.set()
        await asyncio.Event().wait()
        return COMMIT

    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=says(COMMIT)) as producer:
        sending = asyncio.ensure_future(producer.send_in_transaction(Message("orders", b"x"), execute))
        await entered.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await arrivals.next()).body == b"x"
    (own,) = own_words(cluster)
    assert (own["state"], "cancelled" in own["reason"]) == ("unknown", True)


async def test_a_message_that_is_stored_less_durably_is_rolled_back_unexecuted(tmp_path: Path) -> None:
    site = Site(tmp_path, sync_flush_timeout_ms=1, **ROUND_LATER)
    await site.namesrv.start()
    broker = await site.start_broker("broker-a")
    broker.domain.paths.sender._sync = True
    broker.domain.writer.durable = lambda log_offset: Future()  # type: ignore[method-assign]  # a disk that is silent
    try:
        async with TransactionProducer("shop", checker=never, namesrv=site.namesrv.address) as producer:
            result = await producer.send_in_transaction(Message("orders", b"x"), fails)
        assert (result.state, result.status, result.error) == (ROLLBACK, SendStatus.FLUSH_DISK_TIMEOUT, None)
        broker.domain.paths.transactions.ops.write()
        assert await bodies_at(site, "RMQ_SYS_TRANS_OP_HALF_TOPIC") == [b"0,"]
    finally:
        await site.close()


async def test_names_inside_of_a_namespace_are_not_seen_by_the_program(tmp_path: Path) -> None:
    seen = []

    def checker(message: ReceivedMessage) -> TransactionState:
        seen.append((message.topic, message.queue.topic, message.queue.broker_name))
        return COMMIT

    async with Cluster(topics={"eu%orders": 1}, settings=SOON, directory=tmp_path, time_scale=SCALE) as cluster:
        own = {"namespace": "eu"}
        async with (
            reading(cluster, **own) as arrivals,
            cluster.transaction_producer("shop", checker=checker, topics=["orders"], **own) as producer,
        ):
            await producer.send_in_transaction(Message("orders", b"x"), says(UNKNOWN))
            assert (await arrivals.next()).topic == "orders"
        assert set(seen) == {("orders", "orders", "broker-a")}
        assert {one["group"] for one in events(cluster, "END_TRANSACTION")} == {"eu%shop"}


class Watching:
    """A hook of both kinds; its second method fails, which changes nothing."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.ended: list[tuple[Any, ...]] = []

    def before_send(self, context: SendContext) -> None:
        self.sent.append(context.message.topic)

    def after_send(self, context: SendContext) -> None: ...

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.ended.append((context.group, context.state, context.from_check, context.message_id))
        raise RuntimeError("a hook's own mistake")


async def test_hooks_see_the_half_message_and_each_end(cluster: Cluster) -> None:
    hook = Watching()
    async with reading(cluster) as arrivals, cluster.transaction_producer("shop", checker=says(COMMIT)) as producer:
        producer.add_hook(hook)
        with pytest.raises(ConfigError, match="before_send"):
            producer.add_hook(object())  # type: ignore[arg-type]
        sent = await producer.send_in_transaction(Message("orders", b"x"), says(UNKNOWN))
        await arrivals.next()
    assert hook.sent == ["orders"]
    assert set(hook.ended) == {("shop", UNKNOWN, False, sent.message_id), ("shop", COMMIT, True, sent.message_id)}


async def test_what_cannot_be_a_transaction_is_refused_before_anything_is_stored(cluster: Cluster) -> None:
    async with cluster.transaction_producer("shop", checker=never) as producer:
        with pytest.raises(DejamqError, match="delay_level") as refused:
            await producer.send_in_transaction(Message("orders", b"x", delay_level=3), says(COMMIT))
        assert refused.value.definite
        for wrong in ("nothing", lambda: COMMIT):
            with pytest.raises(ConfigError, match="execute"):
                await producer.send_in_transaction(Message("orders", b"x"), wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="Messages"):
            await producer.send_in_transaction("orders", says(COMMIT))  # type: ignore[arg-type]
    assert events(cluster, "APPEND") == []
    with pytest.raises(ConfigError, match="checker"):
        TransactionProducer("shop", checker=None)  # type: ignore[arg-type]


async def test_a_broker_that_takes_no_transactions_says_so(tmp_path: Path) -> None:
    settings = SOON | {"reject_transaction_message": True}
    async with (
        Cluster(topics={"orders": 1}, settings=settings, directory=tmp_path, time_scale=SCALE) as cluster,
        cluster.transaction_producer("shop", checker=never, retry_response_codes="") as producer,
    ):
        with pytest.raises(PermissionDenied, match="reject_transaction_message"):
            await producer.send_in_transaction(Message("orders", b"x"), fails)
        await producer.send(Message("orders", b"plain"))


async def test_many_transactions_at_a_time_all_end(tmp_path: Path) -> None:
    settings = SOON | {"transaction_check_interval_ms": 5000}
    own_word = [COMMIT, ROLLBACK, UNKNOWN]

    def ends_alike(message: ReceivedMessage) -> TransactionState:
        """On a busy machine a round of checks may come before the producer's own word, and the first one counts."""
        return ROLLBACK if own_word[int(message.body) % 3] is ROLLBACK else COMMIT

    async with (
        Cluster(topics={"orders": 2}, settings=settings, directory=tmp_path, time_scale=SCALE) as cluster,
        reading(cluster) as arrivals,
        cluster.transaction_producer("shop", checker=ends_alike) as producer,
    ):
        results = await asyncio.gather(*(
            producer.send_in_transaction(Message("orders", b"%d" % number), says(own_word[number % 3]))
            for number in range(150)
        ))  # fmt: skip
        assert [result.state for result in results] == own_word * 50
        wanted = {b"%d" % number for number in range(150) if number % 3 != 1}
        arrived: set[bytes] = set()
        while not wanted <= arrived:
            arrived.add((await arrivals.next()).body)
    assert arrived == wanted


def test_the_blocking_producer_has_transactions_too(tmp_path: Path) -> None:
    asked = threading.Event()

    def checker(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return ROLLBACK

    with (
        Cluster(topics={"orders": 1}, settings=SOON, directory=tmp_path, time_scale=SCALE) as cluster,
        sync.TransactionProducer("shop", checker=checker, namesrv=cluster.namesrv) as producer,
    ):
        assert producer.send_in_transaction(Message("orders", b"x"), says(COMMIT)).state is COMMIT
        result = producer.send_in_transaction(Message("orders", b"y"), fails)
        assert (result.state, str(result.error)) == (UNKNOWN, "the database is away")
        assert asked.wait(20)


@pytest.mark.process
async def test_the_example_of_the_page_on_transactions_runs_as_written(cluster: Cluster, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "transactions.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(code)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"DEJAMQ_NAMESRV": cluster.namesrv},
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 50)
    assert (process.returncode, output.split()[:1]) == (0, [b"COMMIT"]), output


async def test_a_broker_that_stops_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    """One ends by a check after the restart, the other by its program's word or, if that is lost, by a check."""
    settings = {name: value for name, value in SOON.items() if name.startswith("transaction_")}
    site = Site(tmp_path, **settings | {"transaction_check_interval_ms": 200})
    await site.namesrv.start()
    await site.start_broker("broker-a")

    made = {b"asked"}

    async def across_the_restart(message: Message) -> TransactionState:
        await site.restart_broker("broker-a")
        made.add(message.body)
        return COMMIT

    async def checker(message: ReceivedMessage) -> TransactionState:
        return COMMIT if message.body in made else UNKNOWN

    quick: dict[str, Any] = {"poll_name_server_interval_ms": 100, "reconnect_interval_ms": 50}
    try:
        async with TransactionProducer("shop", checker=checker, namesrv=site.namesrv.address, **quick) as producer:
            await producer.send_in_transaction(Message("orders", b"asked"), says(UNKNOWN))
            result = await producer.send_in_transaction(Message("orders", b"told"), across_the_restart)
            assert result.state is COMMIT
            async with asyncio.timeout(20):
                while sorted(await bodies_at(site, "orders")) != [b"asked", b"told"]:
                    await asyncio.sleep(0.02)
    finally:
        await site.close()
