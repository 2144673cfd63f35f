"""A slave has its master's log, byte for byte, and its own queues made of it."""

from pathlib import Path

from broker_wire import Wire
from ha_pair import a_pair, same, send


async def test_a_slave_follows_its_master_from_the_beginning(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave), Wire(master.address) as wire:
        for queue_id in range(3):
            await send(wire, 100, queue_id=queue_id)
        await same(master, slave)
        assert slave.domain.store.max_offset("T", 1) == 100
