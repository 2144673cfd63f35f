"""A producer that is faster than its broker is held back: what it keeps in memory has a limit."""

import asyncio
import tracemalloc

from dejamq import BacklogFull, Message
from dejamq_proto.wire.messages import SendRun, SendRunResult
from scripted_broker import Answer, ScriptedBroker, accepted, scripted

LIMIT = 1 << 20
BODY = b"x" * 2_000
MESSAGES = 12_000  # twenty-three times the limit


def forgetful(broker: ScriptedBroker) -> Answer:
    """A slow broker that keeps nothing, so that all memory is the producer's."""

    async def answer(run: SendRun) -> SendRunResult:
        broker.runs.clear()
        broker.script.append(answer)
        await asyncio.sleep(0.001)
        return accepted(run)

    return answer


async def test_a_flood_by_submit_and_drain_stays_within_the_limit() -> None:
    async with scripted("a", max_pending_bytes=LIMIT, send_msg_timeout_ms=60_000) as (producer, (broker,)):
        broker.script.append(forgetful(broker))
        await producer.send(Message("t", BODY))
        backlog, refused, failed = producer.inspect().backlog, 0, 0
        tracemalloc.start()
        try:
            for _ in range(MESSAGES):
                while True:
                    try:
                        producer.submit(Message("t", BODY))
                        break
                    except BacklogFull:
                        refused += 1
                        await producer.drain()
                failed += backlog.bytes > LIMIT
            await producer.flush()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert refused > 10
        assert failed == 0
        print(f"peak {peak} bytes, limit {LIMIT}")
        assert peak < 5 * LIMIT < MESSAGES * len(BODY) / 2


async def test_many_callers_of_send_are_held_back_and_all_are_served() -> None:
    async with scripted("a", max_pending_bytes=200_000, send_msg_timeout_ms=60_000) as (producer, (broker,)):
        broker.script.append(forgetful(broker))
        backlog, highest = producer.inspect().backlog, 0

        async def send_some() -> int:
            nonlocal highest
            for _ in range(20):
                await producer.send(Message("t", BODY))
                highest = max(highest, backlog.bytes)
            return 20

        sent = sum(await asyncio.gather(*(send_some() for _ in range(300))))
        assert sent == 6_000
        assert highest <= 200_000
        assert (backlog.bytes, backlog.calls) == (0, 0)
