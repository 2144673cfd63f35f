"""``python tests/lab/prove_dist.py``: what `make dist` built is installed as a user would, with every Python there is.

Each wheel goes into an environment of its own, with its dependencies from the package index, and into an empty folder.
There the command tells its version, `dejamq dev` takes and gives a message, a test uses the fixtures, and the demo runs
and is audited. The pure wheel and the sdist without a compiler do the same with one Python. Without extras, the SDK
sends and receives, and the command names what is missing.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from distribution import HOUSE, VERSION, Installed, problems_of_sdist, problems_of_wheel, run

COMPILED = "import dejamq.native, dejamq_proto.native; print(dejamq.native.COMPILED, dejamq_proto.native.COMPILED)"


def interpreter(version: str) -> str | None:
    """As the scripts of a release find it."""
    command = [". tools/interpreter.sh; interpreter", version]
    done = subprocess.run(["sh", "-c", " ".join(command)], cwd=HOUSE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def installed(folder: Path, python: str, *what: str, **changed: str) -> Installed:
    """An environment with ``what``, as `pip install` makes it."""
    made = Installed(folder / "environment", folder / "work")
    made.work.mkdir(parents=True)
    run([python, "-m", "venv", made.environment], folder)
    pip = [made.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*map(str, pip), "-c", HOUSE / "constraints.txt", *what], folder, deadline_s=1200, **changed)
    return made


def prove(made: Installed, *, compiled: bool, demo: bool = True) -> None:
    """Everything a user does. Raises AssertionError."""
    made.is_this_version()
    assert made.run(made.python, "-c", COMPILED) == f"{compiled} {compiled}\n"
    made.send_and_consume()
    made.run_fixtures()
    if demo:
        made.run(made.python, "-m", "dejamq_lab.demo", "--orders", "5000", "--out", "demo", deadline_s=900)
        journals = next(made.work.glob("demo/**/journal"))
        made.run(made.dejamq, "audit", journals, "--out", "audit", "--fail-on", "never", deadline_s=900)
        assert (made.work / "audit" / "verdict.json").exists()


def prove_without_extras(made: Installed, server: Installed) -> None:
    """The SDK works with a server from elsewhere; the command names its extra. Raises AssertionError."""
    server.send_and_consume(made)
    done = subprocess.run([made.dejamq, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "pip install 'dejamq[cli]'" in done.stderr


def proofs(dist: Path, versions: Iterable[str], work: Path) -> Iterable[tuple[str, str]]:
    """What was proved, and ''; or why it was not."""
    pure, sdist = dist / f"dejamq-{VERSION}-py3-none-any.whl", dist / f"dejamq-{VERSION}.tar.gz"
    for wheel in sorted(dist.glob("*.whl")):
        yield wheel.name, "; ".join(problems_of_wheel(wheel))
    yield sdist.name, "; ".join(problems_of_sdist(sdist))
    last: tuple[str, Installed] | None = None
    for version in versions:
        wheels = list(dist.glob(f"dejamq-{VERSION}-cp{version.replace('.', '')}-*.whl"))
        python = interpreter(version)
        if python is None or not wheels:
            print(f"Python {version} is not here: left out", flush=True)
            continue
        made = installed(work / version, python, f"{wheels[0]}[all,java]", "pytest")
        prove(made, compiled=True)
        yield f"Python {version} with {wheels[0].name}", ""
        last = python, made
    assert last is not None, "no Python has a wheel in this folder: run make dist"
    python, server = last
    made = installed(work / "pure", python, f"{pure}[cli]", "pytest")
    prove(made, compiled=False, demo=False)
    yield f"{pure.name} with the extra cli", ""
    made = installed(work / "sdist", python, f"{sdist}[cli]", "pytest", CC="false")
    prove(made, compiled=False, demo=False)
    yield f"{sdist.name} without a compiler", ""
    prove_without_extras(installed(work / "bare", python, str(pure)), server)
    yield f"{pure.name} without extras", ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Install what `make dist` built, and use it.")
    parser.add_argument("--directory", type=Path, default=HOUSE / "dist", help="where it is (default dist)")
    parser.add_argument("versions", nargs="*", default=["3.11", "3.12", "3.13", "3.14"])
    arguments = parser.parse_args()
    work, failed, begin = Path(tempfile.mkdtemp(prefix="dejamq-dist-")), False, time.monotonic()
    try:
        for what, problem in proofs(arguments.directory.absolute(), arguments.versions, work):
            failed |= bool(problem)
            print(f"{time.monotonic() - begin:6.0f} s  {what}: {problem or 'good'}", flush=True)
    finally:
        shutil.rmtree(work)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
