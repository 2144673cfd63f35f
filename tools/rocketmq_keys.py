"""Writes proto/dejamq_proto/config/rocketmq_keys.txt: the keys that RocketMQ's servers take from their files.

A broker reads its file into five classes, a name server into four. Maven fetches the jars of that version, and Java
asks the classes for their setters. ``python tools/rocketmq_keys.py`` writes the list, with ``--check`` it says whether
the committed one is that of the jars.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from dejamq_lab.machines.jars import Missing, jar_cache
from dejamq_lab.machines.rocketmq import VERSION, fetched_jars
from dejamq_proto.config.rocketmq_keys import LIST

PROGRAM = Path(__file__).with_name("RocketMQKeys.java")
CLASSES = (
    "common.BrokerConfig", "store.config.MessageStoreConfig", "remoting.netty.NettyServerConfig",
    "remoting.netty.NettyClientConfig", "auth.config.AuthConfig", "common.namesrv.NamesrvConfig",
    "common.ControllerConfig",
)  # fmt: skip
HEAD = (
    f"# Keys that the servers of RocketMQ {VERSION} take from their files, by class. Made by tools/rocketmq_keys.py.\n"
)


def listed(jars: Path) -> str:
    """The whole file."""
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM), *(f"org.apache.rocketmq.{name}" for name in CLASSES)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return HEAD + ran.stdout


def main(arguments: list[str] | None = None) -> int:
    """The command; exit status 1 when a checked list is stale, 2 where there is no Java or Maven."""
    parser = argparse.ArgumentParser(prog="rocketmq_keys.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the list is not the jars'")
    given = parser.parse_args(arguments)
    try:
        text = listed(fetched_jars(jar_cache("rocketmq", VERSION)))
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    if not given.check:
        LIST.write_text(text, encoding="utf-8")
    elif LIST.read_text(encoding="utf-8") != text:
        print(f"{LIST.name} is not that of RocketMQ {VERSION}: run tools/rocketmq_keys.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
