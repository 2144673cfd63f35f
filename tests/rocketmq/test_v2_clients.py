"""RocketMQ 5's official clients against dejamq, unchanged: a program in each language sees what all should see."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import v2_clients
from consumer_cluster import Servers, servers

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(1_800)]
EXPECTED = {
    "normal": ["20 messages, attempts {1}", "tea k-7 v-7", "then 0"],
    "again": ["back 2", "over 2"],
    "push": ["21 messages, bad 1 2 good {(1,)}"],
    "dlq": ["attempts 1 2 letter poison"],
    "fifo": ["a 0 1 2 3 4 5 6 7 8 9", "b 0 1 2 3 4 5 6 7 8 9"],
    "transaction": ["checked committed"],
    "restart": ["body-0 body-1 body-2 body-3 body-4 body-5"],
    "delay": ["later on time"],
    "end": [],
}
TOGETHER = ("normal", "again", "delay"), ("push", "dlq", "fifo", "transaction")
"""Scenarios that are played at one time, by two processes."""


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Servers]:
    quick = {
        "transaction_timeout_ms": 2_000, "transaction_check_interval_ms": 1_000,
        "transaction_op_batch_interval_ms": 100,
    }  # fmt: skip
    async with servers(tmp_path, **quick) as made:
        assert made.broker is not None
        groups = made.broker.domain.tables.groups
        groups.update("w-dlq", retry_max_times=1)
        groups.update("w-fifo", consume_message_orderly=True)
        yield made


async def seen(
    here: Servers, program: Callable[[], list[str]], tmp_path: Path, address: str = ""
) -> dict[str, list[str]]:  # fmt: skip
    """The broker is restarted when nothing else is played. ``address``: the name server's by default."""
    command = await asyncio.to_thread(program)

    async def restart() -> None:
        await here.stop_broker()
        await here.start_broker()

    async def played(*scenarios: str) -> dict[str, list[str]]:
        known = [name for name in scenarios if name in EXPECTED]
        return await v2_clients.played(command, address or here.namesrv.address, "w", known, tmp_path, restart)

    one, other = await asyncio.gather(*(played(*scenarios) for scenarios in TOGETHER))
    return one | other | await played("restart")


async def test_the_program_of_the_page_prints_what_it_sent(here: Servers, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rocketmq5.md").read_text()
    program = page.split("```python\n")[1].split("```")[0].replace("127.0.0.1:9876", here.namesrv.address)
    python = (await asyncio.to_thread(v2_clients.python_program))[0]
    assert await v2_clients.printed([python, "-c", program], tmp_path) == "one 1\n"


async def test_a_python_program_sees_what_it_should(here: Servers, tmp_path: Path) -> None:
    assert await seen(here, v2_clients.python_program, tmp_path) == EXPECTED


@pytest.mark.go
async def test_a_go_program_sees_what_it_should(here: Servers, tmp_path: Path) -> None:
    assert await seen(here, v2_clients.go_program, tmp_path) == EXPECTED


@pytest.mark.mvn
async def test_a_java_program_sees_what_it_should(here: Servers, tmp_path: Path) -> None:
    assert await seen(here, v2_clients.java_program, tmp_path) == EXPECTED


@pytest.mark.node
async def test_a_node_program_sees_what_it_should(here: Servers, tmp_path: Path) -> None:
    assert await seen(here, v2_clients.node_program, tmp_path) == EXPECTED


@pytest.mark.rust
async def test_a_rust_program_sees_what_it_should(here: Servers, tmp_path: Path) -> None:
    """It has no push consumer, and hears a check from the first address that it dials alone: a broker's."""
    told = await seen(here, v2_clients.rust_program, tmp_path, here.address)
    assert told == EXPECTED | {"push": ["this client has no push consumer"]}
