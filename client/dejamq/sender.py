"""The engine of a producer: from calls to runs to results. Owned by the event loop; no task for a message.

A call waits in the lane of its broker. A lane sends while fewer than ``max_runs_in_flight`` runs are under way; its
pump runs at the end of the loop's turn, so that all sends of one turn leave together. What an answer or a failure
means is decided here at once, in plain calls.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import monotonic, time

from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout, error_for
from dejamq_proto.names import MASTER_ID
from dejamq_proto.wire import SendRunResult

from dejamq.backlog import Backlog
from dejamq.batching import Call, Flight, Lane, build_run
from dejamq.destinations import Destinations
from dejamq.instance import Instance
from dejamq.message import SendResult, SendStatus, StoredRun
from dejamq.producer_config import ProducerConfig
from dejamq.send_journal import SendJournal
from dejamq.send_retry import final_error, may_retry, outcome_of

log = logging.getLogger("dejamq")

STORED = {int(status): status for status in SendStatus}
SWEEP_S = 0.1


class Sender:
    """Sends calls of one producer group and resolves their futures.

    Every call that was taken ends exactly once: with a result, with an error, or by its program's own
    cancellation. That includes faults of this code, which end the producer (``_broke``) instead of leaving
    futures unresolved.
    """

    def __init__(self, instance: Instance, config: ProducerConfig, group: str) -> None:
        self._instance, self._config, self._group = instance, config, group
        self._loop = asyncio.get_running_loop()
        self._journal = SendJournal(instance.journal, group, config.journal_business_key)
        self._lanes: dict[str, Lane] = {}
        self._destinations = Destinations(instance, routed=self._enqueue, failed=self._fail)
        self._sweeper: asyncio.TimerHandle | None = None
        self.backlog = Backlog(config.max_pending_bytes)
        self.new_future: Callable[[], asyncio.Future[SendResult]] = self._loop.create_future
        self.open = True
        """False: ask the producer whether and why not, before submitting."""

    def submit(self, call: Call) -> None:
        """Take a call on; its future will be resolved. Raises BacklogFull."""
        self.backlog.take(1, call.size)
        self._route(call)

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Take calls on, all or none. Raises BacklogFull."""
        self.backlog.take(len(calls), sum(call.size for call in calls))
        for call in calls:
            self._route(call)

    def _route(self, call: Call) -> None:
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        if self._destinations.choose(call) is not None:
            self._enqueue(call)

    def abandon(self, error: Callable[[bool], DejamqError]) -> None:
        """End all that is unfinished with this error (told whether it is definite): the producer closes or failed."""
        self.open = False
        if self._sweeper is not None:
            self._sweeper.cancel()
        for call in self._destinations.take_parked(lambda call: True):
            self._end([call], error(not call.indefinite))
        for lane in self._lanes.values():
            flights, lane.in_flight = lane.in_flight, []
            for flight in flights:
                if flight.future is not None:
                    flight.future.cancel()
                self._journal.result(flight, error(False), "timeout")
                self._end(flight.calls, error(False))
            for call in lane.take_expired(inf):
                self._end([call], error(not call.indefinite))

    # towards the broker

    def _enqueue(self, call: Call) -> None:
        """Encode for the chosen queue and let the lane go on."""
        queue = call.queue
        assert queue is not None
        call.record = call.common.record.encode(queue.queue_id, int(time() * 1000), call.message.body, call.properties)
        lane = self._lanes.get(queue.broker_name)
        if lane is None:
            lane = self._lanes[queue.broker_name] = Lane(queue.broker_name)
        lane.add(call)
        if not lane.pumping and len(lane.in_flight) < self._config.max_runs_in_flight:
            self._pump_soon(lane)

    def _pump_soon(self, lane: Lane) -> None:
        if lane.waiting and not lane.pumping:
            lane.pumping = True
            self._loop.call_soon(self._pump, lane)

    def _pump(self, lane: Lane) -> None:
        """Send runs until enough are under way."""
        lane.pumping = False
        calls: list[Call] = []
        try:
            while lane.waiting and len(lane.in_flight) < self._config.max_runs_in_flight:
                calls = self._without_ended(lane.take_run())
                if calls:
                    self._depart(lane, calls)
        except Exception as error:
            if not any(flight.calls is calls for flight in lane.in_flight):
                lane.put_back(calls)
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        """A fault of our own: without this the futures concerned would never be resolved."""
        failure = DejamqError(f"the producer failed: {error!r}; close it and make a new one", definite=False)
        failure.__cause__ = error
        self._instance.fail(failure)

    def _depart(self, lane: Lane, calls: list[Call]) -> None:
        """Give a run its number and hand it to the connection.

        The journal's line stands before the first byte leaves.
        """
        address = self._instance.routes.master_address(lane.broker_name)
        if address is None:
            text = f"no route names an address of broker {lane.broker_name}'s master (id {MASTER_ID})"
            self._fail(calls, BrokerUnavailable(text, definite=True))
            return
        run = build_run(calls, group=self._group, default_queue_nums=self._config.default_topic_queue_nums)
        run.client_id, run.boot_id, run.seq = (
            self._instance.client_id, self._instance.boot_id, self._instance.next_seq(),
        )  # fmt: skip
        for call in calls:
            call.tries += 1
        first_deadline = min(call.deadline for call in calls)
        flight = Flight(lane, calls, run.sizes, run.seq, address, first_deadline)
        self._journal.leaving(flight)
        lane.in_flight.append(flight)
        flight.future = self._instance.link(address).send_run(run)
        flight.future.add_done_callback(partial(self._landed, flight))

    def _without_ended(self, calls: list[Call]) -> list[Call]:
        """Drop calls whose program cancelled them before they left."""
        ended = [call for call in calls if call.ended]
        if not ended:
            return calls
        self.backlog.give_back(len(ended), sum(call.size for call in ended))
        return [call for call in calls if not call.ended]

    # from the broker

    def _landed(self, flight: Flight, future: "asyncio.Future[SendRunResult]") -> None:
        """A run was answered or lost."""
        lane = flight.lane
        if flight not in lane.in_flight:
            return  # given up before; its calls have ended
        lane.in_flight.remove(flight)
        try:
            error = future.exception()
            if error is None:
                self._answered(flight, future.result())
            else:
                failure = error if isinstance(error, DejamqError) else DejamqError(f"{flight.address}: {error!r}")
                self._journal.result(flight, failure, outcome_of(failure))
                self._fail(flight.calls, failure)
        except Exception as fault:
            lane.in_flight.append(flight)
            self._broke(fault)
        self._pump_soon(lane)

    def _answered(self, flight: Flight, answer: SendRunResult) -> None:
        """What the broker's word means: stored, refused, or nonsense, which counts as unknown because it may be
        stored.
        """
        status = STORED.get(answer.code)
        if status is None:
            failure = error_for(answer.code, f"{flight.lane.broker_name} ({flight.address}): {answer.remark}")
            self._journal.result(flight, failure, "refused")
            self._refused(flight, answer.bad_record, failure)
        elif len(answer.queue_offsets) != len(flight.calls) or not len(answer.span_starts):
            failure = DejamqError(f"{flight.address} answered without the places of {len(flight.calls)} messages")
            self._journal.result(flight, failure, "refused")
            self._fail(flight.calls, failure)
        else:
            self._journal.stored(flight, status)
            self._stored(flight, answer, status)

    def _stored(self, flight: Flight, answer: SendRunResult, status: SendStatus) -> None:
        """Give every call its result; one less durable than asked goes again where the settings say so."""
        calls = flight.calls
        if status is not SendStatus.SEND_OK and self._config.retry_another_broker_when_not_store_ok:
            error = error_for(Code.SYSTEM_BUSY, f"{flight.lane.broker_name}: {status.name}", definite=False)
            again = [call for call in calls if self._may_retry(call, error)]
            if len(again) == len(calls):
                self._fail(calls, error)
                return
        place = StoredRun(answer, flight.sizes)
        offsets = answer.queue_offsets.tolist()
        size = 0
        for index, call in enumerate(calls):
            size += call.size
            future = call.future
            if future is not None and not future.done():
                assert call.queue is not None
                future.set_result(SendResult(status, call.message.message_id, call.queue, offsets[index], place, index))
        self.backlog.give_back(len(calls), size)

    def _refused(self, flight: Flight, bad_record: int, error: DejamqError) -> None:
        """Nothing of the run is stored. The record at fault fails; the others go again, uncounted."""
        calls = flight.calls
        if not 0 <= bad_record < len(calls) or calls[0].batch:
            self._fail(calls, error)
            return
        flight.lane.put_back(calls[:bad_record] + calls[bad_record + 1 :])
        self._fail([calls[bad_record]], error)

    # failures

    def _fail(self, calls: Sequence[Call], error: DejamqError) -> None:
        """Send again what may be, end the rest with the error."""
        again = [call for call in calls if not call.ended and self._may_retry(call, error)]
        for call in again:
            call.retries += 1
            call.indefinite |= not error.definite
        kept = set(map(id, again))
        self._end([call for call in calls if id(call) not in kept], error)
        for call in self._destinations.choose_again(again):
            self._enqueue(call)

    def _may_retry(self, call: Call, error: DejamqError) -> bool:
        return may_retry(call, error, now=monotonic(), retry_times=self._config.retry_times_when_send_failed)

    def _end(self, calls: Sequence[Call], error: DejamqError) -> None:
        """These calls failed for good."""
        if not calls:
            return
        self._tell([call for call in calls if not call.ended], error)
        self.backlog.give_back(len(calls), sum(call.size for call in calls))

    def _tell(self, calls: Sequence[Call], error: DejamqError) -> None:
        """Give the error to whoever waits."""
        self._journal.failed(calls, error)
        for call in calls:
            if call.future is not None:
                call.future.set_exception(final_error(call, error))
        if any(call.future is None for call in calls):
            log.warning("oneway_failed group=%s messages=%d reason=%s", self._group, len(calls), error)

    # time

    def _sweep(self) -> None:
        """Find what ran out of its budget: one look at a time for all messages."""
        self._sweeper = None
        try:
            self._end_overdue(monotonic())
        except Exception as fault:
            self._broke(fault)
        if self.backlog.calls:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _end_overdue(self, now: float) -> None:
        """Runs under way, calls that never left, calls without a route: each fails with what is known of it."""
        for lane in self._lanes.values():
            for flight in [flight for flight in lane.in_flight if flight.first_deadline <= now]:
                self._overdue(flight, now)
            if expired := lane.take_expired(now):
                text = f"not sent in time: {lane.broker_name} is still busy with earlier messages"
                self._end(expired, SendTimeout(text, definite=True))
        if expired := self._destinations.take_parked(lambda call: call.deadline <= now):
            text = f"no route in time: name server {self._instance.namesrv.address} does not answer"
            self._end(expired, SendTimeout(text, definite=True))

    def _overdue(self, flight: Flight, now: float) -> None:
        """Calls of a run under way are out of time; when all are, its place is free for the next run."""
        expired = [call for call in flight.calls if call.deadline <= now]
        error = SendTimeout(f"{flight.lane.broker_name} ({flight.address}) did not answer in time", definite=False)
        if len(expired) < len(flight.calls):
            news = [call for call in expired if call.deadline >= flight.first_deadline and not call.ended]
            self._tell(news, error)  # they stay in the run, whose answer counts them out
            flight.first_deadline = min(call.deadline for call in flight.calls if call.deadline > now)
            return
        flight.lane.in_flight.remove(flight)
        flight.future.cancel()
        self._journal.result(flight, error, "timeout")
        self._end(expired, error)
        if self._config.close_connection_on_timeout:
            self._instance.link(flight.address).break_sends("closed after a time-out")
        self._pump_soon(flight.lane)
