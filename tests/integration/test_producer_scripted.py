"""A producer and brokers that misbehave on cue: what is retried, what fails, and what the caller is told."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from dejamq import (
    BacklogFull,
    BrokerUnavailable,
    ClientClosed,
    Code,
    ConfigError,
    DejamqError,
    Message,
    MessageQueue,
    MessageTooLarge,
    Producer,
    RouteNotFound,
    SendResult,
    SendStatus,
    SendTimeout,
)
from dejamq_proto.wire.messages import SendRun, SendRunResult
from journalled import journalled
from scripted_broker import (
    ScriptedNamesrv,
    accepted,
    answer_after,
    break_stream,
    never_answer,
    refused,
    scripted,
)

pytestmark = pytest.mark.usefixtures("transport")


def at(broker_name: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue("t", broker_name, queue_id)


async def test_a_sent_message_arrives_with_its_properties_and_its_place_is_told() -> None:
    async with scripted("a") as (producer, (broker,)):
        message = Message("t", b"paid", tags="paid", keys=["order-17", "x"], properties={"region": "eu"})
        result = await producer.send(message)
        assert result.status is SendStatus.SEND_OK
        assert result.message_id == message.message_id
        assert result.queue.broker_name == "a"
        assert result.offset_message_id == "7F00000100002A9F0000000000001000"
        (record,) = broker.records
        assert (record.topic, record.body, record.queue_id) == ("t", b"paid", result.queue.queue_id)
        assert list(record.properties.items()) == [
            ("UNIQ_KEY", message.message_id), ("TAGS", "paid"), ("KEYS", "order-17 x"), ("region", "eu"),
        ]  # fmt: skip


async def test_sends_of_one_turn_leave_together_and_each_gets_its_own_result() -> None:
    async with scripted("a") as (producer, (broker,)):
        await producer.publish_queues("t")
        results = await asyncio.gather(*(producer.send(Message("t", b"%d" % n), queue=at("a")) for n in range(10)))
        assert len(broker.runs) == 1
        assert [result.queue_offset for result in results] == list(range(10))


async def test_sends_gather_while_a_run_is_under_way() -> None:
    gate = asyncio.Event()
    async with scripted("a", max_runs_in_flight=1) as (producer, (broker,)):
        broker.script.append(answer_after(gate))
        first = producer.submit(Message("t", b"0"))
        await _until(lambda: len(broker.runs) == 1)
        rest = [producer.submit(Message("t", b"%d" % n)) for n in range(1, 13)]
        gate.set()
        await asyncio.gather(first, *rest)
        assert [len(run.sizes) for run in broker.runs] == [1, 12]
        assert sorted(map(int, broker.bodies)) == list(range(13))


async def test_a_broken_stream_is_retried_on_the_other_broker_with_the_same_unique_key() -> None:
    async with scripted("a", "b") as (producer, brokers):
        for broker in brokers:
            broker.script.append(break_stream)
        message = Message("t", b"once")
        result = await producer.send(message)
        records = [record for broker in brokers for record in broker.records]
        assert len(records) == 3
        assert result.message_id == message.message_id
        assert {record.properties["UNIQ_KEY"] for record in records} == {message.message_id}


async def test_a_retry_avoids_the_broker_that_failed() -> None:
    async with scripted("a", "b") as (producer, (a, b)):
        a.script.extend([break_stream] * 20)
        for n in range(6):
            result = await producer.send(Message("t", b"%d" % n))
            assert result.queue.broker_name == "b"
        assert a.runs
        assert set(a.bodies) <= set(b.bodies)


async def test_when_all_tries_break_the_error_is_not_definite_and_names_the_tries() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.script.extend([break_stream] * 3)
        with pytest.raises(BrokerUnavailable, match="tries: 3") as caught:
            await producer.send(Message("t", b"x"))
        assert not caught.value.definite
        assert caught.value.retriable


async def test_a_definite_failure_after_an_indefinite_one_stays_indefinite() -> None:
    async with scripted("a", retry_times_when_send_failed=1) as (producer, (broker,)):
        broker.script.extend([break_stream, refused(Code.SERVICE_NOT_AVAILABLE)])
        with pytest.raises(DejamqError) as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.code == Code.SERVICE_NOT_AVAILABLE
        assert not caught.value.definite


async def test_a_timeout_is_not_retried_and_not_definite_and_the_producer_goes_on() -> None:
    async with scripted("a", "b") as (producer, (a, b)):
        await producer.publish_queues("t")
        a.script.append(never_answer)
        with pytest.raises(SendTimeout) as caught:
            await producer.send(Message("t", b"late"), queue=at("a"), timeout_ms=300)
        assert not caught.value.definite
        assert b.runs == []
        assert (await producer.send(Message("t", b"next"), queue=at("b"))).queue == at("b")


async def test_a_timeout_without_explicit_queue_is_not_sent_to_another_broker() -> None:
    async with scripted("a", "b") as (producer, brokers):
        for broker in brokers:  # connected, so that the message leaves however late this machine is
            await producer.send(Message("t", b"first"), queue=at(broker.name), timeout_ms=20_000)
            broker.script.append(never_answer)
        with pytest.raises(SendTimeout):
            await producer.send(Message("t", b"late"), timeout_ms=300)
        await _until(lambda: sum(len(broker.runs) for broker in brokers) > 2)
        assert sum(len(broker.runs) for broker in brokers) == 3


async def test_calls_of_one_run_time_out_each_at_its_own_time() -> None:
    gate = asyncio.Event()
    async with scripted("a") as (producer, (broker,)):
        await producer.publish_queues("t")
        broker.script.append(answer_after(gate))
        futures = [producer.submit(Message("t", b"x"), timeout_ms=timeout_ms) for timeout_ms in (100, 400, 60_000)]
        await asyncio.wait(futures[:2])
        await _until(lambda: len(broker.runs) == 1)
        assert [type(future.exception()) for future in futures[:2]] == [SendTimeout, SendTimeout]
        gate.set()
        assert (await futures[2]).status is SendStatus.SEND_OK
        await producer.flush()


async def test_with_close_connection_on_timeout_the_other_sends_of_the_connection_are_tried_elsewhere() -> None:
    async with scripted("a", "b", close_connection_on_timeout=True) as (producer, (a, b)):
        await producer.send(Message("t", b"first"), queue=at("a"), timeout_ms=20_000)
        a.script.append(never_answer)
        late = producer.submit(Message("t", b"late"), queue=at("a"), timeout_ms=200)
        await _until(lambda: len(a.runs) == 2)
        b.script.append(break_stream)  # sends the other message to a, where it waits behind the late one
        other = producer.submit(Message("t", b"other"), timeout_ms=20_000)
        result, failure = await asyncio.gather(other, late, return_exceptions=True)
        assert isinstance(failure, SendTimeout)
        assert not isinstance(result, BaseException)


async def test_a_message_that_never_left_times_out_definitely() -> None:
    async with scripted("a", max_runs_in_flight=1) as (producer, (broker,)):
        broker.script.append(never_answer)
        blocking = producer.submit(Message("t", b"1"), timeout_ms=5000)
        await _until(lambda: len(broker.runs) == 1)
        with pytest.raises(SendTimeout) as caught:
            await producer.send(Message("t", b"2"), timeout_ms=200)
        assert caught.value.definite
        blocking.cancel()
        await producer.close(timeout_ms=0)


async def test_an_explicit_queue_is_not_left_for_another() -> None:
    async with scripted("a", "b") as (producer, (a, b)):
        a.script.append(break_stream)
        with pytest.raises(BrokerUnavailable):
            await producer.send(Message("t", b"x"), queue=at("a", 1))
        assert (len(a.runs), len(b.runs)) == (1, 0)
        assert a.runs[0].queues == [("t", 1)]


async def test_a_bad_record_fails_alone_and_the_innocent_ones_are_sent_again() -> None:
    async with scripted("a") as (producer, (broker,)):
        await producer.publish_queues("t")
        broker.script.append(refused(Code.MESSAGE_ILLEGAL, "its body does not match its CRC", bad_record=2))
        outcomes = await asyncio.gather(
            *(producer.send(Message("t", b"%d" % n), queue=at("a")) for n in range(5)), return_exceptions=True
        )
        failed = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, DejamqError)]
        assert failed == [2]
        assert isinstance(outcomes[2], MessageTooLarge)
        assert [b"%d" % n for n in (0, 1, 3, 4)] == broker.bodies[5:]


async def test_with_one_run_under_way_a_refusal_changes_no_order() -> None:
    """With two, later messages have left already: see docs/limits.md."""
    gate = asyncio.Event()

    async def refuse(run: SendRun) -> SendRunResult:
        await gate.wait()
        return SendRunResult(seq=run.seq, code=Code.MESSAGE_ILLEGAL, remark="bad", bad_record=1)

    async with scripted("a", max_runs_in_flight=1) as (producer, (broker,)):
        await producer.publish_queues("t")
        broker.script.append(refuse)
        early = [producer.submit(Message("t", b"%d" % n, sharding_key="k")) for n in range(3)]
        await _until(lambda: len(broker.runs) == 1)
        late = [producer.submit(Message("t", b"%d" % n, sharding_key="k")) for n in range(3, 6)]
        gate.set()
        await asyncio.gather(*early, *late, return_exceptions=True)
        assert broker.bodies[3:] == [b"0", b"2", b"3", b"4", b"5"]


async def test_a_bad_record_that_came_alone_fails_and_the_producer_goes_on() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.script.append(refused(Code.MESSAGE_ILLEGAL, "bad", bad_record=0))
        with pytest.raises(MessageTooLarge):
            await producer.send(Message("t", b"bad"))
        await producer.send(Message("t", b"good"))


async def test_an_answer_without_places_fails_the_calls_as_unknown() -> None:
    async def empty(run: SendRun) -> SendRunResult:
        return SendRunResult(seq=run.seq)

    async with scripted("a", retry_times_when_send_failed=0) as (producer, (broker,)):
        broker.script.append(empty)
        with pytest.raises(DejamqError, match="without the places") as caught:
            await producer.send(Message("t", b"x"))
        assert not caught.value.definite


async def test_a_selector_may_submit_a_message_itself() -> None:
    async with scripted("a", "b", send_msg_timeout_ms=20_000) as (producer, (a, _)):
        others: list[asyncio.Future[SendResult]] = []

        def chosen(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            others.append(producer.submit(Message("t", b"another"), queue=at("b")))
            return at("a")

        await producer.send(Message("t", b"first"), queue=at("b"))  # the route is known from here on
        release = asyncio.Event()
        a.script.append(answer_after(release))  # no answer wakes the producer meanwhile
        waiting = producer.submit(Message("t", b"x"), queue=chosen)
        async with asyncio.timeout(20):
            while not others:
                await asyncio.sleep(0)
            await others[0]
        release.set()
        await waiting


async def test_a_fault_of_the_producer_itself_fails_every_call_and_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dejamq.sending.sender.build_run", None)

    async def use() -> None:
        async with scripted("a") as (producer, _):
            with pytest.raises(ClientClosed, match="the producer failed"):
                await producer.send(Message("t", b"x"))
            with pytest.raises(DejamqError, match="the producer failed"):
                await producer.send(Message("t", b"x"))

    with pytest.raises(DejamqError, match="the producer failed"):  # the end of `async with` tells it too
        await use()


async def test_a_retriable_refusal_goes_to_the_other_broker() -> None:
    async with scripted("a", "b") as (producer, (a, _)):
        a.script.extend([refused(Code.SYSTEM_BUSY)] * 4)
        results = [await producer.send(Message("t", b"%d" % n)) for n in range(4)]
        assert {result.queue.broker_name for result in results} == {"b"}


async def test_a_refusal_that_is_not_retriable_is_raised_at_once() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.script.append(refused(Code.INVALID_PARAMETER, "queue 9 is out of range"))
        with pytest.raises(DejamqError, match="queue 9 is out of range") as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.definite
        assert len(broker.runs) == 1


async def test_a_status_that_is_not_ok_is_a_result() -> None:
    async def slow_disk(run: SendRun) -> SendRunResult:
        return accepted(run, code=Code.FLUSH_DISK_TIMEOUT)

    async with scripted("a") as (producer, (broker,)):
        broker.script.append(slow_disk)
        assert (await producer.send(Message("t", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT


async def test_cancelling_one_send_loses_no_other() -> None:
    gate = asyncio.Event()
    async with scripted("a") as (producer, (broker,)):
        broker.script.extend([answer_after(gate)] * 2)
        under_way = asyncio.create_task(producer.send(Message("t", b"0")))
        await _until(lambda: len(broker.runs) == 1)
        tasks = [asyncio.create_task(producer.send(Message("t", b"%d" % n))) for n in range(1, 6)]
        await asyncio.sleep(0)
        under_way.cancel()
        tasks[2].cancel()
        gate.set()
        outcomes = await asyncio.gather(under_way, *tasks, return_exceptions=True)
        cancelled = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, asyncio.CancelledError)]
        assert cancelled == [0, 3]
        await producer.send(Message("t", b"after"))
        await producer.flush()
        assert set(broker.bodies) >= {b"1", b"2", b"4", b"5", b"after"}


async def test_above_max_pending_bytes_submit_refuses_until_drained() -> None:
    gate = asyncio.Event()
    async with scripted("a", max_pending_bytes=13_000) as (producer, (broker,)):
        broker.script.extend([answer_after(gate)] * 2)
        accepted_futures = [producer.submit(Message("t", b"x" * 1000)) for _ in range(8)]
        with pytest.raises(BacklogFull, match="drain"):
            producer.submit(Message("t", b"x" * 1000))
        draining = asyncio.create_task(producer.drain())
        gate.set()
        await draining
        accepted_futures.append(producer.submit(Message("t", b"more")))
        await producer.flush()
        assert all(future.done() for future in accepted_futures)


async def test_close_sends_what_waits_and_leaves_the_brokers() -> None:
    async with scripted("a") as (producer, (broker,)):
        futures = [producer.submit(Message("t", b"%d" % n)) for n in range(50)]
        await _until(lambda: len(broker.heartbeats) > 0)
        await producer.close()
        assert all(future.result().status is SendStatus.SEND_OK for future in futures)
        assert [request.producer_group for request in broker.unregistered] == ["g"]
        with pytest.raises(ClientClosed):
            await producer.send(Message("t", b"x"))
        await producer.close()


async def test_close_with_a_silent_broker_ends_and_tells_that_the_outcome_is_unknown() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.script.append(never_answer)
        future = producer.submit(Message("t", b"x"))
        await _until(lambda: len(broker.runs) == 1)
        await producer.close(timeout_ms=50)
        with pytest.raises(ClientClosed) as caught:
            await future
        assert not caught.value.definite


async def test_a_batch_goes_as_one_run_to_one_queue() -> None:
    async with scripted("a", "b") as (producer, brokers):
        results = await producer.send_batch([Message("t", b"%d" % n) for n in range(40)])
        assert len({result.queue for result in results}) == 1
        assert [len(run.sizes) for broker in brokers for run in broker.runs] == [40]


async def test_a_batch_too_large_for_one_run_goes_to_one_queue_in_parts_and_in_order() -> None:
    async with scripted("a", "b", max_message_size=10_000) as (producer, brokers):
        messages = [Message("t", b"%d" % n, properties={"p": "y" * 900}) for n in range(40)]
        results = await producer.send_batch(messages)
        assert [result.message_id for result in results] == [message.message_id for message in messages]
        assert len({result.queue for result in results}) == 1
        (broker,) = (broker for broker in brokers if broker.runs)
        assert [len(run.sizes) for run in broker.runs] == [9, 9, 9, 9, 4]
        assert broker.bodies == [message.body for message in messages]


async def test_a_batch_that_fails_is_repeated_whole_at_the_other_broker() -> None:
    async with scripted("a", "b") as (producer, brokers):
        for broker in brokers:
            broker.script.append(break_stream)
        await producer.send_batch([Message("t", b"%d" % n) for n in range(40)])
        assert [len(run.sizes) for broker in brokers for run in broker.runs] == [40, 40, 40]


async def test_delayed_messages_travel_apart_as_runs_to_be_rewritten() -> None:
    async with scripted("a") as (producer, (broker,)):
        await producer.publish_queues("t")
        await asyncio.gather(
            producer.send(Message("t", b"now")), producer.send(Message("t", b"later", delay_level=3)),
        )  # fmt: skip
        assert [(run.rewrite, len(run.sizes)) for run in broker.runs] == [(False, 1), (True, 1)]
        assert broker.records[1].properties["DELAY"] == "3"


async def test_an_unknown_topic_is_said_with_the_name_server_that_was_asked() -> None:
    async with scripted("a") as (producer, _), asyncio.timeout(20):
        with pytest.raises(RouteNotFound, match=r"name server 127\.0\.0\.1:\d+ knows no broker for topic 'nowhere'"):
            await producer.send(Message("nowhere", b"x"))


async def test_an_unknown_topic_is_sent_by_the_template_topics_brokers() -> None:
    async with scripted("a") as (_, (broker,)):
        namesrv = ScriptedNamesrv({"TBW102": [broker]}, queues=8)  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        async with Producer("g", namesrv=namesrv.address) as producer:
            assert len(await producer.publish_queues("new")) == 4
            await producer.send(Message("new", b"x"))
        assert broker.records[0].topic == "new"
        assert broker.runs[0].default_queue_nums == 4
        await namesrv.close()


async def test_a_wrong_address_is_one_clear_line(unused_tcp_port: int) -> None:
    async with Producer("g", namesrv=f"127.0.0.1:{unused_tcp_port}", send_msg_timeout_ms=5000) as producer:
        with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{unused_tcp_port}") as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.definite
        assert "\n" not in str(caught.value)


async def test_another_program_at_the_address_is_one_clear_line() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)  # RocketMQ's decoder takes gRPC's greeting for a huge frame and closes
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Producer("g", namesrv=address, mq_client_api_timeout_ms=1000) as producer:
        with pytest.raises(BrokerUnavailable, match="no dejamq name server answers at " + address) as caught:
            await producer.send(Message("t", b"x"))
        assert "\n" not in str(caught.value)


async def test_the_next_name_server_is_asked_when_one_fails(unused_tcp_port: int) -> None:
    async with scripted("a") as (_, (broker,)):
        namesrv = ScriptedNamesrv({"t": [broker]})  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        addresses = [f"127.0.0.1:{unused_tcp_port}", namesrv.address]
        for _ in range(4):  # whichever it begins with
            async with Producer("g", namesrv=addresses, send_msg_timeout_ms=8000) as producer:
                await producer.send(Message("t", b"x"))
        await namesrv.close()


async def test_the_journal_tells_how_the_program_sent(tmp_path: Path) -> None:
    settings = {"journal_dir": str(tmp_path), "journal_level": "forensic"}
    async with scripted("a", **settings) as (producer, _):
        await producer.send(Message("t", b"x"))
        await producer.submit(Message("t", b"x"))
        await producer.send_batch([Message("t", b"x"), Message("t", b"y")])
        producer.send_oneway(Message("t", b"x"))
        await producer.flush()
    tries = [event for event in _events(tmp_path) if event["event"] == "SEND_TRY"]
    assert [event.get("modes") for event in tries] == [None, ["async"], ["batch"], ["oneway"]]


async def test_what_is_submitted_is_tried_again_as_often_as_its_own_setting_says() -> None:
    async with scripted("a", retry_times_when_send_async_failed=0) as (producer, (broker,)):
        broker.script.extend([break_stream] * 2)
        with pytest.raises(BrokerUnavailable):
            await producer.submit(Message("t", b"x"))
        await producer.send(Message("t", b"x"))
        assert len(broker.runs) == 3


async def test_the_journal_tells_each_try_its_outcome_and_the_failed_call(tmp_path: Path) -> None:
    settings = {"journal_dir": str(tmp_path), "journal_level": "forensic", "journal_business_key": "KEYS"}
    async with scripted("a", retry_times_when_send_failed=1, **settings) as (producer, (broker,)):
        await producer.send(Message("t", b"good", keys="order-1"))
        broker.script.extend([break_stream] * 2)
        message = Message("t", b"bad", keys="order-2")
        with pytest.raises(BrokerUnavailable):
            await producer.send(message)
        seqs = [run.seq for run in broker.runs]
    events = _events(tmp_path)
    assert [event["event"] for event in events] == [
        "STATE", "SEND_TRY", "SEND_RESULT", "SEND_TRY", "SEND_RESULT", "SEND_TRY", "SEND_RESULT", "SEND_END", "STATE",
    ]  # fmt: skip
    tries = [event for event in events if event["event"] == "SEND_TRY"]
    assert [event["request_seq"] for event in tries] == seqs
    assert [event["tries"] for event in tries] == [[1], [1], [2]]
    assert [event["business_keys"] for event in tries] == [["order-1"], ["order-2"], ["order-2"]]
    assert [event["outcome"] for event in events if event["event"] == "SEND_RESULT"] == [
        "ok", "connection_lost", "connection_lost",
    ]  # fmt: skip
    (end,) = (event for event in events if event["event"] == "SEND_END")
    assert (end["unique_keys"], end["definite"]) == ([message.message_id], False)


async def test_a_oneway_asks_for_nothing_and_is_flushed() -> None:
    async with scripted("a") as (producer, (broker,)):
        producer.send_oneway(Message("t", b"x"))
        await producer.flush()
        assert broker.bodies == [b"x"]


async def test_two_closes_at_once_both_wait_for_the_end() -> None:
    async with scripted("a") as (producer, (broker,)):
        await producer.send(Message("t", b"x"))
        await _until(lambda: len(broker.heartbeats) > 0)
        await asyncio.gather(producer.close(), producer.close())
        assert len(broker.unregistered) == 1


async def test_a_close_that_is_cancelled_can_be_called_again() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.script.append(never_answer)
        future = producer.submit(Message("t", b"x"))
        closing = asyncio.create_task(producer.close())
        await _until(lambda: len(broker.runs) == 1)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await producer.close()
        assert isinstance(future.exception(), ClientClosed)


async def test_a_journal_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="journal_dir"):
        await Producer("g", journal_dir=str(tmp_path / "file")).start()


async def test_a_producer_that_was_not_started_says_how() -> None:
    with pytest.raises(ClientClosed, match="async with"):
        await Producer("g").send(Message("t", b"x"))


async def test_a_broker_that_appears_gets_a_heartbeat_and_one_that_breaks_gets_it_again() -> None:
    async with scripted("a", reconnect_interval_ms=10) as (producer, (broker,)):
        await producer.send(Message("t", b"x"))
        await _until(lambda: len(broker.heartbeats) == 1)
        assert list(broker.heartbeats[0].producer_groups) == ["g"]
        broker.hang_up.set()
        await _until(lambda: len(broker.heartbeats) >= 2)


def _events(directory: Path) -> list[dict[str, Any]]:
    (file,) = directory.iterdir()
    return journalled(file)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
