"""Programs in Java that Maven fetches: nothing is built, their jars are only copied into a folder."""

import shutil
import subprocess
from pathlib import Path

from dejamq_proto.codes import Code, DejamqError

MAVEN_S = 900
TREE = Path(__file__).parents[3]


class Missing(DejamqError):
    """Something that this machine lacks; the text says what to install."""

    default_code = Code.CLIENT_REFUSED


def jar_cache(name: str, version: str) -> Path:
    """Where jars are kept: in ``build/`` of this tree, in the user's cache where dejamq is installed from a wheel."""
    here = TREE / "build" if (TREE / "pyproject.toml").exists() else Path.home() / ".cache" / "dejamq"
    return here / f"{name}-{version}"


def java_absence(folder: Path | None = None) -> str | None:
    """Why Java programs cannot be run here; None when they can. Without Maven only those whose jars are there."""
    commands = [("java", "a JDK of version 11 or newer"), ("javac", "a JDK, not a JRE"), ("mvn", "Maven")]
    for command, package in commands[: 2 if folder and folder.exists() else 3]:
        if shutil.which(command) is None:
            return f"{command} is not on the PATH: install {package}"
    return None


def fetched(pom: Path, folder: Path, proof: str) -> Path:
    """``folder``, filled by Maven with what the pom names, if the jar ``proof`` is not in it. Raises Missing."""
    done = folder / proof
    if absence := java_absence(folder if done.exists() else None):
        raise Missing(absence)
    if not done.exists():
        copy = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom), "dependency:copy-dependencies"]
        copy += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        ran = subprocess.run(copy, capture_output=True, text=True, timeout=MAVEN_S, check=False)
        if ran.returncode or not done.exists():
            said = (ran.stdout + ran.stderr).strip().splitlines()
            raise Missing(f"Maven got no {proof}: {said[0] if said else 'it said nothing'}")
    return folder
