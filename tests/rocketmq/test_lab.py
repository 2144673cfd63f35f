"""``dejamq lab run --cluster rocketmq`` as somebody runs it: one scenario. ``prove_lab.py`` plays others."""

import json
from pathlib import Path

import pytest
from cli_runner import run_process

pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_a_real_rocketmq_plays_a_scenario_and_the_audit_names_its_cause(tmp_path: Path) -> None:
    ran = await run_process("lab", "run", "O1", "--cluster", "rocketmq", "--keep", str(tmp_path / "o1"), "-o", "json")
    outcome = ran.json()
    assert (outcome["scenario"], outcome["ok"], outcome["problems"]) == ("O1", True, [])
    assert outcome["verdict"]["causes"].keys() == {"O1", "O7"}
    assert "start billing-2" in ran.errors
    kept = tmp_path / "o1"
    assert (kept / "report.html").exists()
    assert json.loads((kept / "evidence" / "truth.json").read_text())["causes"] == {"order-5": ["O1"], "*": ["O7"]}
    assert (kept / "evidence" / "billing-1" / "rocketmq_client.log").exists()
