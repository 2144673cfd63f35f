"""Whatever is sent to any door: a code with a sentence, nothing stored, no crash, no growth, and others served."""

from pathlib import Path

import pytest
from hostile import Hostile
from hostile_attack import Attack, GrpcAttack, check_left_behind, serves_the_honest
from hostile_frames import FastAttack, FirstBytesAttack
from hostile_http import HttpAttack, metrics_path
from hostile_remoting import RemotingAttack
from hostile_servers import log_faults, metrics_of, start_servers
from hostile_v2 import V2Attack

pytestmark = pytest.mark.process


async def test_hostile_input_at_each_door_is_answered_in_words_and_leaves_nothing_behind(
    tmp_path: Path, seed: int
) -> None:
    servers = broker, namesrv = start_servers(tmp_path)
    try:
        address, routes, hostile = await broker.ready(), await namesrv.ready(), Hostile(seed)
        rpcs, frames = GrpcAttack(address, routes, hostile, seed), FastAttack(address, hostile, seed)
        attacks: list[tuple[Attack, int]] = [
            (rpcs, 700), (frames, 400), (RemotingAttack(address, seed), 600), (RemotingAttack(routes, seed), 400),
            (V2Attack(address, hostile, seed), 100), (FirstBytesAttack([address, routes], seed), 30),
            (HttpAttack([metrics_of(broker), metrics_of(namesrv)], metrics_path, seed), 30),
        ]  # fmt: skip
        for attack, inputs in attacks:
            await attack.run(inputs)
            assert not attack.told.wrong, f"seed {seed}: {attack.told.wrong[0]}"
        await serves_the_honest(address, 1)
        assert await broker.stop() == 0, broker.err.read_text()[-2000:]
        assert await namesrv.stop() == 0, namesrv.err.read_text()[-2000:]
        assert not [fault for server in servers for fault in log_faults(server)], f"seed {seed}"
        check_left_behind(rpcs.told.refused | frames.told.refused, broker)
        assert not rpcs.told.not_served, "services without a server"
    finally:
        for server in servers:
            server.kill()
