"""``python -m dejamq_lab.demo``: the whole story in one command. Exit 0 when ledger and audit agree, 1 when not."""

import argparse
import asyncio
import sys
from pathlib import Path

from dejamq_proto.standard_output import run

from dejamq_lab.demo.story import Story, StoryFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="how many orders to send (default 20000)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where everything is written (made anew)")
    parser.add_argument("--inbox", action="store_true", help="charge through an inbox: no order is charged twice")
    arguments = parser.parse_args()
    try:
        return asyncio.run(Story(arguments.orders, arguments.out.absolute(), inbox=arguments.inbox).run())
    except StoryFailed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run("demo", main))
