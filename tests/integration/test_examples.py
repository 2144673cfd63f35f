"""The examples, run as their docstrings say, twice on one cluster: a second run finds what the first left."""

import ast
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq_lab import Cluster
from dejamq_lab.cluster.ports import held_ports

EXAMPLES = Path(__file__).parents[2] / "examples"
WEB = "fastapi_app.py"
SAID = {
    "order_service.py": ["the relay died", "10 orders, 1 told twice, 10 charges: right"],
    "ordered_by_key.py": [r"(account \w{8}: 20 entries in order, balance 21000 cents\n){5}", "rested 1 time"],
    "retries_and_dead_letters.py": [
        r"(?s)try 1: slow.*try 2: slow.*try 3: slow.*posted: slow", r"(?s)try 1: lost.*try 2: lost.*try 3: lost",
        "dead letter: lost after 3 tries", "dead letter: torn after 1 tries",
    ],
    "set_aside.py": ["located: High Street, house 7", "set aside after 3 tries: no house number in 'Mill Lane'"],
    "downstream_away.py": ["(?s)does not answer: waiting.*is back.*30 of 30 payments transferred, at most 1 try each"],
    "batch_job.py": ["1000 sales in [0-9]+ batches", "shop-0: 124500 cents", "shop-3: 125250 cents"],
    "transactional_orders.py": [
        r"1999 cents: COMMIT", "-5 cents: ROLLBACK", r"666 cents: UNKNOWN \(no answer to COMMIT\)",
        "asked about order of 666 cents: written", "(?s)shipping the order of 1999.*shipping the order of 666",
    ],
    "cache_invalidation.py": [r"before: \[1900, 1900\]\nafter: \[1500, 1500\]"],
}  # fmt: skip
"""What each prints, as patterns."""

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two brokers, whose seconds of delay last a tenth, and whose transactions are asked about soon."""
    settings = {
        "delay_second_ms": 100, "transaction_timeout_ms": 600, "transaction_check_interval_ms": 1500,
        "transaction_op_batch_interval_ms": 300,
    }  # fmt: skip
    with Cluster(brokers=2, namesrvs=2, settings=settings) as running:
        yield running


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """A topic that only one of the brokers had registered when its route was read is completed by the next read."""
    own = {"DEJAMQ_NAMESRV": cluster.namesrv, "DEJAMQ_LOCAL_OFFSET_STORE_DIR": str(tmp_path / "offsets")}
    return os.environ | own | {"DEJAMQ_POLL_NAME_SERVER_INTERVAL_MS": "1000", "PYTHONWARNINGS": "error"}


@pytest.fixture
def port() -> Iterator[int]:
    with held_ports(1) as ports:
        yield ports[0]


def run(name: str, environment: dict[str, str], directory: Path) -> str:
    """Its output. An example that does not end by itself, or not well, fails the test."""
    said = directory / "said"
    with said.open("w") as log:
        command = [sys.executable, str(EXAMPLES / name)]
        example = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            status = example.wait(25)
        except subprocess.TimeoutExpired:
            status = None
            example.kill()
            example.wait()
    assert status == 0, said.read_text()
    assert "Traceback" not in said.read_text()
    return said.read_text()


@pytest.mark.parametrize("name", SAID)
def test_an_example_shows_what_it_says_and_does_so_again(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(2):
        output = run(name, environment, tmp_path)
        for pattern in SAID[name]:
            assert re.search(pattern, output), output


def answer(url: str, wanted: str, method: str = "GET") -> None:
    """Ask until the answer holds this, 20 s at most; meanwhile nobody may listen yet."""
    deadline, said = time.monotonic() + 20, ""
    while wanted not in said:
        assert time.monotonic() < deadline, said
        time.sleep(0.05)
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answering:
                said = answering.read().decode()
        except urllib.error.URLError as error:
            said = str(error)


def test_the_web_application_sends_consumes_and_drains_when_it_is_stopped(
    environment: dict[str, str], port: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", str(port), "fastapi_app:app"]
    journal, said = tmp_path / "journal", tmp_path / "said"
    with said.open("w") as log:
        own = environment | {"DEJAMQ_JOURNAL_DIR": str(journal)}
        web = subprocess.Popen(command, cwd=tmp_path, env=own, stdout=log, stderr=subprocess.STDOUT)
        try:
            answer(f"http://127.0.0.1:{port}/orders/17", "message_id", "POST")
            answer(f"http://127.0.0.1:{port}/orders/17", '"packed"')
            web.terminate()
            assert web.wait(20) in (0, -signal.SIGTERM)  # uvicorn raises the signal again when it has stopped
        finally:
            web.kill()
            web.wait()
    assert "Application shutdown complete" in said.read_text()
    assert "Traceback" not in said.read_text()
    closed = {path.name.split("-")[0]: '"closed"' in path.read_text() for path in journal.iterdir()}
    assert closed == {"producer": True, "consumer": True}


def test_every_example_is_run_listed_and_says_how_to_run_it() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {*SAID, WEB}
    assert set(re.findall(r"\]\(([^)#]+)\)", (EXAMPLES / "README.md").read_text())) == names
    for name in sorted(names):
        text = ast.get_docstring(ast.parse((EXAMPLES / name).read_text())) or ""
        how = f"python examples/{name}" if name != WEB else "uvicorn --app-dir examples fastapi_app:app"
        assert how in text, name
