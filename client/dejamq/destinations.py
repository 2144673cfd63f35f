"""Which queue a call goes to, and who waits until the route of its topic is known. Owned by the event loop."""

from collections.abc import Callable, Sequence

from dejamq_proto.codes import DejamqError

from dejamq.batching import Call
from dejamq.instance import Instance
from dejamq.message import MessageQueue
from dejamq.routes import TopicRoute
from dejamq.selectors import Rotation, by_hash


class Destinations:
    """Rotation over the queues of each topic; calls of unknown topics are parked while one read of the route runs.

    RocketMQ: MQFaultStrategy.selectOneMessageQueue without latency fault tolerance: queues in turn, and on a
    retry the next one of another broker, if there is one.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        routed: Callable[[Call], None],
        failed: Callable[[Sequence[Call], DejamqError], None],
    ) -> None:
        self._instance, self._routed, self._failed = instance, routed, failed
        self._rotations: dict[str, Rotation] = {}
        self._parked: dict[str, list[Call]] = {}
        instance.routes.on_change.append(self._route_changed)

    def choose(self, call: Call) -> MessageQueue | None:
        """Give the call its queue; None: it is parked and comes back through ``routed`` or ``failed``.

        A call with a sharding key keeps to one queue while the topic's queues stay the same (RocketMQ:
        SelectMessageQueueByHash).
        """
        topic = call.message.topic
        rotation = self._rotations.get(topic)
        if rotation is None or topic in self._parked:  # parked ones came first, and go first
            self._park(topic, call)
            return None
        if call.queue is None:
            key = call.message.sharding_key
            call.queue = rotation.next() if key is None else by_hash(rotation.queues, key)
        return call.queue

    def choose_again(self, calls: Sequence[Call]) -> list[Call]:
        """Other queues, if possible of other brokers, for calls that failed; calls of a batch stay together."""
        of_batch: dict[int, MessageQueue] = {}
        chosen = []
        for call in calls:
            failed_at, call.queue = call.queue, of_batch.get(call.batch) if call.batch else None
            rotation = self._rotations.get(call.message.topic)
            if call.queue is None and rotation is not None:
                call.queue = rotation.next_avoiding(failed_at.broker_name if failed_at else "")
                of_batch[call.batch] = call.queue
            if self.choose(call) is not None:
                chosen.append(call)
        return chosen

    def take_parked(self, wanted: Callable[[Call], bool]) -> list[Call]:
        """Remove parked calls, e.g. those that waited too long."""
        taken = [call for calls in self._parked.values() for call in calls if wanted(call)]
        if taken:
            gone = set(map(id, taken))
            for topic, calls in self._parked.items():
                self._parked[topic] = [call for call in calls if id(call) not in gone]
        return taken

    def _park(self, topic: str, call: Call) -> None:
        if topic not in self._parked:
            self._parked[topic] = []
            self._instance.spawn(self._find(topic), f"route-{topic}")
        self._parked[topic].append(call)

    async def _find(self, topic: str) -> None:
        """Read the route for all calls parked for the topic; they leave in the order in which they were submitted."""
        try:
            queues = await self._instance.routes.publish_queues(topic)
        except DejamqError as error:
            self._failed(self._parked.pop(topic), error)
            return
        self._rotations[topic] = Rotation(queues)
        for call in self._parked.pop(topic):
            self.choose(call)
            self._routed(call)

    def _route_changed(self, route: TopicRoute) -> None:
        """Publish by the new route; where it has nowhere to publish to, the next call asks again."""
        queues = route.publish_queues()
        if queues:
            self._rotations[route.topic] = Rotation(queues)
        else:
            self._rotations.pop(route.topic, None)
