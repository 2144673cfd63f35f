"""The engine of a producer: from calls to runs to answers. Owned by the event loop; no task for a message.

A call waits in the lane of its broker. A lane sends while fewer than ``max_runs_in_flight`` runs are under way; its
pump runs at the end of the loop's turn, so that all sends of one turn leave together. What an answer or a failure
means is decided in ``send_outcomes``.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from time import monotonic, time

from dejamq_proto.codes import BrokerUnavailable, DejamqError, SendTimeout
from dejamq_proto.events.producer import CLOSED_BY_A_TIMEOUT
from dejamq_proto.names import MASTER_ID
from dejamq_proto.wire import SendRunResult

from dejamq.batching import Flight, Lane, Lanes, build_run
from dejamq.call import Call
from dejamq.call_ids import CallIds
from dejamq.destinations import Destinations
from dejamq.encoding import Template
from dejamq.fault_strategy import FaultTable
from dejamq.forking import check_loop
from dejamq.fresh import Fresh, Submitted, shortcut_for
from dejamq.instance import Instance
from dejamq.message import Message, MessageQueue, SendResult
from dejamq.producer_config import ProducerConfig
from dejamq.rpc_stream import Told
from dejamq.send_hooks import SendHooks
from dejamq.send_journal import SendJournal
from dejamq.send_outcomes import Outcomes
from dejamq.sends import Sends

SWEEP_S = 0.1


class Sender:
    """Sends calls of one producer group and resolves their futures.

    Every call that was taken ends exactly once: with a result, with an error, or by its program's own
    cancellation. That includes faults of this code, which end the producer (``_broke``) instead of leaving
    futures unresolved.
    """

    def __init__(
        self, instance: Instance, config: ProducerConfig, group: str, hooks: SendHooks,
        call_ids: CallIds | None = None, plain_below: int = 0,
    ) -> None:  # fmt: skip
        """``call_ids``: those of sends that are submitted without a call; the same source as of calls.

        ``plain_below``: only bodies of fewer bytes may take the shortcut.
        """
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
        self._fresh = Fresh(call_ids or CallIds(), config.send_msg_timeout_ms / 1000, shortcut)
        self._turning = False
        self.open = True
        """False: ask the producer whether and why not, before submitting."""

    def submit_plain(self, message: Message, common: Template, mode: str) -> "asyncio.Future[SendResult]":
        """Take a send on that is nothing but its message; gives its future. Raises BacklogFull."""
        size = common.size + len(message.body)
        self._learn(message, common, common.size)
        future = self.new_future()  # first: with it garbage may go, and something of that may use this producer
        self.backlog.take(1, size)
        plain = self._fresh.plain
        if plain is None or plain.mode != mode:
            plain = self._fresh.begin(mode)
            self._turn_soon()
        plain.messages.append(message)
        plain.commons.append(common)
        plain.sizes.append(size)
        plain.futures.append(future)
        return future

    def submit(self, call: Call) -> None:
        """Take a call on; its future will be resolved. Raises BacklogFull."""
        self.backlog.take(1, call.size)
        self._fresh.add((call,))
        if not self._turning:
            self._turn_soon()

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Take calls on, all or none. Raises BacklogFull."""
        self.backlog.take(len(calls), sum(call.size for call in calls))
        self._fresh.add(calls)
        self._turn_soon()

    def refuse(self, calls: Sequence[Call], error: DejamqError) -> None:
        """End calls that were never taken on."""
        self._outcomes.tell(calls, error)

    def queue_for(self, call: Call) -> MessageQueue | None:
        """Where the batch goes that begins with this call; None while the route is not known."""
        return self._destinations.queue_for(call)

    def shut(self) -> None:
        """Take nothing more on."""
        self.open = False
        self._fresh.end_plain()

    def abandon(self, error: Callable[[bool], DejamqError]) -> None:
        """End all that is unfinished with this error (told whether it is definite): the producer closes or failed."""
        self.shut()
        if self._sweeper is not None:
            self._sweeper.cancel()
        fresh = self._fresh.as_calls(self._fresh.take())
        for call in (*self._destinations.take_parked(lambda call: True), *fresh):
            self._outcomes.end([call], error(not call.indefinite))
        for lane in self._lanes.values():
            flights, lane.in_flight = lane.in_flight, []
            for flight in flights:
                if flight.answer is not None:
                    flight.answer.cancel()
                self._outcomes.given_up(flight, error(False))
            for call in lane.take_expired(inf):
                self._outcomes.end([call], error(not call.indefinite))

    # towards the broker

    def _turn_soon(self) -> None:
        if not self._turning:
            self._turning = True
            try:
                self.loop.call_soon(self._turn)
            except RuntimeError:
                self.open = False  # the next call asks why not
                check_loop(self.loop)
                raise

    def _turn(self) -> None:
        """What was submitted in this turn of the loop gets its queues together, and leaves as lanes have room."""
        fresh = self._fresh.take()
        try:
            self._place(fresh)
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

    def _place(self, fresh: Sequence[Submitted]) -> None:
        """Give queues to what was submitted. Plain sends stay so where nothing else came in this turn."""
        plain = self._fresh.as_plain(fresh)
        if plain is None:
            self._enqueue(self._destinations.choose(self._fresh.as_calls(fresh)))
            return
        for sends in plain:
            queues = self._destinations.turns(sends)
            if queues is None:
                self._enqueue(self._destinations.choose(sends.unfold()))
                continue
            sends.queues = queues
            for name, of_broker in sends.by_broker():
                self._lanes[name].add_plain(of_broker)

    def _enqueue(self, calls: Sequence[Call]) -> None:
        self._lanes.add(calls)
        if calls:
            self._turn_soon()

    def _pump(self, lane: Lane) -> None:
        """Send runs until enough are under way."""
        sends = Sends()
        try:
            while lane.busy and len(lane.in_flight) < self._config.max_runs_in_flight:
                sends = self._outcomes.without_ended(lane.take_run())
                if sends and self._cap_s:
                    sends = Sends.of(lane.of_one_patience(sends.unfold(), self._outcomes.rule.patient))
                if sends:
                    self._depart(lane, sends)
        except Exception as error:
            if not any(flight.sends is sends for flight in lane.in_flight):
                lane.put_back(sends.unfold())
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        """A fault of our own: without this the futures concerned would never be resolved."""
        failure = DejamqError(f"the producer failed: {error!r}; close it and make a new one", definite=False)
        failure.__cause__ = error
        self._instance.fail(failure)

    def _depart(self, lane: Lane, sends: Sends) -> None:
        """Give a run its number and hand it to the connection.

        The journal's line stands before the first byte leaves.
        """
        address = self._instance.routes.master_address(lane.broker_name)
        if address is None:
            text = f"no route names an address of broker {lane.broker_name}'s master (id {MASTER_ID})"
            self._fail(sends.unfold(), BrokerUnavailable(text, definite=True))
            return
        run = build_run(
            sends, group=self._group, default_queue_nums=self._config.default_topic_queue_nums,
            born_ms=int(time() * 1000),
        )  # fmt: skip
        run.client_id, run.boot_id, run.seq = (
            self._instance.client_id, self._instance.boot_id, self._instance.next_seq(),
        )  # fmt: skip
        sends.leave()
        flight = Flight(lane, sends, run.sizes, run.seq, address, min(sends.deadlines), departed=monotonic())
        if self._cap_s and self._outcomes.rule.patient(flight.calls[0]):
            flight.patience = flight.departed + self._cap_s
        self._outcomes.leaving(flight)
        lane.in_flight.append(flight)
        flight.answer = Told(partial(self._landed, flight))
        self._instance.link(address).send_run_for(flight.answer, run)

    # from the broker

    def _landed(self, flight: Flight, answer: SendRunResult | DejamqError) -> None:
        """A run was answered or lost."""
        lane = flight.lane
        if flight not in lane.in_flight:
            return  # given up before; its calls have ended or gone elsewhere
        lane.in_flight.remove(flight)
        try:
            if isinstance(answer, DejamqError):
                again = self._outcomes.lost(flight, answer)
            else:
                again = self._outcomes.answered(flight, answer)
            if again:
                self._send_again(again)
        except Exception as fault:
            lane.in_flight.append(flight)
            self._broke(fault)
        if lane.busy:
            self._turn_soon()

    def _fail(self, calls: Sequence[Call], error: DejamqError) -> None:
        """These calls did not leave."""
        self._send_again(self._outcomes.failed(calls, error))

    def _send_again(self, calls: Iterable[Call]) -> None:
        self._enqueue(self._destinations.choose_again(tuple(calls)))

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
        """Runs under way, calls that never left, calls without a route: each fails with what is known of it."""
        for lane in tuple(self._lanes.values()):
            for flight in [flight for flight in lane.in_flight if flight.due <= now]:
                self._overdue(flight, now)
            if expired := lane.take_expired(now):
                text = f"not sent in time: {lane.broker_name} is still busy with earlier messages"
                self._outcomes.end(expired, SendTimeout(text, definite=True))
        if expired := self._destinations.take_parked(lambda call: call.deadline <= now):
            text = f"no route in time: name server {self._instance.namesrv.address} does not answer"
            self._outcomes.end(expired, SendTimeout(text, definite=True))

    def _overdue(self, flight: Flight, now: float) -> None:
        """Calls of a run under way are out of time; when all are, its place is free for the next run."""
        expired = [call for call in flight.calls if call.deadline <= now]
        error = SendTimeout(f"{flight.lane.broker_name} ({flight.address}) did not answer in time", definite=False)
        if len(expired) < len(flight.calls) and now < flight.patience:
            news = [call for call in expired if call.deadline >= flight.first_deadline and not call.ended]
            self._outcomes.tell(news, error)  # they stay in the run, whose answer counts them out
            flight.first_deadline = min(call.deadline for call in flight.calls if call.deadline > now)
            return
        flight.lane.in_flight.remove(flight)
        if flight.answer is not None:
            flight.answer.cancel()
        self._send_again(self._outcomes.lost(flight, error, "timeout"))
        if self._config.close_connection_on_timeout:
            self._instance.reconnect(flight.address, CLOSED_BY_A_TIMEOUT)
        self._turn_soon()
