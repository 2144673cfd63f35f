"""A broker that has no file descriptors left: it refuses to store, serves what it has, and goes on by itself."""

import resource
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, records_of, until
from dejamq_proto.codes import Code
from hostile_servers import Process

pytestmark = pytest.mark.process

NO_MORE = 3  # below every number that a new descriptor could get


async def test_a_broker_without_descriptors_refuses_and_goes_on_by_itself_when_it_has_some(tmp_path: Path) -> None:
    broker = Process(tmp_path / "b", "dejamq_broker", "--namesrv", "", "--store", "store")
    try:
        async with Wire(await broker.ready()) as wire:
            assert (await wire.send(a_run("t", [b"before"]))).code == 0
            assert records_of(await wire.pull("t"))
            limits = resource.prlimit(broker.popen.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(broker.popen.pid, resource.RLIMIT_NOFILE, (NO_MORE, limits[1]))

            async def refused() -> Any:
                result = await wire.send(a_run("t", [b"meanwhile"]))
                return result if result.code else None

            result = await until(refused, 20)
            assert result.code == Code.SERVICE_NOT_AVAILABLE
            assert "too many files are open" in result.remark
            answer = await wire.pull("t")
            assert records_of(answer), answer
            resource.prlimit(broker.popen.pid, resource.RLIMIT_NOFILE, limits)

            async def taken() -> bool:
                return (await wire.send(a_run("t", [b"after"]))).code == 0

            await until(taken, 20)
        assert await broker.stop() == 0
        assert not (tmp_path / "b" / "store" / "abort").exists()
        log = broker.err.read_text()
        assert "out_of_descriptors" in log
        assert "descriptors_back" in log
        assert "Traceback" not in log
    finally:
        broker.kill()
