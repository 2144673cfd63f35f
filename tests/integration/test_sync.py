"""dejamq.sync against real servers: blocking calls from threads without an event loop."""

import contextlib
import gc
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq import (
    BacklogFull,
    ClientClosed,
    ConfigError,
    ConsumeContext,
    ConsumeFrom,
    DejamqError,
    Handler,
    InvalidName,
    Message,
    ReceivedMessage,
    reply_to,
)
from dejamq.sync import Inbox, LitePullConsumer, Producer, PushConsumer, run
from dejamq_lab import Cluster
from sync_cluster import QUICK, cluster, loop_threads, until


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def producer(here: Cluster) -> Iterator[Producer]:
    with Producer("p", namesrv=here.namesrv) as producer:
        yield producer


def consumer(here: Cluster, group: str, topic: str, handler: Handler) -> PushConsumer:
    made = PushConsumer(group, namesrv=here.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **QUICK)
    made.subscribe(topic, handler)
    return made


def test_what_is_sent_is_received_by_a_plain_handler_in_a_thread(here: Cluster, producer: Producer) -> None:
    got: dict[str, str] = {}

    def handler(message: ReceivedMessage) -> None:
        got[message.message_id] = threading.current_thread().name

    sent = producer.send(Message("orders", b"one"))
    sent_too = producer.send_batch([Message("orders", b"two"), Message("orders", b"three")])
    with consumer(here, "plain", "orders", handler) as receiving:
        assert {queue.topic for queue in receiving.wait_assigned()} == {"orders"}
        until(lambda: len(got) >= 3)
        assert receiving.assignment
    assert {sent.message_id, *(one.message_id for one in sent_too)} <= got.keys()
    assert all(name.startswith("dejamq-handler") for name in got.values())


def test_hooks_filters_and_statistics_are_there_as_well(here: Cluster, producer: Producer) -> None:
    class Seen:
        def __init__(self) -> None:
            self.before: list[bytes] = []
            self.after: list[str | None] = []

        def before_consume(self, context: ConsumeContext) -> None:
            self.before += [message.body for message in context.messages]

        def after_consume(self, context: ConsumeContext) -> None:
            self.after.append(context.status)

    seen = Seen()
    made = consumer(here, "hooks", "refunds", lambda message: None)
    made.add_hook(seen)
    made.add_filter(lambda message: message.tags == "hooks")
    for body, tags in ((b"left out", "other"), (b"kept", "hooks")):
        producer.send(Message("refunds", body, tags=tags))
    with made, LitePullConsumer("watching", namesrv=here.namesrv) as polling:
        until(lambda: seen.after)
        assert (seen.before, seen.after) == ([b"kept"], ["success"])
        assert {queue.topic for queue in made.statistics().queues} >= {"refunds"}
        polling.watch_queues("refunds", lambda topic, queues: None)
    assert producer.pending_bytes == 0


def test_submit_gives_a_future_for_threads_and_keeps_the_order(producer: Producer) -> None:
    queue = producer.publish_queues("orders")[0]
    futures = [producer.submit(Message("orders", b"%d" % number), queue=queue) for number in range(2000)]
    offsets = [future.result(timeout=15).queue_offset for future in futures]
    assert offsets == list(range(offsets[0], offsets[0] + 2000))


def test_flush_and_close_wait_for_what_was_submitted(here: Cluster) -> None:
    with Producer("p", namesrv=here.namesrv) as producer:
        flushed = [producer.submit(Message("orders", b"x")) for _ in range(500)]
        producer.flush()
        assert all(future.done() for future in flushed)
        closed = [producer.submit(Message("orders", b"x")) for _ in range(500)]
    assert all(future.result().queue_offset >= 0 for future in closed)
    with pytest.raises(ClientClosed):
        producer.submit(Message("orders", b"x"))


def test_a_fast_producer_is_refused_and_goes_on_after_drain(here: Cluster) -> None:
    with Producer("p", namesrv=here.namesrv, max_pending_bytes=100_000) as producer:
        refused, futures = 0, []
        while refused < 3:
            try:
                futures.append(producer.submit(Message("orders", b"x" * 4000)))
            except BacklogFull:
                refused += 1
                producer.drain()
        assert len({future.result(timeout=15).offset_message_id for future in futures}) == len(futures)


def test_bad_messages_are_told_by_send_and_by_the_future(producer: Producer) -> None:
    with pytest.raises(InvalidName):
        producer.send(Message("no such:topic", b"x"))
    with pytest.raises(InvalidName):
        producer.submit(Message("no such:topic", b"x")).result(timeout=15)
    with pytest.raises(TypeError):
        producer.submit("orders")  # type: ignore[arg-type]


def test_a_cancelled_submit_is_forgotten(producer: Producer) -> None:
    futures = [producer.submit(Message("orders", b"x")) for _ in range(200)]
    for future in futures:
        future.cancel()
    producer.flush()
    assert all(future.done() for future in futures)
    assert producer.send(Message("orders", b"y")).queue_offset >= 0


def test_many_threads_share_one_producer_and_one_loop_thread(producer: Producer) -> None:
    results: list[str] = []

    def send() -> None:
        results.extend(producer.send(Message("orders", b"x")).offset_message_id for _ in range(20))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 160
    assert len(loop_threads()) == 1


def test_a_handler_answers_a_request_with_the_producer_of_another_thread(here: Cluster, producer: Producer) -> None:
    def answer(message: ReceivedMessage) -> None:
        producer.send(reply_to(message, b"re: " + message.body))

    with consumer(here, "answers", "refunds", answer) as answering:
        answering.wait_assigned()
        assert producer.request(Message("refunds", b"ping"), 10_000).body == b"re: ping"


