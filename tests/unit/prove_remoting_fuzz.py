"""``python tests/unit/prove_remoting_fuzz.py``: remoting frames with random damage, each read or refused."""

import argparse
import random
import sys
import time
from collections import Counter
from typing import Any

from dejamq_proto.codes import DejamqError
from dejamq_proto.remoting import bodies, pop_requests, requests
from dejamq_proto.remoting.batches import elements
from dejamq_proto.remoting.frames import BadFrame, FrameReader, encode
from dejamq_proto.remoting.header import JSON, ROCKETMQ, Command

BODIES: dict[int, Any] = {
    requests.HEART_BEAT.code: bodies.Heartbeat, requests.CHECK_CLIENT_CONFIG.code: bodies.CheckClient,
    requests.LOCK_BATCH.code: bodies.LockBatch, requests.UNLOCK_BATCH.code: bodies.LockBatch,
    requests.UPDATE_GROUP.code: bodies.Group, requests.REGISTER_BROKER.code: bodies.RegisterBroker,
    pop_requests.BATCH_ACK_MESSAGE.code: bodies.BatchAck,
}  # fmt: skip
BATCHES = (requests.SEND_BATCH_MESSAGE.code,)
VALUES = ("", "0", "7", "-1", "true", "2147483648", "orders", "%RETRY%g", "a\x01b\x02", "é" * 9, "x" * 300)
TEXT = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}],"mqSet":[]}'
SIZES = (0, 1, 0x7F, 0x80, 0xFF)


def a_frame(chance: random.Random) -> bytes:
    """A request as a client may send it."""
    request = chance.choice(tuple(requests.REQUESTS.values()))
    ext = {field: chance.choice(VALUES) for field in request.fields.__struct_encode_fields__ if chance.random() < 0.9}
    body = chance.choice((b"", TEXT, chance.randbytes(chance.randrange(60))))
    command = Command(
        code=request.code, opaque=chance.randrange(1 << 31), flag=chance.randrange(4), ext=ext, body=body,
        remark=chance.choice((None, "why")),
    )  # fmt: skip
    return encode(command, ROCKETMQ if request.code < 1 << 15 and chance.random() < 0.5 else JSON)


def spoiled(frame: bytes, chance: random.Random) -> bytes:
    """The frame with one to four faults; some keep its announced length true, so that what is inside is read."""
    raw = bytearray(frame)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(raw)) if raw else 0
        match chance.randrange(6):
            case 0 if raw:
                raw[at] = chance.randrange(256)
            case 1 if raw:
                raw[at] = chance.choice(SIZES)
            case 2:
                del raw[at : at + chance.randrange(1, 9)]
            case 3:
                raw[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 4:
                raw[at:at] = raw[at : at + chance.randrange(1, 40)]
            case 5:
                raw += frame
    if chance.random() < 0.6 and len(raw) > 4:
        raw[:4] = (len(raw) - 4).to_bytes(4)
    return bytes(raw)


def read(data: bytes, chance: random.Random) -> str:
    """The end of a connection that brings these bytes in two pieces. Raises what no server expects."""
    reader, cut, count = FrameReader(), chance.randrange(len(data) + 1), 0
    for piece in (data[:cut], data[cut:]):
        reader.receive(piece)
        try:
            while (command := reader.next_command()) is not None:
                count += 1
                look(command)
        except BadFrame:
            return "refused"
    assert reader.held <= len(data)
    return "read" if count else "waits for more"


def look(command: Command) -> None:
    """Read all that handlers read, and write it again."""
    again = FrameReader()
    again.receive(encode(command))
    assert again.next_command() == command
    request = requests.REQUESTS.get(command.code)
    try:
        if request is not None:
            request.read(command)
        if command.code in BODIES:
            bodies.read(command.body, BODIES[command.code])
        if command.code in BATCHES:
            elements(command.body)
    except DejamqError:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description="Read remoting frames with random damage: each is read or refused.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000, help="of the first frame")
    options = parser.parse_args()
    began, ends = time.monotonic(), Counter[str]()
    print(f"{options.frames} frames from seed {options.seed} on", flush=True)
    for seed in range(options.seed, options.seed + options.frames):
        chance = random.Random(seed)
        data = spoiled(a_frame(chance), chance)
        try:
            ends[read(data, chance)] += 1
        except Exception as error:
            again = f"python tests/unit/prove_remoting_fuzz.py --seed {seed} --frames 1"
            print(f"FAILED: {error!r} for {data!r}; again with: {again}", file=sys.stderr)
            raise
    for end, count in ends.most_common():
        print(f"{count:8} {end}")
    print(f"{time.monotonic() - began:.0f} s: each had an answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
