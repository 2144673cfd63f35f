import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import RAISED, FakeLink, context, dispatching, owned_queue, received, until
from dejamq.handling.results import DONE
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import BatchResult, ConsumeStatus, DeadLetter, RetryLater
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue
from dejamq_proto.codes import BrokerUnavailable
from journalled import journalled

RETRY_QUEUE = MessageQueue("%RETRY%g", "broker-a", 0)


@pytest.mark.parametrize("answer", [None, ConsumeStatus.SUCCESS])
async def test_a_handler_that_ends_well_acknowledges(answer: object) -> None:
    async def handler(message: ReceivedMessage) -> object:
        return answer

    owned = owned_queue()
    async with dispatching(handler) as dispatcher:
        dispatcher.submit(owned, received(owned, 0, 1, 2))
        await until(lambda: owned.process_queue.commit_offset == 3)


@pytest.mark.parametrize(
    ("answer", "level"),
    [(ConsumeStatus.RECONSUME_LATER, 0), (RetryLater(4), 4), (DeadLetter("broken"), -1), (KeyError("x"), 0), (17, 0)],
)
async def test_anything_else_is_sent_back_and_then_finished(answer: object, level: int) -> None:
    async def handler(message: ReceivedMessage) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 5))
        await until(lambda: owned.process_queue.commit_offset == 6)
    (request,) = link.sent_back
    assert (request.delay_level, request.log_offset, request.topic) == (level, 500, "orders")
    assert (request.origin_message_id, request.delivery_ref) == (f"{5:032X}", "b00:1")


@pytest.mark.parametrize("run_sizes", [[20], [1] * 20, [3, 17], [40]])
async def test_handlers_that_wait_run_on_all_workers_however_the_messages_came(run_sizes: list[int]) -> None:
    waiting, go_on = [], asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        waiting.append(message.queue_offset)
        await go_on.wait()

    owned, total = owned_queue(), sum(run_sizes)
    async with dispatching(handler, workers=20) as dispatcher:
        await asyncio.sleep(0)  # all are idle
        offsets = iter(range(total))
        for size in run_sizes:
            dispatcher.submit(owned, received(owned, *(next(offsets) for _ in range(size))))
        await until(lambda: len(waiting) == 20)
        go_on.set()
        await until(lambda: owned.process_queue.commit_offset == total)
    assert sorted(waiting) == list(range(total))


async def test_a_failed_send_back_keeps_the_message_and_tries_it_here_again() -> None:
    times = []

    async def handler(message: ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        if len(times) == 3:
            return
        raise ValueError

    owned, link = owned_queue(), FakeLink()
    link.refuse = {"send_back": BrokerUnavailable("gone"), "send_run": BrokerUnavailable("gone too")}
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 5))
        await until(lambda: len(times) == 1)
        assert owned.process_queue.low_water == 5
        await until(lambda: owned.process_queue.commit_offset == 6)
    assert times == [0, 1, 2]


