"""A producer's settings and arguments, seen from brokers that do as they are told."""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from dejamq import (
    BacklogFull,
    BatchIncomplete,
    BrokerUnavailable,
    ClientClosed,
    Code,
    DejamqError,
    Message,
    MessageQueue,
    MessageTooLarge,
    Producer,
    SendContext,
    SendResult,
    SendStatus,
    SendTimeout,
    select_by_hash,
    select_machine_room,
    select_random,
)
from dejamq_proto.records.compression import decompress
from dejamq_proto.wire.messages import SendRun, SendRunResult
from journalled import journalled
from scripted_broker import (
    Answer,
    ScriptedBroker,
    ScriptedNamesrv,
    accepted,
    answer_after,
    break_stream,
    never_answer,
    refused,
    scripted,
)

NOT_OK = [Code.FLUSH_DISK_TIMEOUT, Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE]
NO_TRIES_LEFT = {"retry_times_when_send_failed": 0}


def at(broker_name: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue("t", broker_name, queue_id)


def stored_with(code: Code) -> Answer:
    async def answer(run: SendRun) -> SendRunResult:
        return accepted(run, code=code)

    return answer


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


# --- the longest wait of one try


async def test_a_try_that_waits_too_long_is_followed_by_one_at_another_broker_within_the_budget() -> None:
    """On a busy machine the other broker's answer may be late as well: then there are further tries, all but the last
    as short, so that none of them may be the last here."""
    settings = {"send_msg_max_timeout_per_request_ms": 200, "retry_times_when_send_failed": 50}
    async with scripted("a", "b", send_msg_timeout_ms=20_000, **settings) as (producer, (a, b)):
        a.script.append(never_answer)  # nor what comes after it in the stream
        messages = [Message("t", b"%d" % n) for n in range(4)]  # at least one of them goes to each queue first
        results = [await producer.send(message) for message in messages]
        assert {result.queue.broker_name for result in results} == {"b"}
        sent = {message.message_id for message in messages}
        assert a.records
        assert {record.properties["UNIQ_KEY"] for record in a.records} <= sent
        assert {record.properties["UNIQ_KEY"] for record in b.records} == sent


async def test_the_last_try_has_all_that_is_left_of_the_budget() -> None:
    """No broker answers a try within its limit, so only a last one without that limit can succeed."""
    gate = asyncio.Event()
    settings = {"send_msg_max_timeout_per_request_ms": 30, "retry_times_when_send_failed": 1}
    async with scripted("a", "b", send_msg_timeout_ms=20_000, **settings) as (producer, brokers):
        for broker in brokers:
            broker.script.append(answer_after(gate))
        sending = asyncio.create_task(producer.send(Message("t", b"x")))
        done, _ = await asyncio.wait((sending,), timeout=0.3)  # ten times the limit of a try that is not the last
        assert not done
        gate.set()
        assert (await sending).status is SendStatus.SEND_OK


async def test_a_queue_that_was_chosen_is_waited_for_all_the_budget() -> None:
    gate = asyncio.Event()
    async with scripted("a", "b", send_msg_max_timeout_per_request_ms=30) as (producer, (a, b)):
        await producer.publish_queues("t")
        a.script.append(answer_after(gate))
        patient = producer.submit(Message("t", b"chosen"), queue=at("a"), timeout_ms=20_000)
        done, _ = await asyncio.wait((patient,), timeout=0.3)
        assert not done
        gate.set()
        await patient
        assert (len(a.runs), len(b.runs)) == (1, 0)


async def test_calls_that_may_go_elsewhere_and_calls_that_may_not_do_not_share_a_run() -> None:
    async with scripted("a", send_msg_max_timeout_per_request_ms=5_000) as (producer, (broker,)):
        await producer.publish_queues("t")
        futures = [producer.submit(Message("t", b"%d" % n), queue=at("a") if n % 4 < 2 else None) for n in range(8)]
        await asyncio.gather(*futures)
        for run in broker.runs:
            numbers = [int(record.body) for record in ScriptedBroker.records_of(run)]
            assert len({number % 4 < 2 for number in numbers}) == 1
        assert sorted(map(int, broker.bodies)) == list(range(8))


async def test_after_a_short_try_the_error_of_the_last_one_is_not_definite() -> None:
    settings = {"send_msg_max_timeout_per_request_ms": 30, "retry_times_when_send_failed": 1}
    async with scripted("a", "b", send_msg_timeout_ms=20_000, **settings) as (producer, (a, b)):
        a.script = b.script = deque([never_answer, refused(Code.SERVICE_NOT_AVAILABLE)])
        with pytest.raises(DejamqError) as caught:
            await producer.send(Message("t", b"x"))
        assert not caught.value.definite


# --- refusals


RETRIABLE = {
    Code.TOPIC_NOT_EXIST, Code.SERVICE_NOT_AVAILABLE, Code.SYSTEM_ERROR, Code.SYSTEM_BUSY, Code.NO_PERMISSION,
    Code.NO_BUYER_ID, Code.NOT_IN_CURRENT_UNIT, Code.GO_AWAY,
}  # fmt: skip
BY_CLIENTS = 10_001  # codes from here on never come from a broker


@pytest.mark.parametrize("code", sorted(RETRIABLE))
async def test_each_retriable_refusal_is_followed_by_a_try_at_another_broker(code: Code) -> None:
    async with scripted("a", "b") as (producer, (a, b)):
        a.script.extend([refused(code)] * 4)
        results = [await producer.send(Message("t", b"%d" % n)) for n in range(4)]
        assert {result.queue.broker_name for result in results} == {"b"}
        assert len(a.runs) >= 1
        assert len(b.runs) == 4


@pytest.mark.parametrize(
    "code",
    [
        code
        for code in Code
        if code < BY_CLIENTS and code not in {Code.SUCCESS, Code.CONSUME_MSG_TIMEOUT, *RETRIABLE, *NOT_OK}
    ],
)
async def test_each_final_refusal_is_told_at_once_and_is_definite(code: Code) -> None:
    async with scripted("a", "b") as (producer, brokers):
        for broker in brokers:
            broker.script.append(refused(code, "because"))
        with pytest.raises(DejamqError, match="because") as caught:
            await producer.send(Message("t", b"x"))
        assert (caught.value.code, caught.value.definite) == (code, True)
        assert sum(len(broker.runs) for broker in brokers) == 1


async def test_which_refusals_are_retried_can_be_chosen() -> None:
    async with scripted("a", "b", retry_response_codes="FLOW_CONTROL") as (producer, (a, b)):
        for broker in (a, b):
            broker.script.append(refused(Code.FLOW_CONTROL))
        assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK
        for broker in (a, b):
            broker.script.clear()
            broker.script.append(refused(Code.SYSTEM_BUSY))
        with pytest.raises(DejamqError) as caught:
            await producer.send(Message("t", b"y"))
        assert caught.value.code == Code.SYSTEM_BUSY


# --- stored, but not as it should be


@pytest.mark.parametrize("code", NOT_OK)
async def test_a_message_stored_less_durably_is_sent_to_another_broker_where_that_is_wanted(code: Code) -> None:
    async with scripted("a", "b", retry_another_broker_when_not_store_ok=True) as (producer, brokers):
        for broker in brokers:
            broker.script.append(stored_with(code))
        result = await producer.send(Message("t", b"x"))
        assert result.status is SendStatus.SEND_OK
        assert sum(len(broker.runs) for broker in brokers) == 3


async def test_when_no_other_broker_takes_it_the_place_where_it_is_stored_is_the_result() -> None:
    async with scripted("a", retry_another_broker_when_not_store_ok=True) as (producer, (broker,)):
        broker.script.extend([stored_with(Code.SLAVE_NOT_AVAILABLE), break_stream, refused(Code.MESSAGE_ILLEGAL)])
        result = await producer.send(Message("t", b"x"))
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert len(broker.runs) == 3


async def test_when_all_brokers_store_it_less_durably_the_last_place_is_the_result() -> None:
    async with scripted("a", retry_another_broker_when_not_store_ok=True) as (producer, (broker,)):
        broker.script.extend([stored_with(Code.FLUSH_DISK_TIMEOUT)] * 3)
        assert (await producer.send(Message("t", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT
        assert len(broker.runs) == 3


async def test_a_chosen_queue_is_not_left_because_it_stores_less_durably() -> None:
    async with scripted("a", "b", retry_another_broker_when_not_store_ok=True) as (producer, (a, b)):
        a.script.append(stored_with(Code.FLUSH_DISK_TIMEOUT))
        result = await producer.send(Message("t", b"x"), queue=at("a"))
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert b.runs == []


# --- selectors


async def test_a_selector_chooses_among_the_topics_sorted_queues() -> None:
    seen: list[Sequence[MessageQueue]] = []

    def last(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        seen.append(queues)
        return queues[-1]

    async with scripted("b", "a") as (producer, _):
        result = await producer.send(Message("t", b"x"), queue=last)
        assert result.queue == at("b", 1)
        assert list(seen[0]) == [at("a", 0), at("a", 1), at("b", 0), at("b", 1)]


async def test_what_a_selector_chose_is_not_left_for_another_broker() -> None:
    async with scripted("a", "b") as (producer, (a, b)):
        a.script.append(break_stream)
        with pytest.raises(BrokerUnavailable):
            await producer.send(Message("t", b"x"), queue=lambda queues, message: queues[0])
        assert b.runs == []


async def test_one_key_has_one_queue_for_single_messages_oneways_and_batches() -> None:
    async with scripted("a", "b") as (producer, brokers):
        select = select_by_hash("user-1")
        first = (await producer.send(Message("t", b"0"), queue=select)).queue
        assert (await producer.send(Message("t", b"1", sharding_key="user-1"))).queue == first
        producer.send_oneway(Message("t", b"2"), queue=select)
        batches = [
            await producer.send_batch([Message("t", b"3")] * 3, queue=select),
            await producer.send_batch([Message("t", b"4", sharding_key="user-1")] * 3),
        ]
        await producer.flush()
        assert {result.queue for batch in batches for result in batch} == {first}
        assert [len(broker.bodies) for broker in brokers if broker.runs] == [9]


@pytest.mark.parametrize(
    ("select", "says"),
    [
        (lambda queues, message: None, "chose None"),
        (lambda queues, message: MessageQueue("u", "a", 0), "no queue of topic 't'"),
        (lambda queues, message: queues[99], "selector failed for topic 't'"),
        (lambda queues, message: sys.exit(1), "selector failed for topic 't'"),
        (select_machine_room({"north"}), "no queue of topic 't' is in machine room north"),
    ],
)
async def test_a_selector_that_fails_fails_its_message_alone(select: Any, says: str) -> None:
    async with scripted("a") as (producer, (broker,)):
        for _ in range(2):  # the route is not known, and known
            with pytest.raises(DejamqError, match=says) as caught:
                await producer.send(Message("t", b"x"), queue=select)
            assert caught.value.code == Code.INVALID_PARAMETER
        with pytest.raises(DejamqError, match=says):
            await producer.send_batch([Message("t", b"x")] * 2, queue=select)
        await producer.send(Message("t", b"good"))
        assert broker.bodies == [b"good"]
        assert (producer.inspect().backlog.calls, producer.inspect().backlog.bytes) == (0, 0)


async def test_a_selector_chooses_once_for_all_of_a_batch() -> None:
    async with scripted("a", "b", max_message_size=2_000) as (producer, brokers):
        for seed in range(5):
            batch = [Message("t", b"x" * 500)] * 12
            results = await producer.send_batch(batch, queue=select_random(seed))
            assert len({result.queue for result in results}) == 1
        assert {len(run.sizes) for broker in brokers for run in broker.runs} == {3}


# --- batches in parts


async def test_when_there_is_no_room_for_a_later_part_the_error_tells_what_is_stored() -> None:
    settings = {"max_message_size": 2_000, "max_pending_bytes": 2_500, "max_runs_in_flight": 1}
    async with scripted("a", **settings) as (producer, (broker,)):
        await producer.send(Message("t", b"connected"))
        gate = asyncio.Event()
        broker.script.append(answer_after(gate))
        sending = asyncio.create_task(producer.send_batch([Message("t", b"x" * 500)] * 9, timeout_ms=800))
        await until(lambda: len(broker.runs) == 2)
        blocking = [asyncio.create_task(producer.send(Message("t", b"y" * 900), timeout_ms=20_000)) for _ in range(4)]
        broker.script.append(never_answer)
        gate.set()
        with pytest.raises(BatchIncomplete) as caught:
            await sending
        outcomes = caught.value.outcomes
        assert isinstance(outcomes[0], SendResult)
        assert isinstance(outcomes[-1], SendTimeout)
        await producer.close(timeout_ms=0)
        await asyncio.gather(*blocking, return_exceptions=True)


async def test_when_one_part_of_a_batch_fails_the_error_tells_what_is_stored() -> None:
    settings = {"max_message_size": 2_000, "max_runs_in_flight": 1, **NO_TRIES_LEFT}
    async with scripted("a", **settings) as (producer, (broker,)):
        broker.script.extend([_accept, refused(Code.MESSAGE_ILLEGAL, "too odd"), _accept])
        messages = [Message("t", b"%d" % n, properties={"p": "x" * 700}) for n in range(6)]
        with pytest.raises(BatchIncomplete, match="2 of 6 messages of the batch failed") as caught:
            await producer.send_batch(messages)
        kinds = [isinstance(outcome, SendResult) for outcome in caught.value.outcomes]
        assert kinds == [True, True, False, False, True, True]


async def _accept(run: SendRun) -> SendRunResult:
    return accepted(run)


# --- packed bodies


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
async def test_a_large_body_travels_packed_also_when_it_is_tried_again(kind: str) -> None:
    body = b"again and again " * 1000
    async with scripted("a", compress_type=kind) as (producer, (broker,)):
        broker.script.append(break_stream)
        await producer.send(Message("t", body))
        assert len(broker.records) == 2
        for record in broker.records:
            assert len(record.body) < 2_000
            assert decompress(record.body, record.sys_flag) == body


# --- hooks


class Watcher:
    """Keeps what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, bytes, object]] = []

    def before_send(self, context: SendContext) -> None:
        assert (context.result, context.error) == (None, None)
        context.values["began"] = len(self.told)
        self.told.append(("before", context.attempt, context.message.body, context.queue.broker_name))

    def after_send(self, context: SendContext) -> None:
        assert "began" in context.values
        ended = context.error if context.result is None else context.result.status
        self.told.append(("after", context.attempt, context.message.body, ended))


async def test_hooks_see_every_try_before_it_leaves_and_how_it_returned() -> None:
    async with scripted("a") as (producer, (broker,)):
        watcher = Watcher()
        producer.add_hook(watcher)
        broker.script.append(break_stream)
        await producer.send(Message("t", b"x"))
        producer.send_oneway(Message("t", b"oneway"))
        await producer.flush()
        steps = [step[:3] for step in watcher.told]
        assert steps == [
            ("before", 1, b"x"), ("after", 1, b"x"), ("before", 2, b"x"), ("after", 2, b"x"),
            ("before", 1, b"oneway"), ("after", 1, b"oneway"),
        ]  # fmt: skip
        assert isinstance(watcher.told[1][3], BrokerUnavailable)
        assert [step[3] for step in watcher.told[3::2]] == [SendStatus.SEND_OK, SendStatus.SEND_OK]


async def test_hooks_hear_of_refusals_and_of_timeouts() -> None:
    async with scripted("a", **NO_TRIES_LEFT) as (producer, (broker,)):
        watcher = Watcher()
        producer.add_hook(watcher)
        broker.script.extend([refused(Code.MESSAGE_ILLEGAL), never_answer])
        with pytest.raises(DejamqError):
            await producer.send(Message("t", b"x"))
        with pytest.raises(SendTimeout):
            await producer.send(Message("t", b"y"), timeout_ms=500)
        ends = [step[3] for step in watcher.told if step[0] == "after"]
        assert [type(end) for end in ends] == [MessageTooLarge, SendTimeout]
        await producer.close(timeout_ms=0)


async def test_hooks_are_told_each_message_of_a_run() -> None:
    async with scripted("a") as (producer, (broker,)):
        watcher = Watcher()
        producer.add_hook(watcher)
        await asyncio.gather(*(producer.send(Message("t", b"%d" % n)) for n in range(5)))
        assert len(broker.runs) == 1
        assert [step[0] for step in watcher.told] == ["before"] * 5 + ["after"] * 5
        assert {step[2] for step in watcher.told} == set(broker.bodies)


async def test_a_hook_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def before_send(self, context: SendContext) -> None:
            raise ValueError("before")

        def after_send(self, context: SendContext) -> None:
            raise ValueError("after")

    async with scripted("a") as (producer, _):
        watcher = Watcher()
        producer.add_hook(Broken())
        producer.add_hook(watcher)
        with caplog.at_level(logging.WARNING, "dejamq"):
            assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK
        assert len(watcher.told) == 2
        assert caplog.text.count("send_hook_failed hook=Broken") == 2


async def test_what_is_no_hook_is_refused() -> None:
    with pytest.raises(DejamqError, match="int is no send hook: it needs before_send"):
        Producer("g").add_hook(3)  # type: ignore[arg-type]  # what a program may do


# --- namespaces


async def test_brokers_know_the_namespace_and_the_program_does_not() -> None:
    async with scripted("a") as (_, (broker,)):
        namesrv = ScriptedNamesrv({"eu%t": [broker]})  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        async with Producer("g", namesrv=namesrv.address, namespace="eu") as producer:
            names: set[tuple[str, str, str]] = set()

            class Names:
                def before_send(self, context: SendContext) -> None:
                    names.add((context.group, context.message.topic, context.queue.topic))

                def after_send(self, context: SendContext) -> None:
                    assert context.result is not None
                    names.add((context.group, context.message.topic, context.result.queue.topic))

            producer.add_hook(Names())
            queues = await producer.publish_queues("t")
            assert queues == [at("a", 0), at("a", 1)]
            results = [
                await producer.send(Message("t", b"x")),
                await producer.send(Message("t", b"y"), queue=queues[1]),
                await producer.send(Message("t", b"z"), queue=lambda found, message: found[0]),
                *await producer.send_batch([Message("t", b"b")] * 2, queue=queues[0]),
            ]
            await until(lambda: broker.heartbeats)
        assert {result.queue.topic for result in results} == {"t"}
        assert names == {("g", "t", "t")}
        assert [results[n].queue for n in (1, 2, 3)] == [queues[1], queues[0], queues[0]]
        assert {record.topic for record in broker.records} == {"eu%t"}
        assert {run.group for run in broker.runs} == {"eu%g"}
        assert [list(beat.producer_groups) for beat in broker.heartbeats][-1] == ["eu%g"]
        await namesrv.close()


# --- the fault strategy


async def test_a_broker_that_refused_is_avoided_by_the_next_messages() -> None:
    async with scripted("a", "b", send_latency_enable=True) as (producer, (a, b)):
        await producer.publish_queues("t")
        a.script.append(refused(Code.SYSTEM_BUSY))
        with pytest.raises(DejamqError):
            await producer.send(Message("t", b"x"), queue=at("a"))
        results = [await producer.send(Message("t", b"%d" % n)) for n in range(8)]
        assert {result.queue.broker_name for result in results} == {"b"}
        assert {result.queue.broker_name for result in await producer.send_batch([Message("t", b"x")] * 2)} == {"b"}
        assert (len(a.runs), len(b.runs)) == (1, 9)


async def test_without_the_strategy_a_broker_that_refused_has_its_turn_again() -> None:
    async with scripted("a", "b") as (producer, (a, _)):
        await producer.publish_queues("t")
        a.script.append(refused(Code.SYSTEM_BUSY))
        with pytest.raises(DejamqError):
            await producer.send(Message("t", b"x"), queue=at("a"))
        results = [await producer.send(Message("t", b"%d" % n)) for n in range(8)]
        assert {result.queue.broker_name for result in results} == {"a", "b"}


async def test_a_slow_broker_is_avoided_by_the_next_messages() -> None:
    async def slow(run: SendRun) -> SendRunResult:
        await asyncio.sleep(0.6)  # the fourth step of the table: above 550 ms it is avoided for two seconds
        return accepted(run)

    async with scripted("a", "b", send_latency_enable=True) as (producer, (a, _)):
        await producer.publish_queues("t")
        a.script.append(slow)
        await producer.send(Message("t", b"x"), queue=at("a"))
        results = await asyncio.gather(*(producer.send(Message("t", b"%d" % n)) for n in range(8)))
        assert {result.queue.broker_name for result in results} == {"b"}


async def test_with_the_detector_a_broker_that_cannot_be_reached_counts_as_unreachable_until_probed() -> None:
    settings = {"send_latency_enable": True, "start_detector_enable": True, "detect_interval_ms": 20}
    async with scripted("a", "b", **settings) as (producer, (a, _)):
        await producer.publish_queues("t")
        faults = producer.inspect().faults
        assert faults is not None
        a.script.append(break_stream)
        with pytest.raises(BrokerUnavailable):
            await producer.send(Message("t", b"x"), queue=at("a"))
        assert not faults.reachable("a")
        await until(lambda: faults.reachable("a"))


# --- a full backlog


async def test_send_waits_for_room_where_submit_refuses() -> None:
    gate = asyncio.Event()
    async with scripted("a", max_pending_bytes=6_500, send_msg_timeout_ms=20_000) as (producer, (broker,)):
        broker.script.extend([answer_after(gate)] * 2)
        first = [producer.submit(Message("t", b"x" * 1000)) for _ in range(4)]
        with pytest.raises(BacklogFull):
            producer.submit(Message("t", b"x" * 1000))
        waiting = [asyncio.create_task(producer.send(Message("t", b"%d" % n + b"y" * 990))) for n in range(20)]
        batch = asyncio.create_task(producer.send_batch([Message("t", b"z" * 500)] * 4))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*first, *waiting, batch)
        assert len(broker.bodies) == 28


async def test_a_send_that_finds_no_room_in_time_is_surely_not_sent_and_journalled(tmp_path: Path) -> None:
    async with scripted("a", max_pending_bytes=5_000, journal_dir=str(tmp_path)) as (producer, (broker,)):
        broker.script.append(never_answer)
        stuck = producer.submit(Message("t", b"x" * 4_000), timeout_ms=20_000)
        with pytest.raises(SendTimeout, match="max_pending_bytes") as caught:
            await producer.send(Message("t", b"x" * 1000), timeout_ms=100)
        assert caught.value.definite
        stuck.cancel()
        await producer.close(timeout_ms=0)
        assert len(broker.bodies) <= 1
    (end,) = ends_in(tmp_path)
    assert (end["definite"], end["code"]) == (True, Code.ACCESS_BROKER_TIMEOUT)


async def test_closing_ends_a_send_that_waits_for_room() -> None:
    async with scripted("a", max_pending_bytes=5_000) as (producer, (broker,)):
        broker.script.append(never_answer)
        stuck = producer.submit(Message("t", b"x" * 4_000), timeout_ms=20_000)
        waiting = asyncio.create_task(producer.send(Message("t", b"x" * 1000), timeout_ms=20_000))
        await until(lambda: broker.runs)
        await producer.close(timeout_ms=0)
        with pytest.raises(ClientClosed):
            await waiting
        assert isinstance(stuck.exception(), ClientClosed)


# --- what is surely not stored, for the caller and for the journal


ENDINGS: list[tuple[list[Answer], bool]] = [
    ([refused(Code.MESSAGE_ILLEGAL)], True),
    ([refused(Code.SERVICE_NOT_AVAILABLE)] * 3, True),
    ([refused(Code.SYSTEM_ERROR)] * 3, False),
    ([break_stream] * 3, False),
    ([break_stream, refused(Code.SYSTEM_BUSY), refused(Code.SYSTEM_BUSY)], False),
    ([refused(Code.SYSTEM_BUSY), refused(Code.SYSTEM_BUSY), break_stream], False),
    ([never_answer], False),
    ([refused(Code.SYSTEM_BUSY), never_answer], False),
]
"""What the broker says to each try, and whether the message is surely not stored then."""


def ends_in(directory: Path) -> list[dict[str, Any]]:
    """What the journal says of calls that failed."""
    (file,) = directory.iterdir()
    return journalled(file, "SEND_END")


@pytest.mark.parametrize(("answers", "definite"), ENDINGS)
async def test_the_error_and_the_journal_agree_whether_a_message_is_surely_not_stored(
    tmp_path: Path, answers: list[Answer], definite: bool
) -> None:
    """A try that is never answered ends by its budget. On a busy machine a short budget may end before that try left:
    then the message gets a longer one."""
    budgets_ms = (120, 500, 2_000, 8_000) if answers[-1] is never_answer else (20_000,)
    for timeout_ms in budgets_ms:
        journal, message = tmp_path / str(timeout_ms), Message("t", b"x")
        async with scripted("a", journal_dir=str(journal), journal_level="forensic") as (producer, (broker,)):
            broker.script.extend(answers)
            with pytest.raises(DejamqError) as caught:
                await producer.send(message, timeout_ms=timeout_ms)
            await producer.close(timeout_ms=0)
        (end,) = ends_in(journal)
        assert caught.value.definite is end["definite"]
        assert (end["unique_keys"], end["code"]) == ([message.message_id], int(caught.value.code))
        if len(broker.runs) == len(answers):
            break
    assert len(broker.runs) == len(answers)
    assert caught.value.definite is definite


async def test_a_message_that_never_left_is_surely_not_stored(tmp_path: Path) -> None:
    async with scripted("a", max_runs_in_flight=1, journal_dir=str(tmp_path)) as (producer, (broker,)):
        await producer.publish_queues("t")
        broker.script.append(never_answer)
        left = producer.submit(Message("t", b"left"), timeout_ms=20_000)
        await until(lambda: broker.runs)
        stayed = producer.submit(Message("t", b"stayed"), timeout_ms=20_000)
        await producer.close(timeout_ms=0)
        errors = [future.exception() for future in (left, stayed)]
        assert [error.definite for error in errors if isinstance(error, DejamqError)] == [False, True]
    assert [end["definite"] for end in ends_in(tmp_path)] == [False, True]
