"""RocketMQ 5's door beside RocketMQ's own proxy 5.3.3: the same calls, the same answers; a program prints the same."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import v2_clients
import v2_probe
from consumer_cluster import STORE, servers
from dejamq_lab.machines.rocketmq_proxy import QUEUES, RocketMQProxy

pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(600)]
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DIFFERENT = {
    "a handle that is none": ["INVALID_RECEIPT_HANDLE"],  # RocketMQ's makes push consumers ask again for ever
    "an unknown topic": "TOPIC_NOT_FOUND",  # RocketMQ looks at its type first
    "receive of an unknown topic": "TOPIC_NOT_FOUND",
    "no SQL": "ILLEGAL_FILTER_EXPRESSION",
}
"""Ours, where RocketMQ answers INTERNAL_SERVER_ERROR, or another thing than the truth: all are in the docs."""


async def test_calls_have_the_answers_that_rocketmqs_proxy_gives(real: RocketMQProxy, tmp_path: Path) -> None:
    store = replace(STORE, message_delay_level=LEVELS)
    async with servers(tmp_path, auto_create_topic_enable=False, store=store) as here:
        assert here.broker is not None
        tables = here.broker.domain.tables
        tables.topics.ensure("w-wire", QUEUES)
        tables.groups.update("w-fifo", consume_message_orderly=True)
        ours, theirs = await asyncio.gather(
            v2_probe.probed(here.address, "w"), v2_probe.probed(real.address, "w")
        )  # fmt: skip
    different: dict[str, Any] = {name: answer for name, answer in ours.items() if answer != theirs.get(name)}
    assert different == DIFFERENT
    assert ours.keys() == theirs.keys()


async def test_a_python_program_prints_with_rocketmqs_proxy_what_it_prints_here(
    real: RocketMQProxy, tmp_path: Path
) -> None:
    wanted = ["normal", "again", "delay"]
    command = await asyncio.to_thread(v2_clients.python_program)

    async def restart() -> None:
        raise AssertionError("none of these asks for it")

    async with servers(tmp_path / "ours") as here:
        ours, theirs = await asyncio.gather(
            v2_clients.played(command, here.namesrv.address, "w", wanted, tmp_path / "ours", restart),
            v2_clients.played(command, real.address, "w", wanted, tmp_path, restart),
        )
    assert ours == theirs
    assert set(ours) == {*wanted, "end"}
