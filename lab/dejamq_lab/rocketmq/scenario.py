"""One scenario on a real RocketMQ: its servers, its steps as a function, and the clients that can play it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dejamq_lab.rocketmq.collecting import Causes
from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.servers import ServerLayout
from dejamq_lab.rocketmq.stage import RocketMQStage

BOTH_JAVA = (ClientProgram.JAVA, ClientProgram.JAVA_OLD)
Steps = Callable[[RocketMQStage], Causes]


@dataclass(frozen=True)
class RealScenario:
    """``id`` is that of the lab's own scenario of the same cause, where there is one. The steps return what is true."""

    id: str
    steps: Steps
    layout: ServerLayout = field(default_factory=ServerLayout)
    queues: int = 2
    """Of the topic at each broker."""
    clients: Sequence[ClientProgram] = (ClientProgram.JAVA,)
    """Those that it was seen with."""

    @property
    def about(self) -> str:
        """What happens, in a sentence."""
        return " ".join((self.steps.__doc__ or "").split())


def recorded_name(scenario: str, client: ClientProgram) -> str:
    """The name of a recorded run."""
    words = {ClientProgram.JAVA: "", ClientProgram.JAVA_OLD: "_client4", ClientProgram.GO: "_go"}
    return scenario.lower().replace("-", "_") + words[client]
