"""docs/testing.md and docs/control.md: their examples run, and they name all that there is."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab.control import faults
from dejamq_lab.control.client import Control

HOUSE = Path(__file__).parents[2]
TESTING, CONTROL = ((HOUSE / "docs" / name).read_text() for name in ("testing.md", "control.md"))
SHOP = '''#!{python}
"""What stands for a program in Java: it sends an order, again where it hears nothing, and charges what comes."""
import os, sys
from dejamq import ConsumeFrom, Message
from dejamq.sync import LitePullConsumer, Producer
from dejamq_proto.codes import SendTimeout

topic, group = sys.argv[3:]
namesrv, order = os.environ["NAMESRV_ADDR"], Message(topic, b"order-17")
with Producer("shop", namesrv=namesrv, send_msg_timeout_ms=1000) as producer:
    try:
        producer.send(order)
    except SendTimeout:
        producer.send(order)
with LitePullConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
    consumer.subscribe(topic)
    charged = 0
    while charged < 2:
        charged += len(consumer.poll(timeout_ms=10_000))
'''


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.mark.process
def test_the_example_with_pytest_passes_with_a_program_that_only_knows_the_environment(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(blocks(TESTING, "python")[0])
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(SHOP.format(python=sys.executable))
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)], cwd=tmp_path,
        env=os.environ | {"PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_fault_operation_and_request_is_on_the_page() -> None:
    for name in (*faults.KINDS, *faults.OPERATIONS):
        assert f"`{name}`" in CONTROL, name


def test_every_method_of_the_fixture_is_on_the_page() -> None:
    for name in dir(Control):
        if not name.startswith("_") and name not in ("advertise", "resume", "restart", "heal"):
            assert f"`{name}(" in TESTING, name


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("java", "kits/java/src/test/java/dejamq/testcontainers/DejamqContainerTest.java"),
        ("go", "kits/go/dejamq_test.go"),
    ],
)
def test_the_lines_for_another_language_are_of_the_tests_of_its_kit(language: str, source: str) -> None:
    tested = {line.strip() for line in (HOUSE / source).read_text().splitlines()}
    for line in blocks(TESTING, language)[0].splitlines():
        assert line.strip() in tested