def test_a_blocking_call_in_the_loop_thread_is_refused_instead_of_hanging(here: Cluster, producer: Producer) -> None:
    refusals: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        try:
            producer.send(Message("orders", b"more"))
        except DejamqError as error:
            refusals.append(str(error))

    producer.send(Message("orders", b"one"))
    with consumer(here, "refused", "orders", handler):
        until(lambda: refusals)
    assert "use plain functions" in refusals[0]


def test_stop_from_a_handler_ends_the_serving_and_what_it_returns_counts(here: Cluster, producer: Producer) -> None:
    group, seen = "stops", []
    producer.send(Message("slow", b"one"))

    def handler(message: ReceivedMessage) -> None:
        seen.append(message.message_id)
        receiving.stop()

    receiving = consumer(here, group, "slow", handler)
    receiving.run_until_stopped()
    assert receiving.closed
    assert seen
    with consumer(here, group, "slow", handler) as again:
        again.wait_assigned()
        sent = producer.send(Message("slow", b"last"))
        until(lambda: sent.message_id in seen)
    assert len(seen) == 2


def test_closing_from_another_thread_ends_the_serving(here: Cluster) -> None:
    receiving = consumer(here, "closed-elsewhere", "orders", print)
    threading.Timer(0.5, receiving.close).start()
    receiving.run_until_stopped()
    assert receiving.closed


def test_a_plain_handler_may_close_its_consumer_which_then_ends_after_the_handler(
    here: Cluster, producer: Producer
) -> None:
    group, began = "closes-itself", time.monotonic()
    seen: list[str] = []
    sent = producer.send(Message("refunds", b"x"))

    def handler(message: ReceivedMessage) -> None:
        receiving.close()
        seen.append(message.message_id)

    receiving = consumer(here, group, "refunds", handler)
    receiving.run_until_stopped()
    assert time.monotonic() - began < 15  # await_termination_ms is 20 s
    first = list(seen)
    assert first
    with consumer(here, group, "refunds", lambda message: seen.append(message.message_id)) as again:
        again.wait_assigned()
        last = producer.send(Message("refunds", b"last"))
        until(lambda: {sent.message_id, last.message_id} <= set(seen))
    assert len(seen) == len(set(seen))


def test_several_clients_run_together_until_one_stops(here: Cluster) -> None:
    sending, got = Producer("p", namesrv=here.namesrv), threading.Event()

    def handler(message: ReceivedMessage) -> None:
        sending.send(Message("refunds", b"forwarded"))
        got.set()
        receiving.stop()

    receiving = consumer(here, "together", "orders", handler)
    with Producer("q", namesrv=here.namesrv) as first:
        first.send(Message("orders", b"x"))
    run(sending, receiving)
    assert got.is_set()
    assert sending.closed
    assert receiving.closed


def test_outside_the_main_thread_signals_are_refused(here: Cluster) -> None:
    errors: list[Exception] = []

    def serve() -> None:
        with consumer(here, "elsewhere", "orders", print) as receiving:
            try:
                receiving.run_until_stopped()
            except ConfigError as error:
                errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(20)
    assert "signals=()" in str(errors[0])


def test_an_inbox_in_threads_makes_each_effect_once(here: Cluster, producer: Producer, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "effects.sqlite", check_same_thread=False, isolation_level=None)
    with contextlib.closing(database):
        database.execute("CREATE TABLE effects (message)")
        inbox, tries = Inbox(database), []
        handled: set[str] = set()

        def charge(message: ReceivedMessage) -> None:
            for _ in range(2):  # a duplicate, as a broker would deliver it
                with inbox.once(message) as first:
                    if first:
                        database.execute("INSERT INTO effects VALUES (?)", (message.message_id,))
                tries.append(first)
            handled.add(message.message_id)

        sent = [producer.submit(Message("slow", b"x")) for _ in range(40)]
        ids = {future.result(timeout=15).message_id for future in sent}
        with consumer(here, "inbox", "slow", charge):
            until(lambda: ids <= handled)
        effects = [row[0] for row in database.execute("SELECT message FROM effects")]
    assert len(effects) == len(set(effects)) == tries.count(True)
    assert ids <= set(effects)


def test_rounds_of_clients_leave_one_thread_and_no_file_behind(here: Cluster) -> None:
    def rounds(count: int) -> None:
        for _ in range(count):
            with Producer("p", namesrv=here.namesrv) as producer:
                producer.send(Message("orders", b"x"))

    def files() -> int:
        gc.collect()  # a closed connection of gRPC is a cycle; when it would be collected depends on all tests before
        return len(os.listdir("/proc/self/fd"))

    rounds(3)
    before = files()
    rounds(50)
    until(lambda: files() <= before)
    assert len(loop_threads()) == 1


def test_messages_are_polled_and_iterated_with_for_until_another_thread_closes(here: Cluster) -> None:
    with LitePullConsumer("polls", namesrv=here.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **QUICK) as polling:
        polling.assign(polling.queues("refunds"))
        assert polling.wait_assigned()
        with Producer("p", namesrv=here.namesrv) as producer:
            sent = [producer.send(Message("refunds", b"x")).message_id for _ in range(3)]
        polled: list[str] = []
        while sent[0] not in polled:
            polled += [message.message_id for message in polling.poll(5_000, max_messages=1)]
        for message in polling:
            polled.append(message.message_id)
            if set(sent) <= set(polled):
                threading.Thread(target=polling.close).start()
    assert polling.closed
    assert len(polled) == len(set(polled))
