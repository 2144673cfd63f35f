"""The engine of a producer: from sends to runs to answers. Owned by the event loop; no task for a message.

A send waits in the lane (the backlog) of its broker. A lane sends while fewer than ``max_runs_in_flight`` runs are in
flight. Its pump runs at the end of each iteration of the event loop, so that all sends of one iteration leave together.
``outcomes`` decides what an answer or a failure means.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic, time

from dejamq_proto.codes import BrokerUnavailable, DejamqError, SendTimeout
from dejamq_proto.journal.events.producer import CLOSED_BY_A_TIMEOUT
from dejamq_proto.names import MASTER_ID
from dejamq_proto.wire.messages import SendRunResult

from dejamq.net.instance import Instance
from dejamq.net.stream import AnswerCallback
from dejamq.sending.batching import BrokerBacklog, Flight, Lanes, build_run
from dejamq.sending.call_ids import CallIds
from dejamq.sending.destinations import Destinations
from dejamq.sending.encoding import Template
from dejamq.sending.fault_strategy import FaultTable
from dejamq.sending.hooks import SendHooks
from dejamq.sending.journal import SendJournal
from dejamq.sending.outcomes import Outcomes
from dejamq.sending.sends import DEDUP, PLAIN, Sends
from dejamq.sending.submitted import Fresh, shortcut_for
from dejamq.values.forking import check_loop
from dejamq.values.message import Message, MessageQueue, SendResult
from dejamq.values.producer_config import ProducerConfig

SWEEP_S = 0.1
REST_S = 0.1
"""Between tries of what may go to one broker alone, which has just failed."""


class Sender:
    """Makes the sends of one producer group and resolves their futures.

    Every send that was taken ends exactly once: with a result, with an error, or by its program's own
    cancellation. That includes faults of this code, which end the producer (``_broke``) instead of leaving
    futures unresolved.
    """

    def __init__(
        self, instance: Instance, config: ProducerConfig, group: str, hooks: SendHooks, plain_below: int = 0
    ) -> None:
        """``plain_below``: only bodies of fewer bytes may take the shortcut."""
        self._instance, self._config, self._group = instance, config, group
        self.loop = asyncio.get_running_loop()
        self._cap_s = config.send_msg_max_timeout_per_request_ms / 1000
        self._sweep_s = min(SWEEP_S, self._cap_s / 2) if self._cap_s else SWEEP_S
        self.faults = FaultTable() if config.send_latency_enable else None
        journal = SendJournal(instance.journal, group, config.journal_business_key)
        self._outcomes = Outcomes(config, group, journal, hooks, self.faults)
        self.backlog = self._outcomes.backlog
        self._lanes = Lanes()
        self._destinations = Destinations(instance, routed=self._enqueue, failed=self._fail, faults=self.faults)
        self._sweeper: asyncio.TimerHandle | None = None
        self.new_future: Callable[[], asyncio.Future[SendResult]] = partial(asyncio.Future, loop=self.loop)
        shortcut = shortcut_for(self.backlog, self.loop, plain_below)
        self.take, self._learn = shortcut.take, shortcut.learn
        """The quickest way of a plain send: its future, or None: ``submit_plain`` or ``submit`` it then."""
        self._call_ids = CallIds()
        self._fresh = Fresh(
            self._call_ids, config.send_msg_timeout_ms / 1000, shortcut, self._turn_soon,
            DEDUP if config.idempotent else PLAIN,
        )  # fmt: skip
        self._turning = False
        self.open = True
        """False: ask the producer whether and why not, before submitting."""

    def submit_plain(self, message: Message, common: Template, mode: str) -> "asyncio.Future[SendResult]":
        """Take a send on that is nothing but its message; gives its future. Raises BacklogFull."""
        if not self._turning:
            self._check_loop()
        size = common.size + len(message.body)
        self._learn(message, common, common.size)
        future = self.new_future()  # first: with it garbage may go, and something of that may use this producer
        self.backlog.take(1, size)
        plain = self._fresh.plain(mode)
        plain.messages.append(message)
        plain.commons.append(common)
        plain.sizes.append(size)
        plain.futures.append(future)
        return future

    def columns(self, mode: str, kind: int, size: int) -> Sends:
        """The columns that one more send of this size joins, at once. Raises BacklogFull."""
        if not self._turning:
            self._check_loop()
        self.backlog.take(1, size)
        return self._fresh.columns(mode, kind)

    def submit(self, sends: Sends) -> None:
        """Take sends on, all or none; their futures will be resolved. Raises BacklogFull."""
        if not self._turning:
            self._check_loop()
        self.backlog.take(len(sends), sum(sends.sizes))
        self._fresh.add(sends)

    def refuse(self, sends: Sends, error: DejamqError) -> None:
        """End sends that were never taken on."""
        sends.number(self._call_ids)
        self._outcomes.tell(sends, error)

    def queue_for(self, sends: Sends) -> MessageQueue | None:
        """Where the batch goes that begins with these; None while the route is not known."""
        return self._destinations.queue_for(sends)

    def shut(self) -> None:
        """Take nothing more on."""
        self.open = False
        self._fresh.end_plain()

    def abandon(self, error: Callable[[bool], DejamqError]) -> None:
        """End all that is unfinished with this error (told whether it is definite): the producer closes or failed."""
        self.shut()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for sends in (*self._destinations.take_parked(inf), *self._fresh.take()):
            self._outcomes.end(sends, error(not sends.indefinite))
        for lane in self._lanes.values():
            flights, lane.in_flight = lane.in_flight, []
            for flight in flights:
                if flight.answer is not None:
                    flight.answer.cancel()
                self._outcomes.given_up(flight, error(False))
            for sends in lane.take_expired(inf):
                self._outcomes.end(sends, error(not sends.indefinite))

    # towards the broker

    def _check_loop(self) -> None:
        """Once a turn, before anything is counted. Raises ClientClosed when the loop has ended."""
        if self.loop.is_closed():
            self.open = False
            self._instance.on_left_open.tell()
            check_loop(self.loop)

    def _turn_soon(self) -> None:
        if not self._turning:
            self._check_loop()  # the compiled way comes here first
            self.loop.call_soon(self._turn)
            self._turning = True

    def _turn(self) -> None:
        """What was submitted in this iteration of the loop gets its queues together, and leaves as lanes have room."""
        fresh = self._fresh.take()
        try:
            for sends in fresh:
                self._lanes.add(self._destinations.place(sends))
        except Exception as error:
            self._fresh.put_back(fresh)
            self._broke(error)
        self._turning = False
        if self._fresh and self.open:  # a selector submitted something itself
            self._turn_soon()
        if self._sweeper is None and self.backlog.calls:
            self._sweeper = self.loop.call_later(self._sweep_s, self._sweep)
        for lane in tuple(self._lanes.values()):
            self._pump(lane)

    def _enqueue(self, sends: Sends) -> None:
        if sends:
            self._lanes.add(sends)
            self._turn_soon()

    def _pump(self, lane: BrokerBacklog) -> None:
        """Send runs until enough are under way."""
        sends = Sends()
        try:
            while lane.waiting and len(lane.in_flight) < self._config.max_runs_in_flight:
                if lane.rests_until and monotonic() < lane.rests_until:
                    return  # the end of its rest makes a turn
                sends = self._outcomes.without_ended(lane.take_run())
                if sends and self._cap_s:
                    sends = lane.of_one_patience(sends, self._outcomes.rule.patient(sends))
                if sends:
                    self._depart(lane, sends)
        except Exception as error:
            if not any(flight.sends is sends for flight in lane.in_flight):
                lane.put_back(sends)
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        """A fault of our own: without this the futures concerned would never be resolved."""
        failure = DejamqError(f"the producer failed: {error!r}; close it and make a new one", definite=False)
        failure.__cause__ = error
        self._instance.fail(failure)

    def _depart(self, lane: BrokerBacklog, sends: Sends) -> None:
        """Give a run its number and hand it to the connection.

        The journal's line stands before the first byte leaves.
        """
        address = self._instance.routes.master_address(lane.broker_name)
        if address is None:
            text = f"no route names an address of broker {lane.broker_name}'s master (id {MASTER_ID})"
            self._fail(sends, BrokerUnavailable(text, definite=True))
            return
        run = build_run(
            sends, group=self._group, default_queue_nums=self._config.default_topic_queue_nums,
            born_ms=int(time() * 1000),
        )  # fmt: skip
        run.client_id, run.boot_id, run.seq = (
            self._instance.client_id, self._instance.boot_id, self._instance.next_seq(),
        )  # fmt: skip
        sends.tries += 1
        flight = Flight(lane, sends, run.sizes, run.seq, address, sends.first_deadline, departed=monotonic())
        if self._cap_s and self._outcomes.rule.patient(sends)[0]:
            flight.patience = flight.departed + self._cap_s
        self._outcomes.leaving(flight)
        lane.in_flight.append(flight)
        flight.answer = AnswerCallback(partial(self._landed, flight))
        self._instance.link(address).send_run_for(flight.answer, run)

    # from the broker

    def _landed(self, flight: Flight, answer: SendRunResult | DejamqError) -> None:
        """A run was answered or lost."""
        lane = flight.lane
        if flight not in lane.in_flight:
            return  # given up before; its sends have ended or gone elsewhere
        lane.in_flight.remove(flight)
        try:
            if isinstance(answer, DejamqError):
                again = self._outcomes.lost(flight, answer)
            else:
                again = self._outcomes.answered(flight, answer)
            self._send_again(again)
        except Exception as fault:
            lane.in_flight.append(flight)
            self._broke(fault)
        if lane.waiting:
            self._turn_soon()

    def _fail(self, sends: Sends, error: DejamqError) -> None:
        """These did not leave."""
        self._send_again(self._outcomes.failed(sends, error))

    def _send_again(self, sends: Sends) -> None:
        for placed in self._destinations.place_again(sends) if sends else ():
            if placed and placed.stay and placed.retries > 1:
                self._rest(placed)
            self._enqueue(placed)

    def _rest(self, sends: Sends) -> None:
        """Their brokers have failed again, and get a moment."""
        for name in set(sends.broker_names):
            self._lanes[name].rests_until = monotonic() + REST_S
        self.loop.call_later(REST_S, self._rested)

    def _rested(self) -> None:
        if self.open or self.backlog.calls:
            self._turn_soon()

    # time

    def _sweep(self) -> None:
        """Find what ran out of its budget: one look at a time for all messages."""
        self._sweeper = None
        try:
            self._end_overdue(monotonic())
        except Exception as fault:
            self._broke(fault)
        if self.backlog.calls:
            self._sweeper = self.loop.call_later(self._sweep_s, self._sweep)

    def _end_overdue(self, now: float) -> None:
        """Runs under way, sends that never left, sends without a route: each fails with what is known of it."""
        for lane in tuple(self._lanes.values()):
            for flight in [flight for flight in lane.in_flight if flight.due <= now]:
                self._overdue(flight, now)
            for expired in lane.take_expired(now):
                text = f"not sent in time: {lane.broker_name} is still busy with earlier messages"
                self._outcomes.end(expired, SendTimeout(text, definite=True))
        for expired in self._destinations.take_parked(now):
            text = f"no route in time: name server {self._instance.namesrv.address} does not answer"
            self._outcomes.end(expired, SendTimeout(text, definite=True))

    def _overdue(self, flight: Flight, now: float) -> None:
        """Sends of a run under way are out of time; when all are, its place is free for the next run."""
        deadlines = flight.sends.deadlines
        error = SendTimeout(f"{flight.lane.broker_name} ({flight.address}) did not answer in time", definite=False)
        if max(deadlines) > now and now < flight.patience:
            news, _ = flight.sends.divide([flight.first_deadline <= deadline <= now for deadline in deadlines])
            self._outcomes.tell(news, error)  # they stay in the run, whose answer counts them out
            flight.first_deadline = min(deadline for deadline in deadlines if deadline > now)
            return
        flight.lane.in_flight.remove(flight)
        if flight.answer is not None:
            flight.answer.cancel()
        self._send_again(self._outcomes.lost(flight, error, "timeout"))
        if self._config.close_connection_on_timeout:
            self._instance.reconnect(flight.address, CLOSED_BY_A_TIMEOUT)
        self._turn_soon()
