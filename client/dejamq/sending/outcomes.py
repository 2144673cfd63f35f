"""The outcomes of sends: results, errors and further tries; each send ends here, once. Owned by the event loop.

Nothing here waits and nothing is sent. A run's answer or failure is judged at once, and the sends that go again are
given back to the sender.
"""

import logging
from collections.abc import Sequence
from itertools import compress, count, repeat
from time import monotonic

import msgspec
from dejamq_proto.codes import Code, DejamqError, error_for
from dejamq_proto.wire.messages import SendRunResult

from dejamq.sending.backlog import Backlog
from dejamq.sending.batching import Flight
from dejamq.sending.fault_strategy import FaultTable
from dejamq.sending.hooks import SendContext, SendHooks
from dejamq.sending.journal import SendJournal
from dejamq.sending.retry import TRANSPORT, RetryRule, final_error, outcome_of
from dejamq.sending.sends import Sends
from dejamq.values.message import MessageQueue, SendResult, SendStatus, StoredRun
from dejamq.values.namespace import unwrap, unwrap_queue
from dejamq.values.producer_config import ProducerConfig

log = logging.getLogger("dejamq")

STORED = {int(status): status for status in SendStatus}


class Outcomes:
    """Ends the sends of one producer group; ``faults`` and ``hooks`` learn of every run that returned."""

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
        ended, others = sends.divide(sends.ended)
        self.backlog.give_back(len(ended), sum(ended.sizes))
        return others

    def leaving(self, flight: Flight) -> None:
        """A run is about to leave."""
        if self._hooks:
            flight.contexts = self._contexts(flight)
            self._hooks.before(flight.contexts)
        self._journal.leaving(flight)

    def answered(self, flight: Flight, answer: SendRunResult) -> Sends:
        """The meaning of the broker's answer: stored, refused, or nonsense. Nonsense counts as unknown because the
        message may be stored. Gives those that go again.
        """
        status = STORED.get(answer.code)
        if status is None:
            failure = error_for(answer.code, f"{flight.lane.broker_name} ({flight.address}): {answer.remark}")
            self._returned(flight, failure, "refused")
            return self._refused(flight, answer.bad_record, failure)
        if len(answer.queue_offsets) != len(flight.sends) or not len(answer.span_starts):
            failure = DejamqError(f"{flight.address} answered without the places of {len(flight.sends)} messages")
            self._returned(flight, failure, "refused")
            return self.failed(flight.sends, failure)
        self._journal.stored(flight, status)
        if self._faults is not None:
            now = monotonic()
            self._faults.update(flight.lane.broker_name, (now - flight.departed) * 1000, now_ms=now * 1000)
        return self._stored(flight, answer, status)

    def lost(self, flight: Flight, error: DejamqError, outcome: str = "") -> Sends:
        """A run will have no answer any more. Gives those that go again."""
        self._returned(flight, error, outcome or outcome_of(error))
        return self.failed(flight.sends, error)

    def given_up(self, flight: Flight, error: DejamqError) -> None:
        """The producer ends, and nothing goes again."""
        self._returned(flight, error, "timeout")
        self.end(flight.sends, error)

    def failed(self, sends: Sends, error: DejamqError) -> Sends:
        """End those that may not be tried again with the error; gives the others."""
        again, over = sends.divide(_again(self.rule, sends, error))
        self.end(over, error)
        again.retries += 1
        again.indefinite |= not error.definite
        return again

    def end(self, sends: Sends, error: DejamqError) -> None:
        """These failed for good."""
        if sends:
            self.tell(sends, error)
            self.backlog.give_back(len(sends), sum(sends.sizes))

    def tell(self, sends: Sends, error: DejamqError) -> None:
        """Give those who still wait the error; or the place where an earlier try is stored after all."""
        _, sends = sends.divide(sends.ended)
        kept, failed = sends.divide([extra is not None and extra.kept is not None for extra in sends.each_extra])
        kept.tell([extra.kept for extra in kept.extras if extra is not None and extra.kept is not None])
        self._journal.failed(failed, error)
        for message_id, future in zip(failed.message_ids, failed.futures, strict=True):
            if future is not None:
                future.set_exception(final_error(message_id, failed, error))
        if None in failed.futures:
            log.warning("oneway_failed group=%s messages=%d reason=%s", self._group, len(failed), error)

    # a run that returned

    def _stored(self, flight: Flight, answer: SendRunResult, status: SendStatus) -> Sends:
        """Give every send its result; one less durable than asked goes again where the settings say so."""
        results = self._results(flight, answer, status)
        if flight.contexts:
            self._tell_hooks(flight, results, None)
        sends, again = flight.sends, Sends()
        if status is not SendStatus.SEND_OK and self._config.retry_another_broker_when_not_store_ok:
            goes = self._not_ok(flight, results[0].status)
            again, sends = sends.divide(goes)
            again.keep(list(compress(results, goes)))
            again.retries += 1
            again.indefinite = True
            results = [result for result, one in zip(results, goes, strict=True) if not one]
        sends.tell(results)
        self.backlog.give_back(len(sends), sum(sends.sizes))
        return again

    def _results(self, flight: Flight, answer: SendRunResult, status: SendStatus) -> list[SendResult]:
        """By ``map``, without a step of Python for each: this is done for every message."""
        queues = self._places(flight, answer) if len(answer.duplicates) else flight.sends.queues
        if self._config.namespace:
            queues = list(map(self._seen, queues))
        place = repeat(StoredRun(answer, flight.sizes))
        ids, offsets = flight.sends.message_ids, answer.queue_offsets.tolist()
        return list(map(SendResult, repeat(status), ids, queues, offsets, place, count()))

    def _places(self, flight: Flight, answer: SendRunResult) -> list[MessageQueue]:
        """The queues where messages are, some of which were stored before."""
        return [
            msgspec.structs.replace(queue, queue_id=queue_id)
            for queue, queue_id in zip(flight.sends.queues, answer.queue_ids.tolist(), strict=True)
        ]

    def _not_ok(self, flight: Flight, status: SendStatus) -> list[bool]:
        """Which of a run that is stored, but not as it should be, go again.

        RocketMQ: when no other broker takes the message either, the caller gets the first result.
        """
        error = DejamqError(f"{flight.lane.broker_name}: {status.name}", code=Code.SYSTEM_ERROR)
        rule = msgspec.structs.replace(self.rule, codes=frozenset({error.code}))
        return _again(rule, flight.sends, error)

    def _refused(self, flight: Flight, bad_record: int, error: DejamqError) -> Sends:
        """Nothing of the run is stored. The record at fault fails; the others go again, uncounted."""
        sends = flight.sends
        if not 0 <= bad_record < len(sends) or sends.whole:
            return self.failed(sends, error)
        bad, others = sends.divide([number == bad_record for number in range(len(sends))])
        flight.lane.put_back(others)
        return self.failed(bad, error)

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

    def _contexts(self, flight: Flight) -> list[SendContext]:
        """The reports of one try to a hook, in the program's own names."""
        namespace, sends, contexts = self._config.namespace, flight.sends, []
        for message, queue, future in zip(sends.messages, sends.queues, sends.futures, strict=True):
            if namespace:
                message = msgspec.structs.replace(message, topic=unwrap(namespace, message.topic))
            contexts.append(
                SendContext(
                    unwrap(namespace, self._group), message, self._seen(queue), flight.address, sends.tries,
                    future is None,
                )
            )  # fmt: skip
        return contexts

    def _seen(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the program knows it."""
        return unwrap_queue(self._config.namespace, queue)


def _again(rule: RetryRule, sends: Sends, error: DejamqError) -> list[bool]:
    """Which go again by the rule, and have not ended meanwhile."""
    may = rule.again(sends, error, monotonic())
    return [one and not ended for one, ended in zip(may, sends.ended, strict=True)]
