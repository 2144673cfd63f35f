"""The trace topic is never pulled outside of a queue: a RocketMQ would store an event about that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from broker_wire import until
from dejamq_cli.collecting.files import LEAST_BYTES, EvidenceFiles
from dejamq_cli.collecting.lines import Source
from dejamq_cli.collecting.servers import AskedServer, Pace
from dejamq_cli.collecting.trace import TraceFollower, offset_of
from dejamq_proto.codes import Code
from dejamq_proto.records.record import Record, encode
from dejamq_proto.remoting import bodies, frames
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.header import Command
from evidence import lines_of

TOPIC = "traces"


class OneQueue:
    """A broker with one queue, whose ends a test moves as retention and lost disks do. ``pulls``: where it was pulled,
    and the ends then.
    """

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.pulls: list[tuple[int, int, int]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        reading = frames.FrameReader()
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                reading.receive(data)
                while (command := reading.next_command()) is not None:
                    writer.write(frames.encode(self.answer(command)))
        writer.close()

    def answer(self, command: Command) -> Command:
        if command.code != r.PULL_MESSAGE.code:
            end = self.low if command.code == r.GET_MIN_OFFSET.code else self.high
            return frames.answer(command, fields=r.OffsetFound(offset=end))
        at = r.PULL_MESSAGE.read(command).queue_offset
        self.pulls.append((at, self.low, self.high))
        found = range(at, min(at + 2, self.high))
        records = [encode(Record(TOPIC, 0, b"%d" % offset, queue_offset=offset)) for offset in found]
        told = r.MessagePulled(
            suggest_which_broker_id=0, next_begin_offset=at + len(records), min_offset=self.low, max_offset=self.high
        )
        code = Code.SUCCESS if records else Code.PULL_NOT_FOUND
        return frames.answer(command, code, fields=told, body=b"".join(records))

    def restart(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        for writer in self._writers:
            writer.close()
        self._writers.clear()


@asynccontextmanager
async def following(queue: OneQueue, folder: Path) -> AsyncIterator[None]:
    """Follow it from its beginning, or from where the folder's evidence ends."""
    listening = await asyncio.start_server(queue.talk, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    written: list[int] = []
    files = EvidenceFiles(folder, LEAST_BYTES, TOPIC, dict, written.append)
    server = AskedServer(Source(f"{host}:{port}", "c", "broker-a"), Pace(1_000), files, None)
    follower = TraceFollower(TOPIC, lambda server, where: offset_of(server, r.GET_MIN_OFFSET, where), files)
    data = bodies.BrokerData(cluster="c", broker_name="broker-a", broker_addrs={"0": server.source.address})
    queues = bodies.QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)
    route = bodies.TopicRouteData(broker_datas=[data], queue_datas=[queues])
    assert follower.learn(route, {server.source.address: server}) == ["broker-a"]
    task = asyncio.create_task(follower.follow("broker-a"))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await server.close()
        await files.close()
        listening.close()
        await listening.wait_closed()


def offsets(folder: Path) -> list[int]:
    return [line["queue_offset"] for line in lines_of(folder, "trace")]


async def test_a_queue_that_is_shorter_after_a_restart_is_not_pulled_behind_its_end(tmp_path: Path) -> None:
    queue = OneQueue(0, 10)
    async with following(queue, tmp_path):
        await until(lambda: offsets(tmp_path) == list(range(10)))
        queue.restart(0, 4)
        await until(lambda: offsets(tmp_path) == [*range(10), *range(4)])
        queue.restart(0, 6)
        await until(lambda: offsets(tmp_path)[-1] == 5)
    assert all(low <= at <= high for at, low, high in queue.pulls)
    (restart,) = lines_of(tmp_path, "session", event="restart")
    assert (restart["from_offset"], restart["to_offset"]) == (10, 0)
    assert offsets(tmp_path) == [*range(10), *range(6)]


async def test_a_queue_whose_beginning_went_meanwhile_is_not_pulled_before_its_beginning(tmp_path: Path) -> None:
    queue = OneQueue(3, 5)
    async with following(queue, tmp_path):
        await until(lambda: offsets(tmp_path) == [3, 4])
    queue.low, queue.high = 9, 11
    async with following(queue, tmp_path):
        await until(lambda: offsets(tmp_path) == [3, 4, 9, 10])
    assert all(low <= at <= high for at, low, high in queue.pulls)
    (gap,) = lines_of(tmp_path, "session", event="gap")
    assert (gap["from_offset"], gap["to_offset"]) == (5, 9)
