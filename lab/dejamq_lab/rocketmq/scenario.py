"""One scenario on a real RocketMQ: its servers, its steps as a function, and the clients that can play it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dejamq_lab.rocketmq.collecting import Causes
from dejamq_lab.rocketmq.programs import Client
from dejamq_lab.rocketmq.servers import Layout
from dejamq_lab.rocketmq.stage import Stage

BOTH_JAVA = (Client.JAVA, Client.JAVA_OLD)
Steps = Callable[[Stage], Causes]


@dataclass(frozen=True)
class RealScenario:
    """``id`` is that of the lab's own scenario of the same cause, where there is one. The steps return what is true."""

    id: str
    steps: Steps
    layout: Layout = field(default_factory=Layout)
    queues: int = 2
    """Of the topic at each broker."""
    clients: Sequence[Client] = (Client.JAVA,)
    """Those that it was seen with."""

    @property
    def about(self) -> str:
        """What happens, in a sentence."""
        return " ".join((self.steps.__doc__ or "").split())


def recorded_name(scenario: str, client: Client) -> str:
    """The name of a recorded run."""
    words = {Client.JAVA: "", Client.JAVA_OLD: "_client4", Client.GO: "_go"}
    return scenario.lower().replace("-", "_") + words[client]
