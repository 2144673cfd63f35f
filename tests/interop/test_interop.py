"""What ``make interop`` does where there is no RocketMQ, and that its comparisons can fail."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filters import Expressions, answer, same
from interop import collisions, compare_records, differs
from written import Said

RECORD: dict[str, Any] = {
    "queue_offset": 7, "sys_flag": 0x301, "store_host": "[::1]:1", "body_sha256": "ab",
    "properties": {"KEYS": "k", "MIN_OFFSET": "5"},
}  # fmt: skip
AS_CLIENT_TELLS = RECORD | {
    "sys_flag": 0, "store_host": "0:0:0:0:0:0:0:1:1", "properties": {"KEYS": "k", "MAX_OFFSET": "9"},
}  # fmt: skip


def test_without_java_it_says_what_to_install_and_cannot_tell(tmp_path: Path) -> None:
    script = Path(__file__).with_name("interop.py")
    ran = subprocess.run(
        [sys.executable, str(script), "--jars", str(tmp_path)],
        env=os.environ | {"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert ran.returncode == 3
    assert ran.stderr == "cannot tell: java is not on the PATH: install a JDK of version 11 or newer\n"


def test_a_record_as_a_rocketmq_client_tells_it_is_the_same() -> None:
    assert list(compare_records("T/0", [AS_CLIENT_TELLS], [RECORD])) == []


@pytest.mark.parametrize(
    "change",
    [{"queue_offset": 8}, {"sys_flag": 4}, {"store_host": "127.0.0.1:1"}, {"body_sha256": "cd"}, {"properties": {}}],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_differs_in_one_field_is_told(change: dict[str, Any]) -> None:
    (told,) = compare_records("T/0", [AS_CLIENT_TELLS | change], [RECORD])
    assert f"{next(iter(change))} of T/0@7 is" in told


def test_missing_records_and_errors_are_told() -> None:
    assert list(compare_records("T/0", [], [RECORD])) == ["T/0: 0 records at RocketMQ, 1 at dejamq"]
    (told,) = compare_records("T/0", {"error": "no such queue"}, [RECORD])
    assert "no such queue" in told


def test_a_queue_that_rocketmq_appends_to_may_be_longer_but_not_shorter() -> None:
    assert list(differs("bounds", [0, 9], [0, 7], grows=True)) == []
    assert list(differs("bounds", [0, 9], [0, 7])) != []
    assert list(differs("bounds", [0, 6], [0, 7], grows=True)) != []
    assert list(differs("bounds", [1, 9], [0, 7], grows=True)) != []


def test_keys_of_one_hash_count_together() -> None:
    said = Said({}, {}, [], {("T", "Aa"): [1, 2], ("T", "BB"): [3], ("T", "C"): [4]}, {}, 0)
    assert collisions(said, ("T", "Aa")) == 3
    assert collisions(said, ("T", "C")) == 1


def test_random_filters_have_every_kind_of_answer() -> None:
    expressions = Expressions(1)
    cases = [expressions.case() for _ in range(2000)]
    assert {answer(*case) for case in cases} == {"true", "false", "null", "incomparable", "refused"}


@pytest.mark.parametrize(
    ("text", "theirs", "agree"),
    [
        ("a > 5", "true", True),
        ("a > 5", "false", False),
        ("a > 5", "refused", False),
        ("a > 5 b = 1", "true", True),  # RocketMQ reads up to the 5
        ("a > 5 b = 1", "false", False),
        ("a > 'x'", "refused", True),
        ("a > 'x'", "null", False),
    ],
)
def test_only_what_stands_after_an_expression_may_be_judged_differently(text: str, theirs: str, agree: bool) -> None:
    assert same((text, {"a": "6"}), theirs) is agree
