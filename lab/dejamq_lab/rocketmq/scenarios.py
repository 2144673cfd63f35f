"""All scenarios on a real RocketMQ, and why some of the lab's others cannot be shown there."""

from collections.abc import Mapping

from dejamq_lab.errors import NotSupported
from dejamq_lab.rocketmq import handlers, offsets, owners, producers
from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.scenario import RealScenario

SCENARIOS: Mapping[str, RealScenario] = {
    one.id: one for family in (producers, offsets, owners, handlers) for one in family.ALL
}
NOT_SHOWN = {
    "O16": "RocketMQ 5 goes from an offset beyond the end to the end, so nothing comes again; RocketMQ 4 went to 0",
}
"""Why a cause cannot be shown with RocketMQ 5.3.3."""


def chosen(scenario: str, client: ClientProgram) -> RealScenario:
    """Raises NotSupported for what cannot be played there, or not with this client."""
    known = {name.lower(): one for name, one in SCENARIOS.items()}
    if (found := known.get(scenario.lower())) is None:
        why = NOT_SHOWN.get(scenario, "it has no steps for one")
        raise NotSupported(f"a real RocketMQ cannot show {scenario}: {why}. It can show {', '.join(SCENARIOS)}")
    if client not in found.clients:
        raise NotSupported(f"{found.id} cannot be played with {client}; it can with {', '.join(found.clients)}")
    return found
