"""Which queue a call goes to, and who waits until the route of its topic is known. Owned by the event loop."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from time import monotonic

from dejamq_proto.codes import Code, DejamqError

from dejamq.call import Call
from dejamq.fault_strategy import FaultTable
from dejamq.instance import Instance
from dejamq.message import MessageQueue
from dejamq.mixture import Mixture
from dejamq.routes import TopicRoute
from dejamq.selectors import Rotation
from dejamq.sends import Sends, different

_TOPIC = attrgetter("message.topic")


class Destinations:
    """Rotation over the queues of each topic; calls of unknown topics are parked while one read of the route runs.

    RocketMQ: MQFaultStrategy.selectOneMessageQueue: queues in turn, and on a retry the next one of another
    broker, if there is one; with ``faults``, of one that need not be avoided.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        routed: Callable[[Sequence[Call]], None],
        failed: Callable[[Sequence[Call], DejamqError], None],
        faults: FaultTable | None = None,
    ) -> None:
        self._instance, self._routed, self._failed, self._faults = instance, routed, failed, faults
        self._rotations: dict[str, Rotation] = {}
        self._mixture = Mixture(self._rotations)
        self._parked: dict[str, list[Call]] = {}
        instance.routes.on_change.append(self._route_changed)

    def choose(self, calls: Sequence[Call]) -> list[Call]:
        """Give the calls their queues; those left out are parked and come back through ``routed`` or ``failed``.

        A call with a sharding key keeps to one queue while the topic's queues stay the same (RocketMQ:
        SelectMessageQueueByHash). One whose selector fails goes to ``failed``.
        """
        chosen: list[Call] = []
        for topic, of_topic in groupby(calls, _TOPIC):
            rotation = self._rotations.get(topic)
            if rotation is None or topic in self._parked:  # parked ones came first, and go first
                self._park(topic, of_topic)
            else:
                chosen += self._with_queues(list(of_topic), rotation)
        return chosen

    def turns(self, sends: Sends) -> list[MessageQueue] | None:
        """A queue for each of these, which nobody chooses; None: it takes calls to find them, by ``choose``."""
        if self._faults is not None or self._parked:
            return None
        commons, kinds = sends.commons, different(sends.commons)
        topic = commons[0].topic
        try:
            if all(kind.topic == topic for kind in kinds):
                return self._rotations[topic].take(len(sends), monotonic())
            return self._mixture.take(commons, kinds, monotonic())
        except KeyError:
            return None

    def queue_for(self, call: Call) -> MessageQueue | None:
        """Where the batch goes that begins with this call; None while the route is not known.

        Raises DejamqError for a selector that fails.
        """
        rotation = self._rotations.get(call.message.topic)
        return call.queue if call.queue is not None or rotation is None else self._queue_of(call, rotation)

    def choose_again(self, calls: Sequence[Call]) -> list[Call]:
        """Other queues, if possible of other brokers, for calls that failed; calls of a batch stay together."""
        of_batch: dict[int, MessageQueue] = {}
        for call in calls:
            failed_at, call.queue = call.queue, of_batch.get(call.batch) if call.batch else None
            rotation = self._rotations.get(call.message.topic)
            if call.queue is None and rotation is not None:
                call.queue = self._next(rotation, failed_at.broker_name if failed_at else "")
                of_batch[call.batch] = call.queue
        return self.choose(calls)

    def take_parked(self, wanted: Callable[[Call], bool]) -> list[Call]:
        """Remove parked calls, e.g. those that waited too long."""
        taken = [call for calls in self._parked.values() for call in calls if wanted(call)]
        if taken:
            gone = set(map(id, taken))
            for topic, calls in self._parked.items():
                self._parked[topic] = [call for call in calls if id(call) not in gone]
        return taken

    def _with_queues(self, calls: Sequence[Call], rotation: Rotation) -> Iterator[Call]:
        take_turns = self._faults is None
        free = sum(call.queue is None and call.select is None for call in calls) if take_turns else 0
        turns = iter(rotation.take(free, monotonic()))
        for call in calls:
            if call.queue is None:
                if take_turns and call.select is None:
                    call.queue = next(turns)
                else:
                    try:
                        call.queue = self._queue_of(call, rotation)
                    except DejamqError as error:
                        self._failed((call,), error)
                        continue
            yield call

    def _queue_of(self, call: Call, rotation: Rotation) -> MessageQueue:
        if call.select is not None:
            return _selected(call, rotation.queues)
        return rotation.next() if self._faults is None else self._healthy(rotation, "", self._faults)

    def _next(self, rotation: Rotation, avoid: str) -> MessageQueue:
        if self._faults is None:
            return rotation.next_avoiding(avoid)
        if avoid:
            rotation.restart()
        return self._healthy(rotation, avoid, self._faults)

    def _healthy(self, rotation: Rotation, avoid: str, faults: FaultTable) -> MessageQueue:
        """Available and not the failed one; else reachable and not the failed one; else simply the next."""
        now_ms = monotonic() * 1000
        return (
            rotation.next_where(lambda name: name != avoid and faults.available(name, now_ms))
            or rotation.next_where(lambda name: name != avoid and faults.reachable(name))
            or rotation.next()
        )

    def _park(self, topic: str, calls: Iterable[Call]) -> None:
        if topic not in self._parked:
            self._parked[topic] = []
            self._instance.spawn(self._find(topic), f"route-{topic}")
        self._parked[topic] += calls

    async def _find(self, topic: str) -> None:
        """Read the route for all calls parked for the topic; they leave in the order in which they were submitted."""
        try:
            queues = await self._instance.routes.publish_queues(topic)
        except DejamqError as error:
            self._failed(self._parked.pop(topic), error)
            return
        self._rotations[topic] = Rotation(queues)
        self._routed(self.choose(self._parked.pop(topic)))

    def _route_changed(self, route: TopicRoute) -> None:
        """Publish by the new route; where it has nowhere to publish to, the next call asks again."""
        queues = route.publish_queues()
        if queues:
            self._rotations[route.topic] = Rotation(queues)
        else:
            self._rotations.pop(route.topic, None)
        self._mixture.forget()


def _selected(call: Call, queues: Sequence[MessageQueue]) -> MessageQueue:
    """What the selector says. Raises DejamqError when it fails, or names something else than one of the queues."""
    assert call.select is not None
    try:
        chosen: object = call.select(queues, call.message)
    except Exception as error:
        text = f"the queue selector failed for topic {call.message.topic!r}: {error!r}"
        raise DejamqError(text, code=Code.INVALID_PARAMETER) from error
    if not isinstance(chosen, MessageQueue) or chosen.topic != call.message.topic:
        text = f"the queue selector chose {chosen!r}, which is no queue of topic {call.message.topic!r}"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)
    return chosen
