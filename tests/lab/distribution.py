"""Wheels and sdists, what may be in them, and environments that have dejamq from a wheel alone.

Nothing here imports dejamq: it is looked for in the environment that is tried.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).parents[2]
PROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))
VERSION: str = PROJECT["project"]["version"]
FOLDERS: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PACKAGES = tuple(folder.rpartition("/")[2] for folder in FOLDERS)
NATIVE = ("dejamq", "dejamq_proto")
"""The packages with an extension each."""
BESIDE = (
    "hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", ".gitignore",
)  # fmt: skip
"""What is built from, beside the packages' folders."""
LEFT_OVER = re.compile(r"(^|/)(__pycache__|tests|golden|build|dist|\.dejamq|\.venv)(/|$)|\.(pyc|log|orig|rej)$")
FIXTURES = """
from dejamq import Message


def test_what_is_sent_is_received(dejamq_cluster, dejamq_topic, dejamq_group):
    from dejamq.sync import ConsumeFrom, LitePullConsumer, Producer

    with Producer("shop", namesrv=dejamq_cluster.namesrv) as producer:
        producer.send(Message(dejamq_topic, b"order-17"))
    first = ConsumeFrom.FIRST_OFFSET
    with LitePullConsumer(dejamq_group, namesrv=dejamq_cluster.namesrv, consume_from=first) as consumer:
        consumer.subscribe(dejamq_topic)
        assert [message.body for message in consumer.poll(timeout_ms=30_000)] == [b"order-17"]
"""
"""A test of somebody who has installed dejamq."""
WHERE = """
import importlib
import sys

import dejamq

print(dejamq.__version__, *(importlib.import_module(name).__file__ for name in sys.argv[1:]), sep="\\n")
"""
SEND_AND_RECEIVE = """
import sys

import dejamq
from dejamq.sync import ConsumeFrom, LitePullConsumer, Message, Producer

with Producer("shop", namesrv=sys.argv[1]) as producer:
    producer.send(Message("orders", b"order-18"))
with LitePullConsumer("billing", namesrv=sys.argv[1], consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
    consumer.subscribe("orders")
    got = [message.body for message in consumer.poll(timeout_ms=30_000)]
assert got, got
print(dejamq.__version__)
"""


def problems_of_wheel(wheel: Path) -> list[str]:
    """What should not be there, and what is missing."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    info = f"dejamq-{VERSION}.dist-info"
    found = [f"{name} is left over" for name in names if LEFT_OVER.search(name)]
    found += [f"{name} is no part" for name in names if name.partition("/")[0] not in (*PACKAGES, info)]
    found += [f"{name} is of no use" for name in names if name.endswith((".c", ".h"))]
    wanted = [f"{package}/py.typed" for package in PACKAGES if package != "dejamq_namesrv"]
    wanted += [f"{info}/licenses/LICENSE", f"{info}/METADATA", f"{info}/entry_points.txt"]
    found += [f"{name} is missing" for name in wanted if name not in names]
    extensions = sorted(name.partition("/")[0] for name in names if name.endswith(".so"))
    expected = [] if wheel.name.endswith("-py3-none-any.whl") else sorted(NATIVE)
    if extensions != expected:
        found.append(f"extensions of {extensions}, and not of {expected}")
    return found


def problems_of_sdist(sdist: Path) -> list[str]:
    """What should not be there, and what is missing."""
    with tarfile.open(sdist) as packed:
        names = [name.partition("/")[2] for name in packed.getnames()]
    inside = tuple(f"{folder}/" for folder in FOLDERS)
    found = [f"{name} is left over" for name in names if LEFT_OVER.search(name) or name.endswith(".so")]
    found += [
        f"{name} is no part" for name in names if not name.startswith(inside) and name not in (*BESIDE, "PKG-INFO")
    ]
    return found + [f"{name} is missing" for name in BESIDE if name not in names]


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as packed:
        return packed.read(f"dejamq-{VERSION}.dist-info/METADATA").decode()


def run(command: Sequence[str | Path], cwd: Path, *, deadline_s: float = 300, **changed: str) -> str:
    """What a command prints. Raises AssertionError with all it said when it fails. No variable of ours reaches it."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("DEJAMQ_", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment | {"DEJAMQ_DISK_CHECK_ENABLE": "false"} | changed,
        capture_output=True, text=True, timeout=deadline_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """An environment, and an empty folder to work in."""

    environment: Path
    work: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def dejamq(self) -> Path:
        return self.environment / "bin" / "dejamq"

    def run(self, *command: str | Path, deadline_s: float = 300, **changed: str) -> str:
        return run(command, self.work, deadline_s=deadline_s, **changed)

    def is_this_version(self) -> None:
        """The command tells the project's version, and every module is of this environment. Raises AssertionError."""
        assert self.run(self.dejamq, "--version") == f"dejamq {VERSION}\n"
        version, *files = self.run(self.python, "-c", WHERE, *PACKAGES).splitlines()
        assert version == VERSION
        assert [file for file in files if not Path(file).is_relative_to(self.environment)] == []

    def send_and_consume(self, client: Installed | None = None) -> None:
        """Through a server of `dejamq dev`, by the command and by the SDK of ``client``. Raises AssertionError."""
        client = client or self
        with subprocess.Popen(
            [self.dejamq, "dev", "--listen", "127.0.0.1:0"], cwd=self.work, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"DEJAMQ_DISK_CHECK_ENABLE": "false"},
        ) as server:  # fmt: skip
            try:
                assert server.stdout is not None
                client.use(server.stdout.readline().split()[2].rstrip(";"), by_command=client is self)
                server.terminate()
                assert server.wait(60) == 0
            finally:
                server.kill()

    def use(self, address: str, *, by_command: bool) -> None:
        """Send a message and get it back. Raises AssertionError."""
        if not by_command:
            assert self.run(self.python, "-c", SEND_AND_RECEIVE, address) == f"{VERSION}\n"
            return
        there = ("--namesrv", address)
        self.run(self.dejamq, "send", "orders", "order-17", *there)
        got = self.run(self.dejamq, "consume", "orders", "--from", "begin", "--count", "1", *there)
        assert "order-17" in got

    def run_fixtures(self) -> None:
        """A test with the plugin's fixtures passes. Raises AssertionError."""
        (self.work / "test_orders.py").write_text(FIXTURES, encoding="utf-8")
        said = self.run(self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py")
        assert "1 passed" in said


def sources(folder: Path) -> Path:
    """A copy of what a wheel is built from: building compiles beside the sources, which others are using."""
    for part in (*FOLDERS, *BESIDE):
        _copy(HOUSE / part, folder / part)
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
