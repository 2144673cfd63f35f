"""How a client is at this moment, as an operator asks for it through a broker.

Source: RocketMQ ``ConsumerRunningInfo``, ``ProcessQueueInfo``; the names of the properties are its own.
"""

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.config.settings import shown
from dejamq_proto.running_pb2 import ClientInfo, ConsumeStatusInfo, ProcessQueueInfo, SubscriptionInfo

from dejamq.net.instance import VERSION, Instance
from dejamq.net.waits import driven_by
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.statistics import Statistics

MOST_STACKS = 200
MOST_TEXT = 256 << 10
RATES = ("pull_rt_ms", "pull_tps", "consume_rt_ms", "consume_ok_tps", "consume_failed_tps", "consume_failed_msgs")


def client_info(instance: Instance, *, state: Mapping[str, object], stacks: bool) -> ClientInfo:
    """The report of every client; ``state`` holds the numbers of this moment."""
    return ClientInfo(
        properties={
            "PROP_NAMESERVER_ADDR": instance.config.namesrv, "PROP_CLIENT_VERSION": VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(instance.started_ms),
        },
        settings=shown(instance.config), state={name: str(value) for name, value in state.items()},
        stacks=stacks_now() if stacks else "",
    )  # fmt: skip


def add_consumer(info: ClientInfo, data: ConsumerData, *, concurrency: int = 1) -> None:
    """The content of a consumer's heartbeat, in RocketMQ's words."""
    passive = data.consume_type == "PUSH"
    info.properties["PROP_CONSUME_TYPE"] = "CONSUME_PASSIVELY" if passive else "CONSUME_ACTIVELY"
    info.properties["PROP_CONSUME_ORDERLY"] = str(data.ordered).lower()
    info.properties["PROP_THREADPOOL_CORE_SIZE"] = str(concurrency)
    info.state.update(
        message_model=data.message_model, consume_from=data.consume_from, allocation=data.allocation,
        graceful_handover=str(data.graceful_handover).lower(),
    )  # fmt: skip
    for one in data.subscriptions:
        info.subscriptions.append(SubscriptionInfo(
            topic=one.topic, expression=one.expression, expression_type=one.expression_type, version=one.version
        ))  # fmt: skip


def add_queues(info: ClientInfo, assignment: Iterable[OwnedQueue], age_s: Callable[[], float]) -> None:
    """The queues that are owned now, and what is held of each. ``age_s``: the clock of their ages."""
    wall_s = time.time() - age_s()
    info.queues.extend(queue_info(owned, wall_s) for owned in sorted(assignment, key=lambda one: one.queue))


def add_statistics(info: ClientInfo, statistics: Statistics, assignment: Iterable[OwnedQueue]) -> None:
    """Rates and times of the last minute by topic."""
    for topic, found in statistics.view(time.monotonic(), assignment).topics.items():
        info.statuses.append(ConsumeStatusInfo(topic=topic, **{name: getattr(found, name) for name in RATES}))


def queue_info(owned: OwnedQueue, wall_s: float) -> ProcessQueueInfo:
    """``wall_s`` added to a time of the clock of ages makes it one since 1970."""
    queue, held = owned.queue, owned.process_queue
    first, last = held.ends or (-1, -1)
    return ProcessQueueInfo(
        broker_name=queue.broker_name, queue=QueueKey(topic=queue.topic, queue_id=queue.queue_id),
        commit_offset=held.low_water, next_offset=owned.next_offset, min_cached_offset=first, max_cached_offset=last,
        cached_messages=len(held), cached_bytes=held.cached_bytes, in_flight=held.in_flight,
        locked=owned.locked_at_s is not None and not owned.lock_lost, locked_ms=_wall_ms(owned.locked_at_s, wall_s),
        dropped=owned.dropped, last_pull_ms=_wall_ms(owned.last_pull_s, wall_s),
        last_consume_ms=_wall_ms(owned.last_consume_s, wall_s),
        max_offset=-1 if owned.max_offset is None else owned.max_offset, generation=owned.generation,
    )  # fmt: skip


def stacks_now() -> str:
    """Where the tasks of this loop and the threads of this process are, cut at what a message can carry.

    RocketMQ: jstack. Local variables are not shown: they may hold bodies.
    """
    tasks = sorted(asyncio.all_tasks(), key=lambda one: one.get_name())[:MOST_STACKS]
    parts = [f"task {task.get_name()}\n{''.join(_waiting_at(task.get_coro()).format())}" for task in tasks]
    parts += [
        f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)[:MOST_TEXT]


def _waiting_at(awaited: Any) -> traceback.StackSummary:
    """From the task's own coroutine down to what it waits for; a task itself tells only the first of them."""
    frames = []
    while frame := getattr(awaited := driven_by(awaited) or awaited, "cr_frame", None):
        frames.append((frame, frame.f_lineno))
        awaited = awaited.cr_await
    return traceback.StackSummary.extract(frames)


def _wall_ms(at_s: float | None, wall_s: float) -> int:
    return int((at_s + wall_s) * 1000) if at_s else 0
