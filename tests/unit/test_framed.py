"""Frames over TCP, however the bytes of a connection are cut into reads."""

import asyncio
import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
from dejamq_proto.wire.calling import MAX_FRAME_BYTES
from dejamq_proto.wire.frame_stream import FrameStream
from dejamq_proto.wire.framed import FIRST_ROOM, MOST_AHEAD, TOGETHER_BYTES, Frame, Framed
from hypothesis import given
from hypothesis import strategies as st


class Transport(asyncio.Transport):
    """Keeps what is written, and how it ended."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.written: list[bytes] = []
        self.aborted = False

    def setsockopt(self, *option: int) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


class End(Framed):
    """One end, its frames and the reasons of its end."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.reasons: list[str] = []
        self.received, self.lost = self.frames.append, self.reasons.append
        self.other = Transport()
        self.connection_made(self.other)

    def feed(self, data: bytes) -> None:
        """As asyncio does: as much as there is room for at a time."""
        while data:
            room = self.get_buffer(-1)
            assert len(room), "asyncio takes an empty buffer for a fault"
            room[: len(data)] = data[: len(room)]
            self.buffer_updated(min(len(room), len(data)))
            data = data[len(room) :]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def on_the_wire(*frames: bytes) -> bytes:
    end = End()
    for frame in frames:
        end.write(frame)
    return b"".join(end.other.written)


def read_in(cuts: list[int], frames: list[bytes]) -> list[Frame]:
    """What comes of these frames in reads of these sizes, and the rest in one."""
    end, data, at = End(), on_the_wire(*frames), 0
    for cut in (*cuts, len(data)):
        end.feed(data[at : at + cut])
        at += cut
    return end.frames


FRAMES = [b"", b"a", b"four", b"x" * 300, b"y" * FIRST_ROOM, b"z" * (3 * FIRST_ROOM), b"", b"last"]


@given(st.lists(st.integers(1, 2 * FIRST_ROOM), min_size=1))
def test_frames_come_as_they_were_sent_wherever_the_reads_end(cuts: list[int]) -> None:
    assert read_in(cuts, FRAMES) == FRAMES


def test_frames_that_come_byte_by_byte_are_the_same() -> None:
    end = End()
    for byte in on_the_wire(*FRAMES[:4]):
        end.feed(bytes((byte,)))
    assert end.frames == FRAMES[:4]


def test_a_large_frame_goes_behind_its_length_and_is_not_copied_to_it() -> None:
    end, large = End(), b"x" * (TOGETHER_BYTES + 1)
    end.write(large)
    assert end.other.written == [len(large).to_bytes(4), large]


def test_what_is_no_frame_of_ours_ends_the_connection_and_takes_no_memory() -> None:
    end = End()
    end.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    end.connection_lost(None)
    assert end.other.aborted
    assert not end.frames
    assert end.reasons == [f"a frame of {0x50524920} bytes came, and {MAX_FRAME_BYTES} is the most"]
    assert len(end.get_buffer(-1)) <= FIRST_ROOM


def test_a_frame_that_is_only_announced_takes_no_memory() -> None:
    ends = [End() for _ in range(20)]
    before = resident_bytes()
    for end in ends:
        end.feed(MAX_FRAME_BYTES.to_bytes(4) + b"x" * 100)
    assert resident_bytes() - before < MAX_FRAME_BYTES


def test_what_is_too_large_is_refused_also_with_frames_behind_it() -> None:
    end = End()
    end.most_bytes = 100
    end.feed(on_the_wire(b"x" * 101, b"small"))
    assert end.other.aborted
    assert not end.frames


@given(st.lists(st.integers(1, 2 * TOGETHER_BYTES), min_size=1))
def test_large_frames_and_small_ones_come_as_they_were_sent(cuts: list[int]) -> None:
    frames = [b"a", b"l" * (3 * TOGETHER_BYTES), b"", b"m" * (TOGETHER_BYTES + 1), b"n" * (2 * MOST_AHEAD), b"last"]
    assert read_in(cuts, frames) == frames


def test_a_large_frame_is_its_receivers_to_write_into() -> None:
    end, large = End(), b"x" * (TOGETHER_BYTES + 1)
    end.feed(on_the_wire(large, large))
    first, second = end.frames
    assert isinstance(first, memoryview)
    first[:2] = b"yy"
    assert (bytes(first), bytes(second)) == (b"yy" + large[2:], large)


def test_what_stands_behind_large_frames_is_room_for_small_ones_only() -> None:
    end = End()
    end.feed(on_the_wire(*[b"x" * (8 * MOST_AHEAD)] * 3, b"small"))
    assert len(end._space) == FIRST_ROOM


def test_pieces_are_one_frame_and_only_small_ones_are_put_together() -> None:
    end, large = End(), b"x" * (TOGETHER_BYTES + 1)
    end.write([b"head", memoryview(b"and"), large, large, b"rest", b"end"])
    size = len(b"headand" + large + large + b"restend")
    assert end.other.written == [size.to_bytes(4) + b"headand", large, large, b"restend"]


async def test_who_waits_for_room_does_not_keep_what_it_sent() -> None:
    stream, piece = FrameStream(), memoryview(bytes(8))
    stream.connection_made(Transport())
    stream.pause_writing()
    gone = weakref.ref(piece)
    sending = asyncio.create_task(stream.send([piece]))
    del piece
    await asyncio.sleep(0)
    assert not sending.done()
    assert gone() is None
    stream.resume_writing()
    await sending


async def test_a_connection_that_is_lost_lets_go_of_what_it_holds() -> None:
    end = End()
    end.feed(on_the_wire(b"x" * (8 * MOST_AHEAD)))
    held = weakref.ref(end)
    end.connection_lost(None)
    gc.disable()
    try:
        del end
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(None, "the other side closed the connection"), (ConnectionResetError("reset"), "reset")],
)
def test_the_end_is_told_with_its_reason(error: Exception | None, reason: str) -> None:
    end = End()
    end.connection_lost(error)
    assert end.reasons == [reason]


def test_who_waits_for_room_is_woken_when_there_is_some_and_at_the_end() -> None:
    end, woken = End(), []
    end.room = lambda: woken.append(end.full)
    end.pause_writing()
    assert end.full
    end.resume_writing()
    end.pause_writing()
    end.connection_lost(None)
    assert woken == [False, False]


async def test_two_ends_over_a_real_connection_have_the_same_frames() -> None:
    loop, frames = asyncio.get_running_loop(), [b"small", b"L" * (5 << 20), b"", b"behind"]
    accepted: asyncio.Future[Framed] = loop.create_future()
    came: list[Frame] = []
    done = asyncio.Event()

    def answering() -> Framed:
        end = Framed()
        end.received = end.write
        accepted.set_result(end)
        return end

    def take(frame: Frame) -> None:
        came.append(frame)
        if len(came) == len(frames):
            done.set()

    server = await loop.create_server(answering, "127.0.0.1", 0)
    _, end = await loop.create_connection(Framed, "127.0.0.1", server.sockets[0].getsockname()[1])
    end.received = take
    for frame in frames:
        end.write(frame)
    async with asyncio.timeout(10):
        await done.wait()
    assert came == frames
    end.close()
    server.close()
    (await accepted).close()
