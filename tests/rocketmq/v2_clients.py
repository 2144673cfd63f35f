"""RocketMQ 5's official clients as processes: each with our program on it, built where it is not yet, and its output.

Sources are in ``v2/``, one folder a language; what is fetched and built for them lies in ``build/``.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from dejamq_lab.machines.jars import fetched, jar_cache
from java_clients import by_scenario

HERE = Path(__file__).parent / "v2"
PYTHON, JAVA, GO, NODE, RUST = "5.1.2", "5.2.0", "5.1.4", "1.0.8", "5.0.0"
BUILD_S, RUN_S = 1_500, 240
SCENARIOS = ("normal", "again", "push", "dlq", "fifo", "transaction", "restart", "delay")
RESTART_NOW = b"restart now\n"


def settings_of_groups(word: str) -> dict[str, dict[str, object]]:
    """What the scenarios need of their groups, by RocketMQ's names."""
    return {f"{word}-dlq": {"retryMaxTimes": 1}, f"{word}-fifo": {"consumeMessageOrderly": True}}


def python_program() -> list[str]:
    """In an environment of its own: its dependencies are not ours."""
    home = jar_cache("rocketmq-python-client", PYTHON)
    python, done = home / "bin" / "python", home / "done"
    if not done.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", f"rocketmq-python-client=={PYTHON}"])
        done.touch()
    return [str(python), str(HERE / "python" / "scenarios.py")]


def java_program() -> list[str]:
    """Compiled with the client's one jar."""
    jars = fetched(
        HERE / "java" / "rocketmq-client-java.xml", jar_cache("rocketmq-client-java", JAVA),
        f"rocketmq-client-java-{JAVA}.jar",
    )  # fmt: skip
    source, classes = HERE / "java" / "Scenarios5.java", jar_cache("rocketmq-scenarios5", JAVA)
    if _older(classes / "Scenarios5.class", source):
        classes.mkdir(parents=True, exist_ok=True)
        _run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)])
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
    return ["java", *options, "-cp", f"{jars}/*{os.pathsep}{classes}", "Scenarios5"]


def go_program() -> list[str]:
    """Go keeps modules and what it compiled in folders of this project."""
    cache = jar_cache("rocketmq-clients-go", GO)
    folders = {"GOMODCACHE": str(cache / "modules"), "GOCACHE": str(cache / "compiled"), "GOFLAGS": "-modcacherw"}
    program = cache / "scenarios"
    _run(["go", "build", "-o", str(program), "."], HERE / "go", folders)
    return [str(program)]


def node_program() -> list[str]:
    """Beside its modules, as it finds them there alone."""
    home, source = jar_cache("rocketmq-client-nodejs", NODE), HERE / "node"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "scenarios.js"):
        shutil.copyfile(source / name, home / name)
    if not (home / "node_modules" / "rocketmq-client-nodejs").exists():
        _run(["npm", "install", "--no-audit", "--no-fund", "--silent"], home)
    return ["node", str(home / "scenarios.js")]


def rust_program() -> list[str]:
    """Cargo compiles 300 crates for the first time, which takes minutes."""
    target = jar_cache("rocketmq-rust", RUST)
    folders = {"CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}
    _run(["cargo", "build", "--quiet"], HERE / "rust", folders)
    return [str(target / "debug" / "scenarios5")]


async def played(
    program: Sequence[str], address: str, word: str, scenarios: Sequence[str], home: Path,
    restart: Callable[[], Awaitable[None]], **more: str,
) -> dict[str, list[str]]:  # fmt: skip
    """What the program prints of each scenario. ``restart`` is called when it asks for that.

    ``more`` is for its environment: ``WITH_TLS`` has each program dial with TLS.
    """
    log = home / f"{word}-{scenarios[0]}.log"
    environment = os.environ | {"HOME": str(home), "JDK_JAVA_OPTIONS": f"-Duser.home={home}"} | more
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *program, address, word, *scenarios, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(RUN_S):
            async for line in process.stdout:
                if line == RESTART_NOW:
                    await restart()
                    process.stdin.write(b"\n")
                else:
                    lines.append(line)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, b"".join(lines) + log.read_bytes()[-4000:]
    return by_scenario(b"".join(lines).decode())


async def printed(command: Sequence[str], home: Path) -> str:
    """All that a short program prints."""
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | {"HOME": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(RUN_S):
        output, _ = await process.communicate()
    return output.decode()


def _older(made: Path, source: Path) -> bool:
    return not made.exists() or made.stat().st_mtime < source.stat().st_mtime


def _run(command: list[str], folder: Path | None = None, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, env=os.environ | (environment or {}), check=True, timeout=BUILD_S)
