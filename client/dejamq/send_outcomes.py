"""What becomes of calls: results, errors and further tries; each call ends here, once. Owned by the event loop.

Nothing here waits and nothing is sent: what a run's answer or failure means is decided at once, and the calls that go
again are given back to the sender.
"""

import logging
from collections.abc import Sequence
from itertools import compress, count, repeat
from time import monotonic

import msgspec
from dejamq_proto.codes import Code, DejamqError, error_for
from dejamq_proto.wire import SendRunResult

from dejamq.backlog import Backlog
from dejamq.batching import Flight
from dejamq.call import Call
from dejamq.fault_strategy import FaultTable
from dejamq.message import MessageQueue, SendResult, SendStatus, StoredRun
from dejamq.namespace import unwrap, unwrap_queue
from dejamq.producer_config import ProducerConfig
from dejamq.send_hooks import SendContext, SendHooks
from dejamq.send_journal import SendJournal
from dejamq.send_retry import TRANSPORT, RetryRule, final_error, outcome_of
from dejamq.sends import Sends

log = logging.getLogger("dejamq")

STORED = {int(status): status for status in SendStatus}


class Outcomes:
    """Ends the calls of one producer group; ``faults`` and ``hooks`` learn of every run that returned."""

    def __init__(
        self, config: ProducerConfig, group: str, journal: SendJournal, hooks: SendHooks, faults: FaultTable | None
    ) -> None:
        self._config, self._group, self._journal, self._hooks, self._faults = config, group, journal, hooks, faults
        self.backlog = Backlog(config.max_pending_bytes)
        asynchronous = config.retry_times_when_send_async_failed
        self.rule = RetryRule(
            config.retry_times_when_send_failed, config.retriable, None if asynchronous < 0 else asynchronous
        )

    def without_ended(self, sends: Sends) -> Sends:
        """Drop those whose program cancelled them before they left."""
        if not sends.any_ended:
            return sends
        ended = [call for call in sends.unfold() if call.ended]
        self.backlog.give_back(len(ended), sum(call.size for call in ended))
        return Sends.of([call for call in sends.unfold() if not call.ended])

    def leaving(self, flight: Flight) -> None:
        """A run is about to leave."""
        if self._hooks:
            flight.contexts = [self._context(flight, call) for call in flight.calls]
            self._hooks.before(flight.contexts)
        self._journal.leaving(flight)

    def answered(self, flight: Flight, answer: SendRunResult) -> list[Call]:
        """What the broker's word means: stored, refused, or nonsense, which counts as unknown because it may be
        stored. Gives the calls that go again.
        """
        status = STORED.get(answer.code)
        if status is None:
            failure = error_for(answer.code, f"{flight.lane.broker_name} ({flight.address}): {answer.remark}")
            self._returned(flight, failure, "refused")
            return self._refused(flight, answer.bad_record, failure)
        if len(answer.queue_offsets) != len(flight.sends) or not len(answer.span_starts):
            failure = DejamqError(f"{flight.address} answered without the places of {len(flight.sends)} messages")
            self._returned(flight, failure, "refused")
            return self.failed(flight.calls, failure)
        self._journal.stored(flight, status)
        if self._faults is not None:
            now = monotonic()
            self._faults.update(flight.lane.broker_name, (now - flight.departed) * 1000, now_ms=now * 1000)
        return self._stored(flight, answer, status)

    def lost(self, flight: Flight, error: DejamqError, outcome: str = "") -> list[Call]:
        """A run will have no answer any more. Gives the calls that go again."""
        self._returned(flight, error, outcome or outcome_of(error))
        return self.failed(flight.calls, error)

    def given_up(self, flight: Flight, error: DejamqError) -> None:
        """The producer ends, and nothing goes again."""
        self._returned(flight, error, "timeout")
        self.end(flight.calls, error)

    def failed(self, calls: Sequence[Call], error: DejamqError) -> list[Call]:
        """End the calls that may not be tried again with the error; gives the others."""
        now = monotonic()
        again = [call for call in calls if not call.ended and self.rule.again(call, error, now)]
        for call in again:
            call.retries += 1
            call.indefinite |= not error.definite
        kept = set(map(id, again))
        self.end([call for call in calls if id(call) not in kept], error)
        return again

    def end(self, calls: Sequence[Call], error: DejamqError) -> None:
        """These calls failed for good."""
        if calls:
            self.tell([call for call in calls if not call.ended], error)
            self.backlog.give_back(len(calls), sum(call.size for call in calls))

    def tell(self, calls: Sequence[Call], error: DejamqError) -> None:
        """Give the error to whoever waits; or the place where an earlier try is stored after all."""
        for call in calls:
            if call.kept is not None and call.future is not None:
                call.future.set_result(call.kept)
        failed = [call for call in calls if call.kept is None]
        self._journal.failed(failed, error)
        for call in failed:
            if call.future is not None:
                call.future.set_exception(final_error(call, error))
        if any(call.future is None for call in failed):
            log.warning("oneway_failed group=%s messages=%d reason=%s", self._group, len(failed), error)

    # a run that returned

    def _stored(self, flight: Flight, answer: SendRunResult, status: SendStatus) -> list[Call]:
        """Give every call its result; one less durable than asked goes again where the settings say so."""
        results = self._results(flight, answer, status)
        if flight.contexts:
            self._tell_hooks(flight, results, None)
        sends, again = flight.sends, []
        if status is not SendStatus.SEND_OK and self._config.retry_another_broker_when_not_store_ok:
            again = self._not_ok(flight, results)
            kept = set(map(id, again))
            stays = [id(call) not in kept for call in flight.calls]
            sends, results = sends.pick(lambda column: list(compress(column, stays))), list(compress(results, stays))
        sends.tell(results)
        self.backlog.give_back(len(sends), sum(sends.sizes))
        return again

    def _results(self, flight: Flight, answer: SendRunResult, status: SendStatus) -> list[SendResult]:
        """By ``map``, without a step of Python for each: this is done for every message."""
        queues = flight.sends.queues
        if self._config.namespace:
            queues = list(map(self._seen, queues))
        place = repeat(StoredRun(answer, flight.sizes))
        ids, offsets = flight.sends.message_ids, answer.queue_offsets.tolist()
        return list(map(SendResult, repeat(status), ids, queues, offsets, place, count()))

    def _not_ok(self, flight: Flight, results: Sequence[SendResult]) -> list[Call]:
        """Calls of a run that is stored, but not as it should be; they keep what they have.

        RocketMQ: when no other broker takes the message either, the caller gets the first result.
        """
        error = DejamqError(f"{flight.lane.broker_name}: {results[0].status.name}", code=Code.SYSTEM_ERROR)
        rule = msgspec.structs.replace(self.rule, codes=frozenset({error.code}))
        now, again = monotonic(), []
        for call, result in zip(flight.calls, results, strict=True):
            if not call.ended and rule.again(call, error, now):
                call.retries += 1
                call.indefinite, call.kept = True, call.kept or result
                again.append(call)
        return again

    def _refused(self, flight: Flight, bad_record: int, error: DejamqError) -> list[Call]:
        """Nothing of the run is stored. The record at fault fails; the others go again, uncounted."""
        calls = flight.calls
        if not 0 <= bad_record < len(calls) or calls[0].batch:
            return self.failed(calls, error)
        flight.lane.put_back(calls[:bad_record] + calls[bad_record + 1 :])
        return self.failed([calls[bad_record]], error)

    def _returned(self, flight: Flight, error: DejamqError, outcome: str) -> None:
        """Tell the journal, the hooks and the fault table, which isolates the broker.

        RocketMQ takes a broker that refuses for unreachable; one that cannot be reached only if the detector
        runs, because nothing else would find out that it is back.
        """
        self._journal.result(flight, error, outcome)
        if flight.contexts:
            self._tell_hooks(flight, (), error)
        if self._faults is not None:
            now = monotonic()
            unreachable = error.code not in TRANSPORT or self._config.start_detector_enable
            self._faults.update(
                flight.lane.broker_name, (now - flight.departed) * 1000, now_ms=now * 1000, isolated=True,
                reachable=not unreachable,
            )  # fmt: skip

    def _tell_hooks(self, flight: Flight, results: Sequence[SendResult], error: DejamqError | None) -> None:
        for index, context in enumerate(flight.contexts):
            context.result, context.error = (results[index] if results else None), error
        self._hooks.after(flight.contexts)

    def _context(self, flight: Flight, call: Call) -> SendContext:
        """What a hook is told of one try, in the program's own names."""
        namespace, message = self._config.namespace, call.message
        if namespace:
            message = msgspec.structs.replace(message, topic=unwrap(namespace, message.topic))
        return SendContext(
            unwrap(namespace, self._group), message, self._seen(call.queue), flight.address, call.tries,
            call.future is None,
        )  # fmt: skip

    def _seen(self, queue: MessageQueue | None) -> MessageQueue:
        """The queue as the program knows it."""
        assert queue is not None
        return unwrap_queue(self._config.namespace, queue)
