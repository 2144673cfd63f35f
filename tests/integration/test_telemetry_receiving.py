"""OpenTelemetry of consumers: process, receive and settle, and what links them to sends and earlier deliveries."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import QUICK, Servers, servers, until
from dejamq import ConsumeFrom, ConsumeStatus, DeadLetter, DejamqError, Message, MessageModel, ReceivedMessage
from lite_cluster import polled, subscribed
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from otel_kit import Kept, context, linked, parent, span_id, told
from pop_cluster import simple

FIRST = ConsumeFrom.FIRST_OFFSET


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path) as made:
        yield made


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def sent(here: Servers, kept: Kept, *bodies: bytes, topic: str = "orders") -> list[ReadableSpan]:
    """The spans of sends."""
    async with here.producer(telemetry=kept.telemetry) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, tags="paid", keys="k"))
    return kept.spans(f"send {topic}")


async def test_a_handler_runs_in_a_span_that_is_the_sends_child(here: Servers, kept: Kept) -> None:
    (send,) = await sent(here, kept, b"a")
    current: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        current.append(trace.get_current_span().get_span_context().span_id)
        with kept.tracer.start_as_current_span("charge"):
            await asyncio.sleep(0)

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: kept.spans("process orders"))
        client_id = consumer.client_id
    span = kept.span("process orders")
    assert current == [span_id(span)] == [parent(kept.span("charge"))]
    assert (parent(span), linked(span)) == (span_id(send), [span_id(send)])
    assert context(span).trace_id == context(send).trace_id
    assert span.kind is SpanKind.CONSUMER
    known = told(send)
    assert told(span) == {
        "messaging.system": "rocketmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders", "messaging.consumer.group.name": "g",
        "messaging.message.id": known["messaging.message.id"], "messaging.client.id": client_id,
        "messaging.destination.partition.id": known["messaging.destination.partition.id"],
        "messaging.rocketmq.namespace": "", "messaging.rocketmq.consumption_model": "clustering",
        "messaging.rocketmq.message.tag": "paid", "messaging.rocketmq.message.keys": ("k",),
        "messaging.rocketmq.message.type": "normal", "dejamq.queue_offset": 0, "dejamq.delivery_attempt": 1,
        "dejamq.offset_message_id": known["dejamq.offset_message_id"],
        "dejamq.delivery_id": f"{consumer.boot_id}-1", "dejamq.consume.status": "success",
    }  # fmt: skip


async def test_a_plain_handler_runs_in_its_span_in_its_thread(here: Servers, kept: Kept) -> None:
    await sent(here, kept, b"a")

    def handler(message: ReceivedMessage) -> None:
        with kept.tracer.start_as_current_span("charge"):
            pass

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: kept.spans("process orders"))
    assert parent(kept.span("charge")) == span_id(kept.span("process orders"))


async def test_a_consumer_that_only_links_begins_a_trace_of_its_own(here: Servers) -> None:
    kept = Kept(child_of_send=False)
    (send,) = await sent(here, kept, b"a")

    async def handler(message: ReceivedMessage) -> None:
        """Consumed."""

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: kept.spans("process orders"))
    span = kept.span("process orders")
    assert (parent(span), linked(span)) == (None, [span_id(send)])
    assert context(span).trace_id != context(send).trace_id


async def test_a_batch_is_one_span_linked_to_each_send(here: Servers, kept: Kept) -> None:
    sends = await sent(here, kept, b"a", b"b", b"c")
    seen: list[ReceivedMessage] = []

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        seen.extend(messages)

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe_batch("orders", handler, size=10)
    async with consumer:
        await until(lambda: len(seen) == 3)
        await until(lambda: sum(len(linked(span)) for span in kept.spans("process orders")) == 3)
    spans = kept.spans("process orders")
    assert sorted(link for span in spans for link in linked(span)) == sorted(map(span_id, sends))
    for span in spans:
        assert told(span)["messaging.batch.message_count"] == len(span.links)
        assert parent(span) is None
    attributes = [dict(link.attributes or {}) for span in spans for link in span.links]
    assert {one["messaging.message.id"] for one in attributes} == {one.message_id for one in seen}
    assert kept.total("messaging.client.consumed.messages", messaging__operation__name="process") == 3
    assert kept.total("messaging.process.duration", messaging__destination__name="orders") == len(spans)


async def test_a_retry_tells_its_try_and_points_at_the_delivery_that_failed(here: Servers, kept: Kept) -> None:
    (send,) = await sent(here, kept, b"a")

    async def handler(message: ReceivedMessage) -> ConsumeStatus:
        if not message.reconsume_times:
            raise ValueError("no stock")
        return ConsumeStatus.SUCCESS

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: len(kept.spans("process orders")) == 2)
    first, second = kept.spans("process orders")
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert told(first)["error.type"] == "ValueError"
    assert [told(span)["dejamq.delivery_attempt"] for span in (first, second)] == [1, 2]
    assert "dejamq.redelivery" not in told(first)
    assert told(second)["dejamq.redelivery"] == "retry"
    assert linked(second) == [span_id(send), span_id(first)]
    assert dict(second.links[1].attributes or {})["dejamq.earlier_delivery.status"] == "exception"
    back = kept.span("send_back orders")
    assert (parent(back), linked(back)) == (span_id(first), [span_id(send)])
    assert told(back)["messaging.operation.type"] == "settle"


async def test_a_dead_letter_is_told_by_what_the_handler_raised(here: Servers, kept: Kept) -> None:
    await sent(here, kept, b"a")

    async def handler(message: ReceivedMessage) -> None:
        raise DeadLetter("unreadable")

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: kept.spans("send_back orders"))
    assert told(kept.span("process orders"))["error.type"] == "DeadLetter"


async def test_a_message_that_comes_again_uncommitted_points_at_its_first_delivery(here: Servers, kept: Kept) -> None:
    """A consumer that leaves before it commits: its successor in this process gets the same stored copy."""
    await sent(here, kept, b"a")
    for _ in range(2):
        async with subscribed(here, consume_from=FIRST, auto_commit=False, telemetry=kept.telemetry) as consumer:
            await polled(consumer, lambda found: found)
    first, second = kept.spans("poll orders")
    assert linked(second)[1] == span_id(first)
    again = dict(second.links[0].attributes or {})
    assert (again["dejamq.redelivery"], again["dejamq.delivery_attempt"]) == ("redelivered", 1)


async def test_a_message_that_was_stored_twice_points_at_the_other_copys_delivery(here: Servers, kept: Kept) -> None:
    message, seen = Message("orders", b"a"), 0
    async with here.producer() as producer:
        for _ in range(2):  # as a retry after a lost answer does
            await producer.send(message)

    async def handler(message: ReceivedMessage) -> None:
        nonlocal seen
        seen += 1

    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry, max_concurrency=1)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: len(kept.spans("process orders")) == 2)
    first, second = kept.spans("process orders")
    assert told(second)["dejamq.redelivery"] == "stored_again"
    assert linked(second) == [span_id(first)]


async def test_commits_of_a_push_consumer_are_settlements(here: Servers, kept: Kept) -> None:
    async def handler(message: ReceivedMessage) -> None:
        """Consumed."""

    await sent(here, kept, b"a")
    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    with kept.tracer.start_as_current_span("startup"):
        await consumer.start()
    try:
        await until(lambda: any(told(span)["dejamq.queue_offset"] == 1 for span in kept.spans("commit orders")))
    finally:
        await consumer.close()
    commits = [span for span in kept.spans("commit orders") if told(span)["dejamq.queue_offset"] == 1]
    assert len(commits) == 1  # those that repeat it are none
    assert told(commits[0])["messaging.operation.type"] == "settle"
    assert commits[0].kind is SpanKind.CLIENT
    assert [parent(span) for span in kept.spans("commit orders")] == [None] * len(kept.spans("commit orders"))


async def test_a_lite_pull_consumers_poll_and_commit_are_spans(here: Servers, kept: Kept) -> None:
    (send,) = await sent(here, kept, b"a")
    async with subscribed(here, consume_from=FIRST, auto_commit=False, telemetry=kept.telemetry) as consumer:
        assert await consumer.poll(timeout_ms=0) == [] or kept.spans("poll orders")
        if not kept.spans("poll orders"):
            await polled(consumer, lambda found: found)
        with kept.tracer.start_as_current_span("job") as job:
            await consumer.commit()
    poll, commit = kept.span("poll orders"), kept.spans("commit orders")[0]
    assert poll.kind is SpanKind.CLIENT
    assert linked(poll) == [span_id(send)]
    assert told(poll)["messaging.operation.type"] == "receive"
    assert parent(commit) == job.get_span_context().span_id
    assert kept.total("messaging.client.consumed.messages", messaging__operation__name="poll") == 1


async def test_iterating_has_a_span_a_message(here: Servers, kept: Kept) -> None:
    sends = await sent(here, kept, b"a", b"b")
    async with subscribed(here, consume_from=FIRST, telemetry=kept.telemetry) as consumer:
        count = 0
        async for message in consumer:
            with kept.telemetry.process(message):
                count += 1
            if count == 2:
                break
    assert sorted(link for span in kept.spans("poll orders") for link in linked(span)) == sorted(map(span_id, sends))
    process = kept.spans("process orders")
    assert {parent(span) for span in process} == set(map(span_id, sends))
    assert [len(linked(span)) for span in process] == [1, 1]  # to the send: its own poll is no earlier delivery
    assert not any("dejamq.redelivery" in told(span) for span in process)
    assert kept.total("messaging.process.duration") == 2
    assert kept.total("messaging.client.consumed.messages") == 2  # once a delivery


async def test_each_member_of_a_broadcasting_group_processes_for_the_first_time(here: Servers, kept: Kept) -> None:
    (send,) = await sent(here, kept, b"a")
    settings: dict[str, Any] = {
        "model": MessageModel.BROADCASTING, "consume_from": FIRST, "telemetry": kept.telemetry,
        "local_offset_store_dir": str(here.directory / "offsets"),
    }  # fmt: skip
    for name in ("one", "two"):
        async with subscribed(here, client_id=name, **settings) as consumer:
            (message,) = await polled(consumer, lambda found: found)
            with kept.telemetry.process(message):
                """Processed."""
    spans = kept.spans("process orders")
    assert [told(span)["messaging.client.id"] for span in spans] == ["one", "two"]
    assert [linked(span) for span in spans] == [[span_id(send)], [span_id(send)]]
    assert not any("dejamq.redelivery" in told(span) for span in spans)


async def test_a_process_span_knows_the_namespace_and_the_delivery_before(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry, namespace="eu") as producer:
        await producer.send(Message("orders", b"a"))
    settings: dict[str, Any] = {"consume_from": FIRST, "telemetry": kept.telemetry, "namespace": "eu"}
    for _ in range(2):
        async with subscribed(here, auto_commit=False, **settings) as consumer:
            (message,) = await polled(consumer, lambda found: found)
            with kept.telemetry.process(message):
                """Processed, and not committed."""
    first, second = kept.spans("process orders")
    assert linked(first) == [span_id(kept.span("send orders"))]
    assert linked(second) == [span_id(kept.span("send orders")), span_id(first)]
    assert told(second)["dejamq.redelivery"] == "redelivered"
    assert told(first)["messaging.rocketmq.namespace"] == told(second)["messaging.rocketmq.namespace"] == "eu"


async def test_a_simple_consumers_receive_ack_and_change_are_spans(here: Servers, kept: Kept) -> None:
    (send,) = await sent(here, kept, b"a")
    async with simple(here, consume_from=FIRST, telemetry=kept.telemetry) as consumer:
        (message,) = await consumer.receive(timeout_ms=5_000)
        with pytest.raises(LookupError), kept.telemetry.process(message):
            raise LookupError("no such parcel")
        await consumer.change_invisible(message, 0)
        messages: list[ReceivedMessage] = []
        async with asyncio.timeout(20):
            while not messages:
                messages = await consumer.receive(timeout_ms=500)
        with kept.telemetry.process(messages[0]):
            await consumer.ack(*messages)
    first, second = kept.spans("receive orders")
    (failed, processed), change, ack = (
        kept.spans("process orders"),
        kept.span("change_invisible orders"),
        kept.span("ack orders"),
    )
    assert linked(first) == linked(change) == linked(ack) == [span_id(send)]
    assert told(failed)["error.type"] == "LookupError"
    assert linked(failed) == [span_id(send)]
    assert "dejamq.redelivery" not in told(failed)
    assert linked(processed) == [span_id(send), span_id(failed)]
    assert told(processed)["dejamq.redelivery"] == "retry"
    assert span_id(failed) in linked(second)
    assert dict(second.links[0].attributes or {})["dejamq.delivery_attempt"] == 2
    assert told(ack)["messaging.operation.type"] == "settle"
    assert told(ack)["dejamq.delivery_attempt"] == 2
    assert kept.total("messaging.client.operation.duration", messaging__operation__name="ack") == 1


async def test_what_is_no_message_is_refused_as_without_telemetry(here: Servers, kept: Kept) -> None:
    nothing: Any = object()
    async with simple(here, telemetry=kept.telemetry) as consumer:
        await consumer.ack()
        for settle in (consumer.ack(nothing), consumer.change_invisible(nothing, 0)):
            with pytest.raises(DejamqError, match="receipt handle"):
                await settle
    async with here.producer(telemetry=kept.telemetry) as producer:
        with pytest.raises(TypeError, match="sends Messages"):
            await producer.send(nothing)
    assert kept.spans() == []


async def test_receives_that_get_nothing_leave_no_span(here: Servers, kept: Kept) -> None:
    async with simple(here, telemetry=kept.telemetry) as consumer:
        assert await consumer.receive(timeout_ms=50) == []
        waiting = asyncio.ensure_future(consumer.receive(timeout_ms=5_000))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert kept.spans() == []


async def test_a_message_without_a_context_is_processed_in_a_trace_of_its_own(here: Servers, kept: Kept) -> None:
    async def handler(message: ReceivedMessage) -> None:
        """Consumed."""

    await here.send("a", properties={"traceparent": "no context"})
    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: kept.spans("process orders"))
    assert (parent(kept.span("process orders")), linked(kept.span("process orders"))) == (None, [])


async def test_ordered_handlers_and_names_of_a_namespace(here: Servers, kept: Kept) -> None:
    async with here.producer(telemetry=kept.telemetry, namespace="eu") as producer:
        await producer.send(Message("orders", b"a", sharding_key="k"))

    async def handler(message: ReceivedMessage) -> None:
        """Consumed."""

    settings = QUICK | {"namespace": "eu"}
    consumer = here.consumer(consume_from=FIRST, telemetry=kept.telemetry, ordered=True, **settings)
    consumer.subscribe("orders", handler)
    async with consumer:
        await until(lambda: kept.spans("process orders") and kept.spans("commit orders"))
    for span in kept.spans():
        assert told(span)["messaging.rocketmq.namespace"] == "eu"
        assert told(span)["messaging.destination.name"] in ("orders", "%RETRY%g")
    assert told(kept.span("process orders"))["messaging.rocketmq.message.type"] == "fifo"
