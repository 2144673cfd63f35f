"""What the frames of a broker's streams say, each with the number of its question, 0 for what was not asked.

Malformed ones raise BadFrame.
"""

from dejamq_proto.client_pb2 import BrokerCommand
from dejamq_proto.fields import BadFrame
from dejamq_proto.framed import Frame
from dejamq_proto.wire import PullAnswer, SendRunResult
from google.protobuf.message import DecodeError


def run_result(frame: Frame) -> list[tuple[int, SendRunResult]]:
    result = SendRunResult.decode(frame)
    return [(result.seq, result)]


def pull_answers(frame: Frame) -> list[tuple[int, PullAnswer]]:
    also: list[PullAnswer] = []
    first = PullAnswer.decode(frame, also)
    return [(answer.seq, answer) for answer in (first, *also)]


def command(frame: Frame) -> list[tuple[int, BrokerCommand]]:
    try:
        said = BrokerCommand.FromString(bytes(frame))
    except DecodeError as error:
        raise BadFrame(f"a command cannot be read: {error}") from None
    return [(said.heartbeat_ack.seq or said.consumer_list.seq, said)]
