"""Bytes that are no request are refused with a code and a sentence, in calls and in streams."""

import logging
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from broker_wire import Wire, running
from dejamq_proto.client_pb2 import BrokerCommand, Heartbeat
from dejamq_proto.codes import Code
from dejamq_proto.wire.calling import error_from

GARBAGE = b"\xff\xff\xff"


async def test_bytes_that_are_no_request_are_refused_and_not_logged_as_a_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        for method in ("Client/QueryOffset", "Admin/CreateTopic", "Pull/PullOne", "Send/SendBack"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await wire.channel.unary_unary(f"/dejamq.v1.{method}")(GARBAGE, timeout=10)
            error = error_from(refused.value, broker.address)
            assert error.code == Code.INVALID_PARAMETER
            assert str(error).startswith("the request cannot be read: ")
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR]


async def test_a_stream_ends_at_the_first_request_that_is_none_after_the_answers_to_those_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        call: Any = wire.channel.stream_stream(
            "/dejamq.v1.Client/ClientChannel", response_deserializer=BrokerCommand.FromString
        )(timeout=10)
        await call.write(Heartbeat(caller=wire.caller()).SerializeToString())
        await call.write(GARBAGE)
        assert (await call.read()).heartbeat_ack.seq == 1
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert error_from(refused.value, broker.address).code == Code.INVALID_PARAMETER
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR]
