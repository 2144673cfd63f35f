"""A broker of taskiq: tasks are messages of a topic, workers are members of a group. Needs ``dejamq[taskiq]``.

Workers receive as a ``SimpleConsumer``: a task belongs to one worker for a time, which is renewed while it runs, and is
acknowledged by itself. Labels: ``delay``, ``keys``, ``dedup_id``, ``retry_on_error``, ``max_retries``.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from dejamq_proto.codes import BrokerUnavailable, ClientClosed, ConfigError, DejamqError, SendTimeout
from dejamq_proto.names import check_group, check_sendable

from dejamq.clients.producer import Producer
from dejamq.integrations.task_deliveries import TaskDeliveries, TaskDelivery
from dejamq.rebalance.consume_from import ConsumeFrom
from dejamq.receiving.received import ReceivedMessage
from dejamq.simple.consumer import LONGEST_INVISIBLE_MS, MOST_MESSAGES, SimpleConsumer
from dejamq.values.config import ClientConfig, client_config
from dejamq.values.message import Message

try:
    from taskiq import (
        AckableMessage,
        AsyncBroker,
        BrokerMessage,
        NoResultError,
        TaskiqMessage,
        TaskiqMiddleware,
        TaskiqResult,
    )
    from taskiq.exceptions import TaskRejectedError
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "taskiq":
        raise
    raise ModuleNotFoundError("dejamq's broker for taskiq needs taskiq: pip install 'dejamq[taskiq]'") from error

__all__ = ["DejamqBroker"]

log = logging.getLogger("dejamq.integrations.tasks")
ATTEMPT, MESSAGE_ID, DELIVERY = "dejamq_attempt", "dejamq_message_id", "dejamq_delivery"
"""Labels of a received task: its tries with this one, and what names it in messages and journals."""
REPEATS = ("_retries", "X-Taskiq-requeue")
"""Labels in which taskiq counts the sends of one task that it means."""
PAUSE_S = 1.0
RECEIVE_MS = 500
"""Of one receive. A stop waits for its end: a receive that is cancelled may have been given tasks."""


class DejamqBroker(AsyncBroker):
    """Sends tasks as messages of ``topic``; workers are members of ``group``. At least once.

    A task is acknowledged when taskiq says so (``--ack-type``): by default after its result is saved. Until then it is
    kept from other workers for ``invisible_ms``, renewed at half of it. The tasks of a worker that dies come again when
    that is over, those of a worker that is stopped at once. Belongs to one event loop.
    """

    def __init__(
        self, topic: str = "taskiq", *, group: str = "taskiq", namesrv: str | Sequence[str] | None = None,
        invisible_ms: int = 30_000, retry_on_error: bool = False, retry_delay_ms: int | None = None,
        receive_at_once: int = 1, **settings: Any,
    ) -> None:  # fmt: skip
        """``retry_on_error``: a task that fails comes again after ``retry_delay_ms``; its label of that name counts
        before it. The delay is at most a third of ``invisible_ms``, its default: a later end is a renewal.
        ``receive_at_once``: more than 1 is quicker for short tasks, and takes tasks that wait here while other workers
        are idle. ``settings`` are fields of ``ClientConfig``, for producer and consumer.

        Raises ConfigError, InvalidName.
        """
        super().__init__()
        check_sendable(topic)
        check_group(group)
        client_config(ClientConfig, namesrv, settings)
        _check_number("invisible_ms", invisible_ms, 1_000, LONGEST_INVISIBLE_MS)
        longest_ms = invisible_ms // 3
        retry_delay_ms = longest_ms if retry_delay_ms is None else retry_delay_ms
        _check_number("retry_delay_ms", retry_delay_ms, 0, longest_ms)
        _check_number("receive_at_once", receive_at_once, 1, MOST_MESSAGES)
        self.topic, self.group = topic, group
        self._settings = {"namesrv": namesrv, **settings}
        self._invisible_ms, self._retry_delay_ms = invisible_ms, retry_delay_ms
        self._receive_at_once = receive_at_once
        self._producer: Producer | None = None
        self._consumer: SimpleConsumer | None = None
        self._asked: asyncio.Task[list[ReceivedMessage]] | None = None
        self._deliveries = TaskDeliveries()
        self.add_middlewares(_Outcomes(self._deliveries, retry_on_error=retry_on_error, retry_delay_ms=retry_delay_ms))

    # life

    async def startup(self) -> None:
        """Ready to send; a worker receives from ``listen`` on. May be called twice. Raises BrokerUnavailable."""
        if self._producer is None:
            self._producer = Producer(self.group, **self._settings)
            await self._producer.start()
        await super().startup()

    async def shutdown(self) -> None:
        """What this worker has in hand goes to others at once; then the clients leave. May be called twice."""
        try:
            await super().shutdown()
        finally:
            consumer, self._consumer = self._consumer, None
            producer, self._producer = self._producer, None
            if consumer is not None:
                await self._take_late(consumer)
            if left := await self._deliveries.give_all_back():
                log.warning("tasks_given_back count=%d: they had not ended; other workers execute them", left)
            for client in (consumer, producer):
                if client is not None:
                    await client.close()

    # sending

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. Raises what ``Producer.send`` raises, ConfigError for bad labels or before ``startup``."""
        if self._producer is None:
            raise ConfigError("start the broker first: await broker.startup()")
        result = await self._producer.send(_message(self.topic, message))
        if result.duplicate:
            log.info("task_not_sent_again task_id=%s: its dedup_id was sent before", message.task_id)

    # receiving

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Tasks, until the broker is shut down. Raises BrokerUnavailable when no name server answers at the start.

        Later failures of brokers are logged and waited for. A message that is no task, or a task that this worker does
        not know, is given back, and a dead letter after the group's tries.
        """
        consumer = await self._started_consumer()
        waiting: deque[TaskDelivery] = deque()
        try:
            while not consumer.closed:
                for message in await self._received(consumer):
                    waiting.append(self._deliveries.take(consumer, message, self._invisible_ms))
                while waiting:
                    delivery = waiting.popleft()
                    data = self._task_of(delivery)
                    if data is None:
                        await delivery.give_back(self._retry_delay_ms)
                    else:
                        yield AckableMessage(data=data, ack=delivery.settle)
        finally:
            for delivery in waiting:
                await delivery.give_back(0)

    async def _started_consumer(self) -> SimpleConsumer:
        if self._consumer is None:
            consumer = SimpleConsumer(self.group, consume_from=ConsumeFrom.FIRST_OFFSET, **self._settings)
            consumer.subscribe(self.topic)
            await consumer.start()
            self._consumer = consumer
        return self._consumer

    async def _received(self, consumer: SimpleConsumer) -> list[ReceivedMessage]:
        if self._asked is None:
            asking = consumer.receive(
                max_messages=self._receive_at_once, invisible_ms=self._invisible_ms, timeout_ms=RECEIVE_MS
            )
            self._asked = asyncio.get_running_loop().create_task(asking)
        try:
            found = await asyncio.shield(self._asked)
        except ClientClosed:
            found = []
        except DejamqError as error:
            self._asked = None
            if not (error.retriable or isinstance(error, BrokerUnavailable | SendTimeout)):
                raise
            log.warning("no_tasks_received topic=%s: tried again: %s", self.topic, error)
            await asyncio.sleep(PAUSE_S)
            return []
        self._asked = None
        return found

    async def _take_late(self, consumer: SimpleConsumer) -> None:
        """What a receive brings that nobody waits for any more is in hand too."""
        asked, self._asked = self._asked, None
        for outcome in await asyncio.gather(*([asked] if asked else []), return_exceptions=True):
            for message in outcome if isinstance(outcome, list) else ():
                self._deliveries.take(consumer, message, self._invisible_ms)

    def _task_of(self, delivery: TaskDelivery) -> bytes | None:
        """As taskiq reads it, with the labels that a delivery adds. None: it is nothing that this worker can do."""
        message = delivery.message
        try:
            task = self.formatter.loads(message.body)
        except Exception as error:  # whatever the formatter raises: anybody may send to the topic
            log.error("no_task message_id=%s: given back: %s", message.message_id, error)
            return None
        if self.find_task(task.task_name) is None:
            log.error("unknown_task name=%s: given back; start the worker with its module", task.task_name)
            return None
        task.labels |= {ATTEMPT: delivery.attempt, MESSAGE_ID: message.message_id, DELIVERY: message.delivery_number}
        return self.formatter.dumps(task).message


class _Outcomes(TaskiqMiddleware):
    """Decides what settling does: a task that failed and is to be tried again is given back."""

    def __init__(self, deliveries: TaskDeliveries, *, retry_on_error: bool, retry_delay_ms: int) -> None:
        super().__init__()
        self._deliveries, self._retry_on_error, self._retry_delay_ms = deliveries, retry_on_error, retry_delay_ms

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """taskiq calls it in the asyncio task that executes this one, saves its result and acknowledges it."""
        delivery, execution = self._deliveries.get(message.labels.get(DELIVERY)), asyncio.current_task()
        if delivery is not None and execution is not None:
            delivery.run_by(execution)
        return message

    def on_error(self, message: TaskiqMessage, result: "TaskiqResult[Any]", exception: BaseException) -> None:
        """A try that is repeated has no result."""
        delivery = self._deliveries.get(message.labels.get(DELIVERY))
        if delivery is None:  # acknowledged before: taskiq's --ack-type when_received
            return
        if not isinstance(exception, Exception):  # cancelled, which is no outcome of the task
            delivery.again_ms = 0
        elif isinstance(exception, NoResultError | TaskRejectedError) or isinstance(result.error, NoResultError):
            return  # the program, or another middleware, has decided about it
        elif self._comes_again(message.labels, delivery.attempt):
            delivery.again_ms = self._retry_delay_ms
        else:
            return
        result.error = NoResultError()

    def _comes_again(self, labels: Mapping[str, Any], attempt: int) -> bool:
        wanted, most = labels.get("retry_on_error", self._retry_on_error), labels.get("max_retries")
        return str(wanted).lower() == "true" and (most is None or attempt < float(most))


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} is {least} to {most}, not {value!r}")


def _message(topic: str, task: BrokerMessage) -> Message:
    """A task as a message: its name is the tag, its id the first key. Raises ConfigError for bad labels."""
    labels = task.labels
    _number(labels, "max_retries", "executions")
    delay_s = _number(labels, "delay", "seconds")
    return Message(
        topic,
        task.message,
        tags=task.task_name,
        keys=[task.task_id, *str(labels.get("keys", "")).split()],
        delay_ms=round(delay_s * 1000) if delay_s else None,
        dedup_id=_dedup_id(labels),
    )


def _number(labels: Mapping[str, Any], name: str, unit: str) -> float | None:
    """Raises ConfigError."""
    if labels.get(name) is None:
        return None
    try:
        value = float(str(labels[name]))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"the label {name} is a number of {unit}, not {labels[name]!r}")
    return value


def _dedup_id(labels: Mapping[str, Any]) -> str | None:
    """A repeat that taskiq means is another message; the same repeat sent twice is not."""
    if labels.get("dedup_id") is None:
        return None
    return " ".join([str(labels["dedup_id"]), *(f"{name}={labels[name]}" for name in REPEATS if name in labels)])