async def test_a_result_after_the_queue_was_dropped_counts_for_nothing(tmp_path: Path) -> None:
    """Cause O9."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        entered.set()
        await go_on.wait()

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link, directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, 5))
        await entered.wait()
        owned.process_queue.dropped = True
        go_on.set()
    assert owned.process_queue.commit_offset is None
    result = journalled(tmp_path)[-1]
    assert (result["event"], result["status"], result["pq_dropped"]) == ("RESULT", "success", True)


async def test_messages_of_a_dropped_queue_are_not_delivered() -> None:
    seen: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        owned.process_queue.dropped = True

    owned = owned_queue()
    async with dispatching(handler, workers=1) as dispatcher:
        dispatcher.submit(owned, received(owned, 1, 2, 3))
        await until(lambda: seen)
    assert seen == [1]


async def test_as_many_handlers_run_at_once_as_there_are_workers() -> None:
    running, most, go_on = 0, 0, asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1

    owned = owned_queue()
    async with dispatching(handler, workers=4) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(10)))
        await until(lambda: running == 4)
        go_on.set()
        await until(lambda: owned.process_queue.commit_offset == 10)
    assert most == 4


async def test_draining_starts_no_handler_and_waits_for_the_running_ones() -> None:
    entered, go_on, seen = asyncio.Event(), asyncio.Event(), []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        entered.set()
        await go_on.wait()

    owned = owned_queue()
    async with dispatching(handler, workers=1) as dispatcher:
        dispatcher.submit(owned, received(owned, 0, 1))
        await entered.wait()
        asyncio.get_running_loop().call_soon(go_on.set)
        assert await dispatcher.drain(5)
    assert seen == [0]
    assert owned.process_queue.commit_offset == 1


async def test_a_cancelled_handler_neither_acknowledges_nor_counts_a_try(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        entered.set()
        await asyncio.Event().wait()

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link, directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await entered.wait()
        dispatcher.hurry()
    assert (owned.process_queue.commit_offset, link.sent_back) == (None, [])
    assert journalled(tmp_path)[-1]["status"] == "cancelled"


@pytest.mark.parametrize("batch_size", [0, 1])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("error", RAISED)
async def test_whatever_a_handler_raises_is_a_failed_try_that_is_logged(
    error: Callable[[], BaseException], plain: bool, batch_size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(message: object) -> None:
        raise error()

    def plain_handler(message: object) -> None:
        raise error()

    owned, link = owned_queue(), FakeLink()
    called = plain_handler if plain else handler
    async with dispatching(called, link=link, directory=tmp_path, batch_size=batch_size) as dispatcher:
        dispatcher.submit(owned, received(owned, 5))
        await until(lambda: owned.process_queue.commit_offset == 6)
    (request,) = link.sent_back
    assert (request.delay_level, request.log_offset) == (0, 500)
    assert [line["status"] for line in journalled(tmp_path, "RESULT")] == ["exception"]
    assert "handler_failed" in caplog.text


async def test_a_wait_that_is_cancelled_inside_a_handler_is_a_failed_try() -> None:
    async def handler(message: ReceivedMessage) -> None:
        part = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(part.cancel)
        await part

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert len(link.sent_back) == 1


async def test_a_plain_function_runs_beside_the_loop() -> None:
    def handler(message: ReceivedMessage) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert not link.sent_back


async def test_a_plain_function_that_runs_out_of_an_iterator_fails_like_any_other() -> None:
    def handler(message: ReceivedMessage) -> None:
        next(iter(()))

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert len(link.sent_back) == 1


@pytest.mark.parametrize("batch_size", [0, 2])
async def test_a_plain_function_that_returns_a_coroutine_has_it_awaited(batch_size: int) -> None:
    async def inner() -> ConsumeStatus:
        await asyncio.sleep(0)
        return ConsumeStatus.RECONSUME_LATER

    owned, link = owned_queue(), FakeLink()
    async with dispatching(lambda argument: inner(), link=link, batch_size=batch_size) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: link.sent_back)


async def test_handlers_that_never_wait_do_not_keep_the_loop() -> None:
    async def handler(message: ReceivedMessage) -> None:
        end = asyncio.get_running_loop().time() + 0.002
        while asyncio.get_running_loop().time() < end:
            pass

    owned, turns = owned_queue(), 0
    async with dispatching(handler, workers=2) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(50)))
        while len(owned.process_queue):
            await asyncio.sleep(0)
            turns += 1
    assert turns > 3


async def test_a_batch_handler_gets_lists_of_at_most_its_size() -> None:
    sizes = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    owned = owned_queue()
    async with dispatching(handler, batch_size=4, workers=1) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(10)))
        await until(lambda: owned.process_queue.commit_offset == 10)
    assert sizes == [4, 4, 2]


async def test_a_batch_may_acknowledge_its_first_messages_only(tmp_path: Path) -> None:
    async def handler(messages: list[ReceivedMessage]) -> BatchResult:
        return BatchResult(ack_index=1)

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, batch_size=8, link=link, directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(4)))
        await until(lambda: owned.process_queue.commit_offset == 4)
    assert [request.log_offset for request in link.sent_back] == [200, 300]
    done, failed = journalled(tmp_path, "RESULT")
    assert (done["status"], done["mem_off"], done["delivery_ids"]) == ("success", 2, [1, 2])
    assert (failed["status"], failed["mem_off"], failed["delivery_ids"]) == ("reconsume", 2, [3, 4])


async def test_a_retried_message_goes_to_the_handler_of_its_first_topic(tmp_path: Path) -> None:
    seen = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.reconsume_times))

    owned = owned_queue(queue=RETRY_QUEUE)
    async with dispatching(handler, directory=tmp_path) as dispatcher:
        messages = received(owned, 0, RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="ABC", TIMES="1")
        dispatcher.submit(owned, messages)
        await until(lambda: seen)
    assert seen == [("orders", 1)]
    deliver = journalled(tmp_path)[0]
    assert (deliver["reconsume_times"], deliver["origin_ids"], deliver["topic"]) == ([1], ["ABC"], "%RETRY%g")


async def test_forensic_journals_the_delivery_before_its_handler_and_the_result_before_the_next_one(
    tmp_path: Path,
) -> None:
    before: list[list[str]] = []

    async def handler(message: ReceivedMessage) -> None:
        before.append([line["event"] for line in journalled(tmp_path)])
        assert message.delivery_id == f"b00-{message.queue_offset + 1}"

    owned = owned_queue()
    async with dispatching(handler, directory=tmp_path, workers=1, journal_business_key="KEYS") as dispatcher:
        dispatcher.submit(owned, received(owned, 0, 1, KEYS="order-1 other"))
        await until(lambda: owned.process_queue.commit_offset == 2)
    assert before == [["DELIVER"], ["DELIVER", "RESULT", "DELIVER"]]
    deliver, result = journalled(tmp_path)[:2]
    assert deliver["unique_keys"] == [f"{0:032X}"]
    assert (deliver["store_hosts"], deliver["business_keys"]) == (["127.0.0.1:10911"], ["order-1"])
    assert (result["status"], result["mem_off"], result["delivery_ids"]) == ("success", 1, [1])


async def test_audit_gathers_deliveries_and_results_of_a_queue_into_runs(tmp_path: Path) -> None:
    async def handler(message: ReceivedMessage) -> None:
        if message.queue_offset == 7:
            raise ValueError

    owned = owned_queue()
    async with dispatching(handler, directory=tmp_path, level="audit", workers=1) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(10)))
        await until(lambda: owned.process_queue.commit_offset == 10)
    told = [(line["event"], len(line["delivery_ids"]), line.get("mem_off")) for line in journalled(tmp_path)]
    assert told == [
        ("DELIVER", 8, None), ("RESULT", 7, 7), ("RESULT", 1, 7), ("SENDBACK", 1, None),
        ("DELIVER", 2, None), ("RESULT", 2, 10),
    ]  # fmt: skip


async def test_audit_gathers_batches_and_says_how_large_each_was(tmp_path: Path) -> None:
    async def handler(messages: list[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 6:
            raise ValueError

    owned = owned_queue()
    async with dispatching(handler, directory=tmp_path, level="audit", workers=1, batch_size=3) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(11)))
        await until(lambda: owned.process_queue.commit_offset == 11)
    told = [
        (line["event"], line["delivery_ids"], line.get("batch_id"), line.get("batch_sizes"), line.get("status"))
        for line in journalled(tmp_path)
        if line["event"] != "SENDBACK"
    ]
    assert told == [
        ("DELIVER", [1, 2, 3, 4, 5, 6, 7, 8, 9], 1, [3, 3, 3], None),
        ("RESULT", [1, 2, 3, 4, 5, 6], None, None, "success"),
        ("RESULT", [7, 8, 9], None, None, "exception"),
        ("DELIVER", [10, 11], 4, None, None),
        ("RESULT", [10, 11], None, None, "success"),
    ]


async def test_forensic_has_a_line_for_each_batch_and_each_result_of_one(tmp_path: Path) -> None:
    async def handler(messages: list[ReceivedMessage]) -> None: ...

    owned = owned_queue()
    async with dispatching(handler, directory=tmp_path, workers=1, batch_size=2) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(4)))
        await until(lambda: owned.process_queue.commit_offset == 4)
    told = [
        (line["event"], line["delivery_ids"], line.get("batch_id"), line.get("mem_off"))
        for line in journalled(tmp_path)
    ]
    assert told == [
        ("DELIVER", [1, 2], 1, None), ("RESULT", [1, 2], None, 2), ("DELIVER", [3, 4], 2, None),
        ("RESULT", [3, 4], None, 4),
    ]  # fmt: skip


async def test_batches_and_single_messages_of_a_queue_are_told_in_lines_of_their_own(tmp_path: Path) -> None:
    owned = owned_queue()
    deliveries = Deliveries(made := context(FakeLink(), tmp_path, "audit"))
    messages = received(owned, *range(7))
    deliveries.enter(owned, messages[0])
    deliveries.enter_batch(owned, messages[1:3])
    deliveries.enter_batch(owned, messages[3:6])
    deliveries.enter(owned, messages[6])
    deliveries.close()
    made.journal.flush()
    told = [
        (line["delivery_ids"], line.get("batch_id", 0), line.get("batch_sizes", [])) for line in journalled(tmp_path)
    ]
    assert told == [([1], 0, []), ([2, 3, 4, 5, 6], 1, [2, 3]), ([7], 0, [])]


async def test_what_was_gathered_as_done_counted_although_its_queue_is_dropped_before_it_is_written(
    tmp_path: Path,
) -> None:
    owned = owned_queue()
    deliveries = Deliveries(made := context(FakeLink(), tmp_path, "audit"))
    (message,) = received(owned, 0)
    deliveries.enter(owned, message)
    owned.process_queue.finish(0)
    deliveries.succeed(owned, [message])
    owned.process_queue.dropped = True
    deliveries.dropped(owned, "unsubscribed")
    made.journal.flush()
    told = [(line["event"], line.get("pq_dropped", False), line.get("mem_off")) for line in journalled(tmp_path)]
    assert told == [("DELIVER", False, None), ("RESULT", False, 1), ("PQ_DROP", False, 1)]


async def test_a_result_that_is_thrown_away_comes_after_what_every_other_queue_was_given_before(
    tmp_path: Path,
) -> None:
    lost, regained = owned_queue(), owned_queue()
    regained.number = 2
    deliveries = Deliveries(made := context(FakeLink(), tmp_path, "audit"))
    (message,), (again,) = received(lost, 0), received(regained, 0)
    deliveries.enter(lost, message)
    lost.process_queue.dropped = True
    deliveries.dropped(lost, "reassigned")
    deliveries.enter(regained, again)
    deliveries.end(lost, [message], DONE)
    deliveries.close()
    made.journal.flush()
    told = [(line["event"], line["pq_id"], line.get("pq_dropped", False)) for line in journalled(tmp_path)]
    assert told == [("DELIVER", 1, False), ("PQ_DROP", 1, False), ("DELIVER", 2, False), ("RESULT", 1, True)]


async def test_gathered_lines_reach_the_file_by_themselves(tmp_path: Path) -> None:
    async def handler(message: ReceivedMessage) -> None: ...

    owned = owned_queue()
    async with dispatching(handler, directory=tmp_path, level="audit") as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: [line["event"] for line in journalled(tmp_path)] == ["DELIVER", "RESULT"])


@pytest.mark.parametrize(("tries", "level", "sent"), [(None, 0, 0), (5, 0, 5), (0, -1, 0)])
async def test_how_often_a_message_is_tried_again_may_be_the_consumers_choice(
    tries: int | None, level: int, sent: int
) -> None:
    async def handler(message: ReceivedMessage) -> None:
        raise ValueError

    owned, link = owned_queue(), FakeLink()
    async with dispatching(handler, link=link, tries=tries) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert (link.sent_back[0].delay_level, link.sent_back[0].max_reconsume_times) == (level, sent)


async def test_a_send_back_cut_off_by_the_end_is_told_to_the_journal(tmp_path: Path) -> None:
    entered = asyncio.Event()

    class Slow(FakeLink):
        async def send_back(self, request: Any) -> None:
            entered.set()
            await asyncio.Event().wait()

    async def handler(message: ReceivedMessage) -> None:
        raise ValueError

    owned = owned_queue()
    async with dispatching(handler, link=Slow(), directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await entered.wait()
        dispatcher.hurry()
    assert journalled(tmp_path)[-1]["outcome"] == "indefinite"
    assert owned.process_queue.commit_offset is None
