"""``python tests/integration/prove_hostile.py``: a million hostile inputs to every RPC of a broker and a name server.

Every answer is a refusal with a code and a sentence, or an answer; nothing that was refused is stored, the store is
whole, the logs tell of no fault, memory does not grow, and an honest client is served all the time.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from hostile_attack import Attack, Process, check_left_behind, log_faults, serves_the_honest, start_servers

PORTION = 20_000
GROWTH_MIB = 300
"""Between the end of the first fifth and the end: caches fill, and a heap keeps the most that several frames of
megabytes once needed at the same time.
"""


async def prove(directory: Path, inputs: int, seed: int) -> Attack:
    """The whole attack. Raises AssertionError."""
    servers = broker, namesrv = start_servers(directory)
    try:
        attack = Attack(await broker.ready(), await namesrv.ready(), seed)
        sizes = await portions(attack, servers, inputs)
        assert await broker.stop() == 0, broker.err.read_text()[-2000:]
        assert await namesrv.stop() == 0, namesrv.err.read_text()[-2000:]
        faults = [fault for server in servers for fault in log_faults(server)]
        assert not faults, faults[0]
        check_left_behind(attack.told, broker)
    finally:
        for server in servers:
            server.kill()
    early, late = sizes[len(sizes) // 5], sizes[-1]
    grown = [after - before for before, after in zip(early, late, strict=True)]
    assert max(grown) < GROWTH_MIB, f"memory after a fifth {early}, at the end {late} MiB"
    print(f"\nmemory of broker and name server after a fifth {early}, at the end {late} MiB")
    return attack


async def portions(attack: Attack, servers: tuple[Process, Process], inputs: int) -> list[list[int]]:
    """MiB of both servers after each portion of the inputs."""
    sizes: list[list[int]] = []
    while attack.told.inputs < inputs:
        await attack.run(min(inputs, attack.told.inputs + PORTION))
        assert not attack.told.wrong, attack.told.wrong[0]
        await serves_the_honest(await servers[0].ready(), len(sizes) + 1)
        sizes.append([round(server.resident_mib()) for server in servers])
        print(f"\r{attack.told.inputs} of {inputs} inputs, {sizes[-1]} MiB", end="", flush=True)
    return sizes


def main() -> int:
    parser = argparse.ArgumentParser(description="Hostile inputs to every RPC of a broker and a name server.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    directory, began = Path(tempfile.mkdtemp(prefix="hostile-")), time.monotonic()
    try:
        attack = asyncio.run(prove(directory, options.inputs, options.seed))
    except (AssertionError, TimeoutError) as failure:
        print(f"\nFAILED: {failure!r}; seed {options.seed}, everything is in {directory}", file=sys.stderr)
        return 1
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(attack.told.outcomes.items()))
    print(f"{attack.told.inputs} inputs, seed {options.seed}, {time.monotonic() - began:.0f} s: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
