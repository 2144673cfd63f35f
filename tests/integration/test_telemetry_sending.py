"""OpenTelemetry of producers: spans, contexts in messages and metrics, as the SDK's exporters get them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.metadata import entry_points
from pathlib import Path

import dejamq.sync
import pytest
from consumer_cluster import Servers, servers, until
from dejamq import (
    BacklogFull,
    BrokerUnavailable,
    Message,
    Producer,
    RouteNotFound,
    SendHook,
    TransactionProducer,
    TransactionState,
    reply_to,
)
from dejamq.receiving.received import ReceivedMessage
from dejamq.telemetry import instrument, uninstrument
from lite_cluster import polled, subscribed
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from otel_kit import Kept, context, linked, parent, span_id, told


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path) as made:
        yield made


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def stored(here: Servers, count: int = 1) -> list[ReceivedMessage]:
    """What a consumer without telemetry finds."""
    async with subscribed(here, "reader", consume_from=dejamq.ConsumeFrom.FIRST_OFFSET) as consumer:
        return await polled(consumer, lambda found: len(found) >= count)


def dialled(producer: Producer) -> tuple[str, int]:
    """The broker's address that the client knows of its route: gRPC's own port."""
    address = producer.inspect().instance.routes.master_address("broker-a")
    assert address is not None
    host, _, port = address.rpartition(":")
    return host, int(port)


def traceparent(span: ReadableSpan) -> str:
    made = context(span)
    return f"00-{made.trace_id:032x}-{made.span_id:016x}-{made.trace_flags:02x}"


async def test_a_send_is_one_span_with_the_attributes_of_the_conventions(here: Servers, kept: Kept) -> None:
    message = Message("orders", b"paid", tags="paid", keys=["order-17", "eu"], sharding_key="17")
    with kept.tracer.start_as_current_span("checkout") as checkout:
        async with here.producer(telemetry=kept.telemetry) as producer:
            result = await producer.send(message)
            host, port = dialled(producer)
    span = kept.span("send orders")
    assert span.kind is SpanKind.PRODUCER
    assert parent(span) == checkout.get_span_context().span_id
    assert told(span) == {
        "messaging.system": "rocketmq", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders", "messaging.message.id": result.message_id,
        "messaging.destination.partition.id": f"{result.queue.broker_name}/{result.queue.queue_id}",
        "messaging.client.id": told(span)["messaging.client.id"], "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.message.tag": "paid", "messaging.rocketmq.message.keys": ("order-17", "eu"),
        "messaging.rocketmq.message.type": "fifo", "messaging.rocketmq.message.group": "17",
        "server.address": host, "server.port": port, "dejamq.producer.group": "p",
        "dejamq.queue_offset": 0, "dejamq.offset_message_id": result.offset_message_id,
    }  # fmt: skip
    assert told(span)["messaging.client.id"]
    assert result.message_id == message.message_id


async def test_a_message_carries_the_context_of_its_send_and_keeps_its_own_properties(
    here: Servers, kept: Kept
) -> None:
    async with here.producer(telemetry=kept.telemetry) as producer:
        await producer.send(Message("orders", b"a", properties={"region": "north"}))
    (message,) = await stored(here)
    assert message.properties["traceparent"] == traceparent(kept.span("send orders"))
    assert message.user_properties["region"] == "north"


async def test_a_context_that_the_program_gave_a_message_is_kept_and_linked(here: Servers, kept: Kept) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with here.producer(telemetry=kept.telemetry) as producer:
        await producer.send(Message("orders", b"a", properties={"traceparent": given}))
    span = kept.span("send orders")
    assert span.kind is SpanKind.CLIENT
    assert [f"{one:016x}" for one in linked(span)] == ["b7ad6b7169203331"]
    assert (await stored(here))[0].properties["traceparent"] == given


async def test_submits_and_one_way_sends_are_spans_too(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry) as producer:
        await asyncio.gather(*(producer.submit(Message("orders", b"a")) for _ in range(3)))
        producer.send_oneway(Message("orders", b"b"))
        await producer.flush()
    assert len(kept.spans("send orders")) == 4
    contexts = {message.properties["traceparent"] for message in await stored(here, 4)}
    assert contexts == {traceparent(span) for span in kept.spans("send orders")}


async def test_a_batch_is_one_span_that_is_linked_to_one_for_each_message(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry) as producer:
        await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")])
    created, batch = kept.spans("create orders"), kept.span("send_batch orders")
    assert told(batch)["messaging.batch.message_count"] == 2
    assert batch.kind is SpanKind.CLIENT
    assert linked(batch) == [span_id(span) for span in created]
    contexts = {message.properties["traceparent"] for message in await stored(here, 2)}
    assert contexts == {traceparent(span) for span in created}


async def test_a_batch_without_spans_of_its_messages_gives_them_its_own_context(here: Servers) -> None:
    kept = Kept(create_spans=False)
    async with here.producer(telemetry=kept.telemetry) as producer:
        await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")])
    contexts = {message.properties["traceparent"] for message in await stored(here, 2)}
    assert contexts == {traceparent(kept.span("send_batch orders"))}
    assert kept.span("send_batch orders").kind is SpanKind.PRODUCER


async def test_a_failed_send_says_why_and_whether_it_surely_is_not_stored(tmp_path: Path, kept: Kept) -> None:
    async with servers(tmp_path, auto_create_topic_enable=False) as here, here.producer(
        telemetry=kept.telemetry
    ) as producer:  # fmt: skip
        with pytest.raises(RouteNotFound):
            await producer.send(Message("unknown", b"a"))
    span = kept.span("send unknown")
    assert span.status.status_code is StatusCode.ERROR
    assert told(span)["error.type"] == "RouteNotFound"
    assert told(span)["dejamq.send.definite"] is True
    assert kept.total("messaging.client.sent.messages", error__type="RouteNotFound") == 1


async def test_tries_that_failed_are_events_of_the_send(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry) as producer:
        await producer.send(Message("orders", b"first"))
        await here.stop_broker()
        with pytest.raises(BrokerUnavailable):
            await producer.send(Message("orders", b"second"))
    span = kept.spans("send orders")[1]
    assert told(span)["dejamq.send.attempts"] == 3
    tries = [dict(event.attributes or {}) for event in span.events if event.name == "try failed"]
    assert [(one["dejamq.attempt"], one["error.type"]) for one in tries] == [
        (1, "BrokerUnavailable"), (2, "BrokerUnavailable"), (3, "BrokerUnavailable"),
    ]  # fmt: skip


async def test_a_submit_that_finds_no_room_is_not_told(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry, max_pending_bytes=1_000) as producer:
        taken = producer.submit(Message("orders", b"a" * 600))
        with pytest.raises(BacklogFull):
            producer.submit(Message("orders", b"b" * 600))
        await taken
    assert len(kept.spans("send orders")) == kept.total("messaging.client.sent.messages") == 1


async def test_a_transaction_is_its_half_message_and_its_end(here: Servers, kept: Kept) -> None:
    def execute(message: object) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer(
        "t", checker=execute, namesrv=here.namesrv.address, telemetry=kept.telemetry
    ) as producer:  # fmt: skip
        await producer.send_in_transaction(Message("orders", b"a"), execute)
        half, end = kept.span("send_in_transaction orders"), kept.span("commit orders")
        (message,) = await stored(here)
    assert told(half)["messaging.rocketmq.message.type"] == "transaction"
    assert told(end)["messaging.operation.type"] == "settle"
    assert told(end)["messaging.message.id"] == message.message_id
    assert linked(end) == [span_id(half)]
    assert message.properties["traceparent"] == traceparent(half)


async def test_a_check_of_a_transaction_is_in_the_trace_of_its_half_message(tmp_path: Path, kept: Kept) -> None:
    current: list[int] = []

    def execute(message: object) -> TransactionState:
        return TransactionState.UNKNOWN

    def checker(message: ReceivedMessage) -> TransactionState:
        current.append(trace.get_current_span().get_span_context().span_id)
        return TransactionState.ROLLBACK

    settings = {"transaction_timeout_ms": 100, "transaction_check_interval_ms": 100}
    async with servers(tmp_path, **settings) as here, TransactionProducer(
        "t", checker=checker, namesrv=here.namesrv.address, telemetry=kept.telemetry
    ) as producer:  # fmt: skip
        await producer.send_in_transaction(Message("orders", b"a"), execute)
        await until(lambda: kept.spans("rollback orders"), 30)
    half, check = kept.span("send_in_transaction orders"), kept.spans("check orders")[0]
    assert (parent(check), linked(check)) == (span_id(half), [span_id(half)])
    assert current[0] == span_id(check)
    assert linked(kept.spans("rollback orders")[0]) == [span_id(half)]
    assert kept.span("unknown orders")  # what ``execute`` said


async def test_a_request_lasts_until_its_reply_which_is_sent_in_its_trace(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry) as producer:
        consumer = here.consumer(consume_from=dejamq.ConsumeFrom.FIRST_OFFSET, telemetry=kept.telemetry)

        async def answer(message: ReceivedMessage) -> None:
            await producer.send(reply_to(message, b"yes"))

        consumer.subscribe("questions", answer)
        async with consumer:
            await producer.request(Message("questions", b"?"), 20_000)
            await until(lambda: kept.spans("process questions"))
    request, process = kept.span("request questions"), kept.span("process questions")
    (reply,) = [span for span in kept.spans() if span.name.endswith("REPLY_TOPIC")]
    assert parent(process) == span_id(request)
    assert parent(reply) == span_id(process)
    assert told(process)["messaging.message.conversation_id"]
    assert request.end_time is not None
    assert reply.start_time is not None
    assert request.end_time > reply.start_time


async def test_counts_and_durations_have_the_names_of_the_conventions(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry) as producer:
        await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")])
        await producer.send(Message("orders", b"c"))
        host, port = dialled(producer)
    ((attributes, point),) = [
        each for each in kept.points("messaging.client.operation.duration")
        if each[0]["messaging.operation.name"] == "send"
    ]  # fmt: skip
    assert attributes == {
        "messaging.system": "rocketmq", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders", "server.address": host, "server.port": port,
    }  # fmt: skip
    span = kept.span("send orders")
    assert span.end_time is not None
    assert span.start_time is not None
    assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9, abs=1e-6)
    assert kept.total("messaging.client.sent.messages", messaging__operation__name="send_batch") == 2
    assert kept.total("messaging.client.sent.messages", messaging__operation__name="send") == 1


async def test_the_blocking_producer_sends_in_the_context_of_its_callers_thread(here: Servers, kept: Kept) -> None:
    def program() -> list[int]:
        with dejamq.sync.Producer("p", namesrv=here.namesrv.address, telemetry=kept.telemetry) as producer:
            with kept.tracer.start_as_current_span("first") as first:
                producer.send(Message("orders", b"a"))
                submitted = [producer.submit(Message("orders", b"b"))]
            with kept.tracer.start_as_current_span("second") as second:
                submitted.append(producer.submit(Message("orders", b"c")))
            for future in submitted:
                future.result()
            return [one.get_span_context().span_id for one in (first, first, second)]

    assert await asyncio.to_thread(program) == [parent(span) for span in kept.spans("send orders")]


async def test_instrument_watches_the_clients_that_are_made_later(here: Servers, kept: Kept) -> None:
    before = here.producer()
    instrument(tracer_provider=kept.tracers, meter_provider=kept.meters)
    try:
        during = here.producer()
    finally:
        uninstrument()
    after = here.producer()
    for producer in (before, during, after):
        async with producer:
            await producer.send(Message("orders", b"a"))
    assert len(kept.spans("send orders")) == 1


async def test_opentelemetry_instrument_finds_it_and_switches_it_on(here: Servers, kept: Kept) -> None:
    (found,) = entry_points(group="opentelemetry_instrumentor", name="dejamq")
    instrumentor = found.load()()
    instrumentor.instrument(tracer_provider=kept.tracers, meter_provider=kept.meters, skip_dep_check=True)
    try:
        producer = here.producer()
    finally:
        instrumentor.uninstrument()
    async with producer:
        await producer.send(Message("orders", b"a"))
    assert kept.span("send orders")


async def test_other_hooks_go_on(here: Servers, kept: Kept) -> None:
    class Counting:
        calls = 0

        def before_send(self, context: object) -> None:
            self.calls += 1

        def after_send(self, context: object) -> None:
            self.calls += 1

    hook: SendHook = Counting()
    async with here.producer(telemetry=kept.telemetry) as producer:
        producer.add_hook(hook)
        await producer.send(Message("orders", b"a"))
    assert hook.calls == 2  # type: ignore[attr-defined]


@pytest.mark.process
def test_a_program_without_telemetry_imports_nothing_of_opentelemetry() -> None:
    code = "import sys, dejamq, dejamq.sync, dejamq_broker.app, dejamq_namesrv.app\n" + (
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')], sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
