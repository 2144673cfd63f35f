"""Hostile inputs in RocketMQ's remoting protocol: every request with legal and absurd fields, and damaged frames."""

import asyncio
import random
from typing import Any

import msgspec
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting.frames import FrameReader, encode
from dejamq_proto.remoting.header import JSON, ROCKETMQ, Command
from hostile import EXPRESSIONS, GROUPS, NUMBERS, PLACES, TOPICS, WORDS
from hostile_attack import ANSWER_S, Told, by_workers
from prove_remoting_fuzz import TEXT, spoiled

CONNECTIONS, FRAMES = 8, (8, 64, 64)
NO_REQUEST, LAST = 29_999, (1 << 31) - 2
"""A request that no server knows is answered at once: its answer tells that all before it were read."""
SWITCHES = {
    requests.UPDATE_BROKER_CONFIG.code, requests.UPDATE_NAMESRV_CONFIG.code, requests.DELETE_TOPIC.code,
    requests.DELETE_GROUP.code,
}  # fmt: skip
"""As over gRPC: no legal one."""
LONGEST_ANSWER = 2100
ABSURD = [*WORDS, *EXPRESSIONS, *PLACES, *map(str, NUMBERS), "true", "a\x01b\x02", "TAGS\x01a\x02"]
BODIES = [
    b"", b"x", b"{}", b"[]", b"null", TEXT, b"\xff" * 300, b"[" * 5000, b'{"a":' * 2000, b"x" * 70_000,
    b'{"topicConfigTable":{"t":{"topicName":"t","readQueueNums":2147483647}}}',
    msgspec.json.encode(bodies.LockBatch(consumer_group="g-0", client_id="c-0", mq_set=[])),
]  # fmt: skip


def _fields(request: requests.RequestKind[Any]) -> list[tuple[str, str]]:
    return [(field.encode_name, str(field.type)) for field in msgspec.structs.fields(request.fields)]


REQUESTS = [(request.code, _fields(request)) for request in requests.REQUESTS.values()]


class RemotingAttack:
    """Many frames on a connection, several connections at once."""

    def __init__(self, address: str, seed: int) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._random = random.Random(seed)
        self.told = Told()

    async def run(self, inputs: int) -> None:
        await by_workers(self.told, inputs, CONNECTIONS, self._one)

    async def _one(self) -> None:
        """The last one is damaged, or answered at once, so that the end of the others is known."""
        many = self._random.choice(FRAMES)
        frames = [self.frame(number) for number in range(many)]
        damaged = self._random.random() < 0.5
        frames.append(
            spoiled(self.frame(many), self._random) if damaged else encode(Command(code=NO_REQUEST, opaque=LAST))
        )
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            writer.write(b"".join(frames))
            if damaged:
                writer.write_eof()  # a frame that announces more than there is gets no answer
            async with asyncio.timeout(ANSWER_S):
                answered, whole = await self._answers(reader)
        except TimeoutError:
            self.told.wrong.append(f"{many} frames, the last one damaged: {damaged}, had no end within {ANSWER_S} s")
        except OSError:  # the server ended it before the client did
            self.told.outcomes["ended before it was written"] += 1
        else:
            self.told.reached("read", many if whole else min(answered, many))
            self.told.reached("answered at once" if whole else "damaged: connection ended")
        finally:
            writer.close()

    def frame(self, number: int) -> bytes:
        """A request whose frame is whole."""
        code, fields = self._random.choice(REQUESTS)
        body = self._random.choice(BODIES)
        if code in SWITCHES:
            ext, body = {}, self._random.randbytes(20)
        else:
            ext = {name: self._value(name, kind) for name, kind in fields if self._random.random() < 0.9}
        command = Command(
            code=code, opaque=number, flag=self._random.choice((0, 0, 0, 0, 1, 2, 3)), ext=ext, body=body,
            remark=self._random.choice((None, None, "why", "x" * 5000)),
        )  # fmt: skip
        return encode(command, ROCKETMQ if self._random.random() < 0.3 and code < 1 << 15 else JSON)

    def _value(self, name: str, kind: str) -> str:
        chance = self._random.random()
        if chance < 0.35:
            return self._random.choice(ABSURD)[:5000]
        if "int" in kind:
            return str(self._random.choice(NUMBERS) if chance < 0.6 else self._random.randrange(4))
        if "bool" in kind:
            return self._random.choice(("true", "false"))
        return self._random.choice(TOPICS if "opic" in name else GROUPS)

    async def _answers(self, reader: asyncio.StreamReader) -> tuple[int, bool]:
        """How many answers came, and whether the last one was among them."""
        frames, answered = FrameReader(256 << 20), 0
        try:
            while data := await reader.read(1 << 16):
                frames.receive(data)
                while (command := frames.next_command()) is not None:
                    if not command.is_answer:
                        continue
                    if command.opaque == LAST:
                        return answered, True
                    answered += 1
                    if len(command.remark or "") > LONGEST_ANSWER:
                        self.told.wrong.append(
                            f"a remark of {len(command.remark or '')} letters: {command.remark!r:.300}"
                        )
        except ConnectionError:
            pass
        return answered, False
