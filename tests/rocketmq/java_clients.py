"""RocketMQ's Java clients as processes: their jars, our program on them, and what it prints."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dejamq_lab.machines.jars import jar_cache
from dejamq_lab.machines.rocketmq import MODULES
from dejamq_lab.rocketmq import programs
from dejamq_lab.rocketmq.programs import ClientProgram, client_jars, server_jars

HERE = Path(__file__).parent
VERSIONS = ("5.3.3", "4.9.8")
RUN_S = 240


def jars_of(version: str) -> Path:
    """The folder with the client's jars, filled by Maven if it is not. Raises Missing."""
    client = ClientProgram(f"java-{version}")
    return server_jars() if client is ClientProgram.JAVA else client_jars(client, Path())


def compiled(version: str, program: str = "Scenarios") -> list[Path]:
    """The class path of a program of ours with this version's jars."""
    return programs.compiled(jars_of(version), jar_cache("rocketmq-scenarios", version), HERE / f"{program}.java")


async def said(class_path: list[Path], namesrv: str, word: str, scenarios: list[str], home: Path) -> str:
    """What the program prints; its logs go to the folder ``home``."""
    return await output_of(command_of(class_path, namesrv, word, scenarios, home))


def command_of(class_path: list[Path], namesrv: str, word: str, scenarios: list[str], home: Path) -> list[str]:
    """The program with its scenarios as a command."""
    return java(class_path, home, "Scenarios", namesrv, word, *scenarios)


def java(class_path: list[Path], home: Path, *arguments: str) -> list[str]:
    """Options of Java and a main class with its arguments as a command; its logs go to the folder ``home``."""
    return [
        "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *MODULES, f"-Duser.home={home}",
        "-Djava.net.preferIPv4Stack=true", "-Drocketmq.client.rebalance.waitInterval=1000",
        f"-Drocketmq.client.logRoot={home}", "-cp",
        os.pathsep.join(map(str, class_path)), *arguments,
    ]  # fmt: skip


@asynccontextmanager
async def java_member(version: str, namesrv: str, home: Path, name: str = "mixed") -> AsyncIterator[list[str]]:
    """A member of ``NAME_member_group`` in a process of its own; what it has got of ``NAME_member`` so far."""
    command = command_of(compiled(version), namesrv, name, ["member"], home)
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    got: list[str] = []

    async def read(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            if line.startswith(b"body "):
                got.append(line.decode().strip())

    reading = asyncio.create_task(read(process.stdout))
    try:
        yield got
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await reading


async def output_of(command: list[str], folder: Path | None = None) -> str:
    """What a program prints on both of its outputs; it is killed when it takes too long. It runs in the folder."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
    )
    assert process.stdout
    said: list[bytes] = []
    try:
        async with asyncio.timeout(RUN_S):
            async for line in process.stdout:
                said.append(line)
            await process.wait()
    except TimeoutError:
        raise AssertionError(f"{command[0]} has not ended after {RUN_S} s:\n{b''.join(said).decode()}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return b"".join(said).decode()


def by_scenario(output: str) -> dict[str, list[str]]:
    """The lines of each scenario."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("== "):
            lines = found.setdefault(line.removeprefix("== "), [])
        elif line and "|-INFO" not in line and "|-WARN" not in line:  # what logback says about its own configuration
            lines.append(line)
    return found
