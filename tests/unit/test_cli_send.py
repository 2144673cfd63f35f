"""What ``dejamq send`` reads and how it keeps count, with a producer that is stood in."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import BacklogFull, Message, SendResult
from dejamq_cli.access import sources
from dejamq_cli.access.stream_sender import MOST_IN_FLIGHT, StreamFeeder
from dejamq_cli.commands.send import Bodies
from dejamq_cli.terminal.message_text import body_text, one_line
from dejamq_cli.terminal.output import OutputClosed
from dejamq_cli.terminal.stopping import stop_signals, until
from dejamq_proto.codes import BrokerUnavailable, ConfigError, MessageTooLarge

LIMIT = 1000


async def lines_of(content: bytes, limit: int = LIMIT) -> list[bytes]:
    return [line async for line in sources.lines(io.BytesIO(content), limit)]


async def bodies(made: Bodies, limit: int = LIMIT) -> list[bytes]:
    return [message.body async for message in made.messages(Message("t", b"-"), limit)]


# --- where bodies come from


async def test_a_body_from_the_command_line_is_one_message() -> None:
    assert await bodies(Bodies("a\nb", False, 1)) == [b"a\nb"]


async def test_a_body_from_the_command_line_need_not_be_text() -> None:
    assert await bodies(Bodies(os.fsdecode(b"\xff\xfe"), False, 1)) == [b"\xff\xfe"]


async def test_an_empty_body_is_bad_use() -> None:
    with pytest.raises(ConfigError, match="at least one byte"):
        await bodies(Bodies("", False, 1))


@pytest.mark.parametrize("content", [b"one\ntwo\r\nthree", b"one\ntwo\r\nthree\n"])
async def test_the_last_line_may_lack_its_end(content: bytes) -> None:
    assert await lines_of(content) == [b"one", b"two", b"three"]


async def test_lines_may_hold_any_bytes_but_their_end() -> None:
    content = bytes(set(range(256)) - {10}) + b"\n\xff\xfe\x00\n"
    assert await lines_of(content) == [content[:255], b"\xff\xfe\x00"]


async def test_lines_are_cut_where_they_end_wherever_reading_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(b"%d\r\n" % number * (number % 3) for number in range(200))
    whole = await lines_of(content)
    for chunk in (1, 2, 3, 7):
        monkeypatch.setattr(sources, "CHUNK_BYTES", chunk)
        assert await lines_of(content) == whole


async def test_empty_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n\n\r\nb\n")
    made = Bodies(tmp_path / "f", True, 1)
    assert await bodies(made) == [b"a", b"b"]
    assert made.left_out == 2


async def test_each_is_sent_as_often_as_wanted_with_ids_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb")
    messages = [one async for one in Bodies(tmp_path / "f", True, 2).messages(Message("t", b"-", tags="x"), LIMIT)]
    assert [(one.body, one.tags) for one in messages] == [(b"a", "x"), (b"a", "x"), (b"b", "x"), (b"b", "x")]
    assert len({one.message_id for one in messages}) == 4


async def test_what_no_message_can_hold_is_refused_before_all_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK_BYTES", 100)
    for reading in (sources.whole, lines_all):
        stream = io.BytesIO(bytes(100_000))
        with pytest.raises(MessageTooLarge, match="1000 bytes"):
            await reading(stream, LIMIT)
        assert stream.tell() <= LIMIT + 100


async def lines_all(stream: io.BytesIO, limit: int) -> list[bytes]:
    return [line async for line in sources.lines(stream, limit)]


async def test_a_line_from_a_pipe_is_there_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as stream:
        found = sources.lines(stream, LIMIT)
        for text in (b"one", b"two"):
            os.write(writing, text + b"\n")
            assert await anext(found) == text
        waiting = asyncio.ensure_future(anext(found, None))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.close(writing)
        assert await waiting is None


# --- sending and counting


class StandIn:
    """A producer whose futures the test decides."""

    def __init__(self) -> None:
        self.under_way: list[asyncio.Future[SendResult]] = []
        self.full = 0
        self.drained = 0

    def submit(self, message: Message) -> "asyncio.Future[SendResult]":
        if self.full:
            raise BacklogFull("full")
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.under_way.append(future)
        return future

    async def drain(self) -> None:
        self.drained += 1
        self.full -= 1

    def store(self, number: int) -> None:
        result: Any = SimpleNamespace(message_id=f"ID{number}")
        self.under_way[number].set_result(result)


async def stream(count: int) -> AsyncIterator[Message]:
    for number in range(count):
        yield Message("t", b"%d" % number)


Site = tuple[StandIn, StreamFeeder, list[str]]


@pytest.fixture
def site() -> Site:
    producer, told = StandIn(), list[str]()
    sending = StreamFeeder(producer, lambda results: told.extend(one.message_id for one in results), 0)  # type: ignore[arg-type]
    return producer, sending, told


async def answered(sending: StreamFeeder) -> None:
    sending.finish()
    await asyncio.wait_for(sending.answers(), 20)


async def test_results_are_told_in_the_order_of_the_messages(site: Site) -> None:
    producer, sending, told = site
    await sending.feed(stream(3))
    for number in (2, 0, 1):
        producer.store(number)
    await answered(sending)
    assert told == ["ID0", "ID1", "ID2"]
    assert (sending.tally.submitted, sending.tally.stored, sending.tally.unknown) == (3, 3, 0)


async def test_what_is_stored_is_told_before_the_next_answer_is_waited_for(site: Site) -> None:
    producer, sending, told = site
    answering = asyncio.ensure_future(sending.answers())
    await sending.feed(stream(2))
    producer.store(0)
    while not told:
        await asyncio.sleep(0)
    assert told == ["ID0"]
    answering.cancel()


async def test_the_first_failure_ends_the_feeding_and_the_rest_is_counted(site: Site) -> None:
    producer, sending, _ = site
    await sending.feed(stream(4))
    producer.store(0)
    producer.under_way[1].set_exception(BrokerUnavailable("lost", definite=False))
    producer.under_way[2].set_exception(BrokerUnavailable("refused", definite=True))
    producer.store(3)
    await answered(sending)
    tally = sending.tally
    assert sending.ended.is_set()
    assert (tally.stored, tally.not_stored, tally.unknown, tally.failed, str(tally.error)) == (2, 1, 1, 2, "lost")


async def test_a_full_backlog_is_waited_for(site: Site) -> None:
    producer, sending, _ = site
    producer.full = 2
    await sending.feed(stream(1))
    assert producer.drained == 2
    assert sending.tally.submitted == 1


async def test_no_more_are_under_way_than_memory_is_meant_for(site: Site) -> None:
    producer, sending, _ = site
    feeding = asyncio.ensure_future(sending.feed(stream(MOST_IN_FLIGHT + 5)))
    while len(producer.under_way) < MOST_IN_FLIGHT:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(producer.under_way) == MOST_IN_FLIGHT
    feeding.cancel()


async def test_when_nobody_reads_the_reports_the_feeding_ends_and_answers_are_counted_on() -> None:
    producer = StandIn()

    def closed(results: Any) -> None:
        raise OutputClosed

    sending = StreamFeeder(producer, closed, 0)  # type: ignore[arg-type]
    await sending.feed(stream(2))
    producer.store(0)
    producer.store(1)
    await answered(sending)
    assert sending.ended.is_set()
    assert (sending.tally.stored, sending.tally.unheard) == (2, True)


# --- stopping


async def test_work_is_cancelled_by_a_stop_and_its_end_awaited() -> None:
    stop, cleaned = asyncio.Event(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Future()
        finally:
            cleaned.append("up")

    asyncio.get_running_loop().call_soon(stop.set)
    assert await until(work(), asyncio.Event(), stop) is False
    assert cleaned == ["up"]


async def test_work_that_fails_fails_for_the_caller() -> None:
    async def work() -> None:
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        await until(work(), asyncio.Event())


async def test_the_first_signal_asks_to_stop_and_the_second_to_hurry() -> None:
    with stop_signals() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asked.stopped.wait(), 20)
        assert not asked.hurried.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(asked.hurried.wait(), 20)


async def test_off_the_main_thread_commands_run_without_signals() -> None:
    async def work() -> bool:
        with stop_signals() as asked:
            return asked.stopped.is_set()

    assert await asyncio.to_thread(lambda: asyncio.run(work())) is False


# --- bodies as people see them


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"order 17", "order 17"),
        ("geführt".encode(), "geführt"),
        (b"a\nb\x1b[2J", r"a\nb\x1b[2J"),
        (b"\xff\xfe", "(2 bytes, no text) ff fe"),
        (bytes([255]) * 20, "(20 bytes, no text) " + " ".join(["ff"] * 16) + "…"),
        (b"x" * 300, "x" * 200 + "… (300 bytes)"),
    ],
)
def test_a_body_in_a_list_is_one_line_and_does_nothing_to_the_terminal(body: bytes, shown: str) -> None:
    assert one_line(body) == shown


def test_a_body_alone_is_whole_text_or_hex() -> None:
    assert body_text(b"a\tb\nc") == "a\tb\nc"
    assert body_text(b"\x00A") == f"00000000  {'00 41':<47}  .A"
    assert body_text(b"\x1b[2J").startswith("00000000  1b 5b 32 4a")
    assert body_text(bytes(2000)).endswith("… 976 bytes more; --body writes all of them as they are")
