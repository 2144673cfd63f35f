"""Where a scenario can be played."""

from enum import StrEnum
from pathlib import Path

from dejamq_lab.errors import NotSupported
from dejamq_lab.scenario.script.text import Scenario
from dejamq_lab.scenario.stage.process import ProcessStage
from dejamq_lab.scenario.stage.stage import ScenarioStage


class Kind(StrEnum):
    """The kind of servers and actors: processes, containers, or parts of the lab's own process."""

    PROCESS = "process"
    COMPOSE = "compose"
    INPROC = "inproc"


def fits(scenario: Scenario, kind: Kind) -> bool:
    """Whether the scenario can be played there, if anything can."""
    if kind is Kind.INPROC:
        from dejamq_lab.scenario.stage.inproc import refuse

        try:
            refuse(scenario)
        except NotSupported:
            return False
    return True


def stage_for(scenario: Scenario, directory: Path, kind: Kind = Kind.PROCESS) -> ScenarioStage:
    """Raises NotSupported."""
    match kind:
        case Kind.PROCESS:
            return ProcessStage(scenario, directory)
        case Kind.INPROC:
            from dejamq_lab.scenario.stage.inproc import InProcessStage  # brings the whole broker into this process

            return InProcessStage(scenario, directory)
        case Kind.COMPOSE:
            from dejamq_lab.scenario.stage.compose import ComposeStage  # asks for the engine

            return ComposeStage(scenario, directory)
