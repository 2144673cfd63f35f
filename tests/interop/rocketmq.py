"""A real RocketMQ on a store directory, and a probe to ask it."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dejamq_lab.machines.jars import Missing
from dejamq_lab.machines.rocketmq import BROKER, VERSION, Failed, fetched_jars
from dejamq_lab.machines.rocketmq import RocketMQ as Servers

__all__ = ["VERSION", "Failed", "Missing", "RocketMQ", "fetched_jars"]

HERE = Path(__file__).parent
ANSWER_S = 60


class RocketMQ(Servers):
    """That can be asked."""

    def __init__(self, jars: Path, store: Path, work: Path, settings: Mapping[str, object], topic: str) -> None:
        """``topic`` is one of the store's own."""
        super().__init__(jars, store, work, settings)
        self._topic = topic

    def ask(self, commands: Iterable[str]) -> list[Any]:
        """The probe's answers, one a command. Raises Failed."""
        lines = list(commands)
        probe = [*self.java("128m"), str(HERE / "Probe.java"), self.namesrv, BROKER, self._topic]
        try:
            ran = subprocess.run(
                probe, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True,
                timeout=ANSWER_S + len(lines), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"RocketMQ did not answer {len(lines)} questions, the first was {lines[0]!r}") from None
        answers = [json.loads(line[2:]) for line in ran.stdout.splitlines() if line.startswith(b"> ")]
        if ran.returncode or len(answers) != len(lines):
            said = ran.stderr.decode("utf-8", "replace")[-2000:]
            raise Failed(f"the probe gave {len(answers)} answers to {len(lines)} questions: {said}")
        return answers
