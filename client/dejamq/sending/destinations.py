"""Which queue a send goes to, and who waits until the route of its topic is known. Owned by the event loop."""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from dejamq_proto.codes import Code, DejamqError

from dejamq.net.instance import Instance
from dejamq.net.routes import TopicRoute
from dejamq.sending.encoding import Template
from dejamq.sending.fault_strategy import FaultTable
from dejamq.sending.queue_choice import Rotation, TopicRotations
from dejamq.sending.sends import Extra, Sends, by_deadline, different
from dejamq.values.message import Message, MessageQueue
from dejamq.values.selectors import Selector


class Destinations:
    """Rotation over the queues of each topic; sends to unknown topics are parked while one read of the route runs.

    RocketMQ: MQFaultStrategy.selectOneMessageQueue: queues in turn, and on a retry the next one of another
    broker, if there is one; with ``faults``, of one that need not be avoided.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        routed: Callable[[Sends], None],
        failed: Callable[[Sends, DejamqError], None],
        faults: FaultTable | None = None,
    ) -> None:
        self._instance, self._routed, self._failed, self._faults = instance, routed, failed, faults
        self._rotations: dict[str, Rotation] = {}
        self._several = TopicRotations(self._rotations)
        self._parked: dict[str, list[Sends]] = {}
        instance.routes.on_change.append(self._route_changed)

    def place(self, sends: Sends) -> Sends:
        """Give these their queues; those left out are parked and come back through ``routed`` or ``failed``.

        One with a sharding key keeps to one queue while the topic's queues stay the same (RocketMQ:
        SelectMessageQueueByHash). One whose selector fails goes to ``failed``.
        """
        kinds = different(sends.commons)
        if self._parked or any(kind.topic not in self._rotations for kind in kinds):
            sends = self._with_rotation(sends)
            kinds = different(sends.commons)
        if not sends or sends.queues:
            return sends
        if sends.extras and any(pinned := sends.pinned):
            return self._place_each(sends, pinned)
        sends.queues = self._turns(sends.commons, kinds)
        return sends

    def queue_for(self, sends: Sends) -> MessageQueue | None:
        """Where the batch goes that begins with these; None while the route is not known.

        Raises DejamqError for a selector that fails.
        """
        rotation = self._rotations.get(sends.commons[0].topic)
        if rotation is None:
            return None
        return self._chosen(sends.messages[0], sends.each_extra[0]) or self._next(rotation, "")

    def place_again(self, sends: Sends) -> Iterator[Sends]:
        """Other queues, if possible of other brokers, for sends that failed; those of a batch stay together.

        What an earlier try may have stored, at a broker that would know it, keeps its queue. What has its queue by its
        id has it chosen again, as brokers may have come and gone.
        """
        if sends.stay:
            yield sends
            return
        for topic, of_topic in sends.by_topic():
            avoided = of_topic.broker_names or [""] * len(of_topic)
            rotation, of_topic.queues, of_topic.together = self._rotations.get(topic), [], False
            if any(of_topic.pinned):
                pass
            elif rotation is not None and sends.whole:
                of_topic.queues = [self._next(rotation, avoided[0])] * len(of_topic)
            elif rotation is not None:
                of_topic.queues = [self._next(rotation, name) for name in avoided]
            yield self.place(of_topic)

    def take_parked(self, now: float) -> list[Sends]:
        """Remove parked sends that waited too long."""
        taken = []
        for topic, parked in self._parked.items():
            expired, self._parked[topic] = by_deadline(parked, now)
            taken += expired
        return taken

    def _with_rotation(self, sends: Sends) -> Sends:
        """Those whose topics' queues are known; the others are parked."""
        topics = [common.topic for common in sends.commons]
        routed = [topic in self._rotations and topic not in self._parked for topic in topics]
        routed_sends, others = sends.divide(routed)  # parked ones came first, and go first
        for topic, of_topic in others.by_topic() if others else ():
            if topic not in self._parked:
                self._parked[topic] = []
                self._instance.spawn(self._find(topic), f"route-{topic}")
            self._parked[topic].append(of_topic)
        return routed_sends

    def _turns(self, commons: Sequence[Template], kinds: set[Template]) -> list[MessageQueue]:
        """A queue for each of those that may go anywhere."""
        if self._faults is not None:
            return [self._next(self._rotations[common.topic], "") for common in commons]
        topic, now = commons[0].topic, monotonic()
        if all(kind.topic == topic for kind in kinds):
            return self._rotations[topic].take(len(commons), now)
        return self._several.take(commons, kinds, now)

    def _place_each(self, sends: Sends, pinned: list[bool]) -> Sends:
        """As ``place``, where the program chooses the queues of those that are pinned."""
        free = [common for common, chosen in zip(sends.commons, pinned, strict=True) if not chosen]
        turns = iter(self._turns(free, set(free)) if free else ())
        queues, stays = list[MessageQueue](), [True] * len(sends)
        for number, (message, extra) in enumerate(zip(sends.messages, sends.extras, strict=True)):
            try:
                queues.append(self._chosen(message, extra) or next(turns))
            except DejamqError as error:
                stays[number] = False
                self._failed(sends.part(number, number + 1), error)
        stay, _ = sends.divide(stays)
        stay.queues = queues
        return stay

    def _chosen(self, message: Message, extra: Extra | None) -> MessageQueue | None:
        """The program's choice. Raises DejamqError for a selector that fails."""
        where = None if extra is None else extra.where
        if where is None or isinstance(where, MessageQueue):
            return where
        return _selected(where, message, self._rotations[message.topic].queues)

    def _next(self, rotation: Rotation, avoid: str) -> MessageQueue:
        """The next queue, of another broker than the one to avoid if there is one."""
        if self._faults is None:
            return rotation.next_avoiding(avoid) if avoid else rotation.next()
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

    async def _find(self, topic: str) -> None:
        """Read the route for all sends parked for the topic; they leave in the order in which they were submitted."""
        try:
            queues = await self._instance.routes.publish_queues(topic)
        except DejamqError as error:
            for sends in self._parked.pop(topic):
                self._failed(sends, error)
            return
        self._rotations[topic] = Rotation(queues)
        for sends in self._parked.pop(topic):
            self._routed(self.place(sends))

    def _route_changed(self, route: TopicRoute) -> None:
        """Publish by the new route; where it has nowhere to publish to, the next send asks again."""
        queues = route.publish_queues()
        if queues:
            self._rotations[route.topic] = Rotation(queues)
        else:
            self._rotations.pop(route.topic, None)
        self._several.forget()


def _selected(select: Selector, message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The selector's queue. Raises DejamqError when it fails, or names something else than one of the queues."""
    try:
        chosen: object = select(queues, message)
    except BaseException as error:
        text = f"the queue selector failed for topic {message.topic!r}: {error!r}"
        raise DejamqError(text, code=Code.INVALID_PARAMETER) from error
    if not isinstance(chosen, MessageQueue) or chosen.topic != message.topic:
        text = f"the queue selector chose {chosen!r}, which is no queue of topic {message.topic!r}"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)
    return chosen
