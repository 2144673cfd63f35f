"""One scenario on a real RocketMQ from its steps to the judgement of what the audit made of what it left."""

import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path

from dejamq_lab.auditing import audit
from dejamq_lab.demo.compare import read_findings
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.machines.rocketmq import Failed
from dejamq_lab.rocketmq.collecting import collect
from dejamq_lab.rocketmq.programs import ClientProgram, server_jars
from dejamq_lab.rocketmq.scenario import RealScenario
from dejamq_lab.rocketmq.stage import RocketMQStage, Tell
from dejamq_lab.rocketmq.truth import Truth, problems
from dejamq_lab.scenario.run import ScenarioOutcome, proof

EVIDENCE = "evidence"


def run(
    scenario: RealScenario,
    directory: Path,
    tell: Tell,
    client: ClientProgram = ClientProgram.JAVA,
    jars: Path | None = None,
) -> ScenarioOutcome:
    """Play and judge. ``directory`` keeps the evidence, with what is true of it, findings and report.

    Raises Missing for a program that is not here, and ClusterFailed when a step does not come to its end, or the audit
    to no verdict.
    """
    began = time.monotonic()
    evidence = directory / EVIDENCE
    play(scenario, evidence, tell, client, jars)
    tell("audit")
    asyncio.run(audit(None, [], directory, evidence=[evidence]))
    return judged(scenario, directory, time.monotonic() - began)


def play(
    scenario: RealScenario, into: Path, tell: Tell, client: ClientProgram = ClientProgram.JAVA, jars: Path | None = None,
    work: Path | None = None,
) -> None:  # fmt: skip
    """Play only. What the run leaves goes to ``into``, which is made anew; ``work`` keeps everything it wrote."""
    servers = server_jars(jars)
    with tempfile.TemporaryDirectory(prefix="dejamq-rocketmq-") as temporary:
        folder = work or Path(temporary)
        try:
            with RocketMQStage(folder, servers, scenario.layout, client, tell) as stage:
                stage.topic(scenario.queues)
                causes = scenario.steps(stage)
                stage.close()
                shutil.rmtree(into, ignore_errors=True)
                collect(stage, scenario.about, causes, into)
        except Failed as failed:
            raise ClusterFailed(str(failed).splitlines()[0]) from None


def judged(scenario: RealScenario, directory: Path, seconds: float) -> ScenarioOutcome:
    """The judgement of the audit whose output is in ``directory``."""
    verdict, findings = json.loads((directory / "verdict.json").read_bytes()), read_findings(directory)
    truth = Truth(directory / EVIDENCE)
    wrong = problems(truth, [*findings])
    return ScenarioOutcome(
        scenario.id, not wrong, wrong, verdict, proof(findings), seconds, str(directory),
        double_effects=len(truth.came_twice()),
    )  # fmt: skip
