"""What is run: RocketMQ's jars, and our actors on its Java clients and its Go client, compiled once for each client."""

import os
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from zipfile import ZipFile

from dejamq_lab.machines.jars import Missing, fetched, jar_cache, java_absence
from dejamq_lab.machines.rocketmq import VERSION, fetched_jars

HERE = Path(__file__).parent
ACTOR, GO_ACTOR, POM = HERE / "Actor.java", HERE / "go", HERE / "client.xml"
OLD, GO_VERSION = "4.9.8", "2.1.2"
COMPILE_S, GO_S = 300, 900


class ClientProgram(StrEnum):
    """RocketMQ's own clients that actors are made of."""

    JAVA = f"java-{VERSION}"
    JAVA_OLD = f"java-{OLD}"
    GO = "go"


def server_jars(given: Path | None = None) -> Path:
    """The folder with the jars of a RocketMQ 5: the one that is ``given``, or filled by Maven. Raises Missing."""
    if given is None:
        return fetched_jars(jar_cache("rocketmq", VERSION))
    if absence := java_absence(given):
        raise Missing(absence)
    if not any(given.glob("rocketmq-broker-5*.jar")):
        raise Missing(f"{given} has no rocketmq-broker-5*.jar: --jars is the folder lib of a RocketMQ 5")
    return given


def client_jars(client: ClientProgram, servers: Path) -> Path:
    """The jars of RocketMQ 5 hold its client. That of RocketMQ 4 comes by Maven. Raises Missing."""
    if client is ClientProgram.JAVA_OLD:
        return fetched(POM, jar_cache("rocketmq-client", OLD), f"rocketmq-client-{OLD}.jar")
    return servers


def compiled(jars: Path, classes: Path, source: Path = ACTOR) -> list[Path]:
    """The class path of a program of ours with these jars. Raises Missing."""
    done = classes / f"{source.stem}.class"
    if not done.exists() or done.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        compile_ = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)]
        ran = subprocess.run(compile_, capture_output=True, text=True, timeout=COMPILE_S, check=False)
        if ran.returncode:
            raise Missing(f"javac cannot compile {source.name} with the jars in {jars}: {_first_line(ran)}")
    return [classes, jars / "*"]


def go_actor() -> Path:
    """The actor of the Go client, built. Go keeps modules and what it compiled in a folder of ours. Raises Missing."""
    if shutil.which("go") is None:
        raise Missing("go is not on the PATH: install Go 1.21 or newer")
    cache = jar_cache("rocketmq-client-go", GO_VERSION)
    folders = {"GOMODCACHE": str(cache / "modules"), "GOCACHE": str(cache / "compiled"), "GOFLAGS": "-modcacherw"}
    program = cache / "actor"
    build = ["go", "build", "-o", str(program), "."]
    environment = os.environ | folders
    ran = subprocess.run(
        build, cwd=GO_ACTOR, env=environment, capture_output=True, text=True, timeout=GO_S, check=False
    )
    if ran.returncode:
        raise Missing(f"Go cannot build the actor: {_first_line(ran)}")
    return program


def logging_of(role: str, jars: Path, folder: Path) -> Path:
    """A folder for the class path: jars of all roles are on it, and RocketMQ takes the first role's logging."""
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(next(jars.glob(f"rocketmq-{role}-5*.jar"))) as jar:
        (folder / "rmq.logback.xml").write_bytes(jar.read(f"rmq.{role}.logback.xml"))
    return folder


def _first_line(ran: subprocess.CompletedProcess[str]) -> str:
    lines = (ran.stderr + ran.stdout).strip().splitlines()
    return lines[0] if lines else "it said nothing"
