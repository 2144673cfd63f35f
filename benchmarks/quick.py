"""`make bench-quick`: how fast sending and consuming are, as ratios to a bare gRPC echo and a bare memory copy."""

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec
from dejamq_lab.bench.quick import QUICK, Ratio, quick_ratios, table

LAST = Path(__file__).parents[1] / "build" / "bench-quick.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    parser.add_argument("--last", type=Path, default=LAST, help="where ratios are kept for the next run")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    before = msgspec.json.decode(options.last.read_bytes(), type=list[Ratio]) if options.last.exists() else []
    ratios = asyncio.run(measured(options.scale))
    encoded = msgspec.json.encode(ratios)
    options.last.parent.mkdir(parents=True, exist_ok=True)
    options.last.write_bytes(encoded)
    print(encoded.decode() if options.output == "json" else table(ratios, {ratio.what: ratio for ratio in before}))
    return 0


async def measured(scale: float) -> list[Ratio]:
    """All of them; progress on standard error."""
    ratios = []
    async for ratio in quick_ratios(scale):
        ratios.append(ratio)
        print(f"\r\x1b[K{len(ratios)} of {len(QUICK)}", end="", file=sys.stderr, flush=True)
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return ratios


if __name__ == "__main__":
    sys.exit(main())
