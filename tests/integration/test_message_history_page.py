"""The page about the life of one message: its commands are run, and every line it shows is told again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "message-history.md").read_text()
BLOCKS = dict(re.findall(r"```(python|sh|)\n(.*?)```", PAGE, re.DOTALL))
ID = re.compile(r"\b[0-9A-F]{32}\b")


def without_chance(text: str) -> list[str]:
    """Ids, times and numbers that differ between two runs are told by what they are."""
    text = re.sub(r"\d\d:\d\d:\d\d\.\d{3} +\+[\d.]+ m?s", "TIME", ID.sub("ID", text))
    text = re.sub(r"\d{4}-\d\d-\d\d UTC", "DAY", text)
    text = re.sub(r"\S+@\d+#\d+", "CLIENT", text)
    return [re.sub(r" {2,}", "  ", line) for line in re.sub(r"orders:\d", "orders:N", text).splitlines()]


@pytest.mark.timeout(180)
@pytest.mark.process
def test_the_example_goes_as_the_page_shows_it(tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text(BLOCKS["python"])
    (known,) = set(ID.findall(BLOCKS["sh"]))
    script = BLOCKS["sh"].replace(known, '"$(grep -ho "C000[0-9A-F]*" .dejamq/journal/producer-*.jsonl | head -1)"')
    script = script.replace("--brokers 1", "--dir .dejamq --brokers 1")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f"trap 'dejamq cluster down' EXIT\nset -e\n{script}trap - EXIT\n"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("charging order 17\n") == 2
    assert "died\n" in done.stdout
    told, shown = without_chance(done.stdout), without_chance(BLOCKS[""])
    assert [line for line in shown if line not in told] == []
