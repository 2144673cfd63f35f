"""Whatever is sent to any RPC: a code with a sentence, nothing stored, no crash, no growth, and others served."""

from pathlib import Path

import pytest
from hostile_attack import Attack, check_left_behind, log_faults, serves_the_honest, start_servers

pytestmark = pytest.mark.process

INPUTS = 3_000


async def test_hostile_input_to_every_rpc_is_answered_with_a_code_and_leaves_nothing_behind(
    tmp_path: Path, seed: int
) -> None:
    servers = broker, namesrv = start_servers(tmp_path)
    try:
        attack = Attack(await broker.ready(), await namesrv.ready(), seed)
        await attack.run(INPUTS)
        assert not attack.told.wrong, f"seed {seed}: {attack.told.wrong[0]}"
        await serves_the_honest(await broker.ready(), 1)
        assert await broker.stop() == 0, broker.err.read_text()[-2000:]
        assert await namesrv.stop() == 0, namesrv.err.read_text()[-2000:]
        assert not [fault for server in servers for fault in log_faults(server)], f"seed {seed}"
        check_left_behind(attack.told, broker)
        assert not attack.told.not_served, "services without a server"
    finally:
        for server in servers:
            server.kill()
