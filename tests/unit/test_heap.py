"""Memory of a peak does not stay in a server."""

import asyncio

import pytest
from dejamq_proto.serving import heap
from dejamq_proto.serving.heap import Heap

MIB = 1 << 20
PIECES, PIECE = 1500, 100_000

pytestmark = pytest.mark.skipif(heap.LIBRARY is None, reason="not glibc 2.33 or later")


@pytest.fixture
async def looking() -> Heap:
    """It has looked once before the peak."""
    made = Heap(look_s=0.01, looks=2)
    await made.look()
    return made


@pytest.fixture
def peak(looking: Heap) -> list[bytes]:
    """What stays of 150 MB of buffers: one of a hundred, so that no end of the heap is free."""
    buffers = [bytes(PIECE) for _ in range(PIECES)]
    kept = buffers[::100]
    del buffers
    return kept


async def test_free_memory_between_buffers_in_use_goes_back_to_the_system(looking: Heap, peak: list[bytes]) -> None:
    before = heap.own_bytes()
    for _ in range(2):
        await looking.look()
    assert heap.own_bytes() < before - 80 * MIB
    assert all(buffer == bytes(PIECE) for buffer in peak)


async def test_what_is_free_for_a_moment_alone_is_kept(looking: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, unused = list[int](), iter([500 * MIB, 20 * MIB, 500 * MIB, 20 * MIB])
    monkeypatch.setattr(heap, "give_back", lambda: asked.append(1))
    monkeypatch.setattr(heap, "unused_bytes", lambda: next(unused))
    for _ in range(4):
        await looking.look()
    assert asked == []


async def test_what_was_given_back_is_not_given_back_again(
    looking: Heap, peak: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        await looking.look()
    asked: list[int] = []
    monkeypatch.setattr(heap, "give_back", lambda: asked.append(1))
    for _ in range(4):
        await looking.look()
    assert asked == []
    assert peak


async def test_it_looks_until_it_is_cancelled(looking: Heap, peak: list[bytes]) -> None:
    before = heap.own_bytes()
    task = asyncio.create_task(looking.run())
    async with asyncio.timeout(30):
        while heap.own_bytes() > before - 80 * MIB:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert peak


async def test_memory_in_use_is_no_reason_to_give_back(looking: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    monkeypatch.setattr(heap, "give_back", lambda: asked.append(1))
    in_use = [bytes(PIECE) for _ in range(PIECES)]
    for _ in range(3):
        await looking.look()
    assert asked == []
    assert in_use
