"""Scenarios with RocketMQ's own Python client 5: ``scenarios.py HOST:PORT WORD SCENARIO…``. Its environment is its own.

Each scenario uses a topic and a group of its own, WORD-SCENARIO, and prints what every client of RocketMQ 5 should see.
"""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.v5.exception.client_exception import InternalErrorException

ENDPOINT, WORD = sys.argv[1:3]
TLS = {"tls_enable": "WITH_TLS" in os.environ}
KEYS = os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", "")
WAIT_S = 90
COUNT = 20
WARM, SPEED_COUNT = 100, 1_000


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, handle: Callable[[Any], bool]) -> None:
        self.handle = handle

    def consume(self, message: Any) -> Any:
        return ConsumeResult.SUCCESS if self.handle(message) else ConsumeResult.FAILURE


class Checker(TransactionChecker):  # type: ignore[misc]
    def check(self, message: Any) -> Any:
        return TransactionResolution.COMMIT


def said(*words: object) -> None:
    print(*words, flush=True)


def configuration(keys: tuple[str, str] = KEYS) -> Any:
    return ClientConfiguration(ENDPOINT, Credentials(*keys))


@contextmanager
def running(client: Any) -> Iterator[Any]:
    client.startup()
    try:
        yield client
    finally:
        client.shutdown()


def producer(topic: str, checker: Any = None, keys: tuple[str, str] = KEYS) -> Any:
    return running(Producer(configuration(keys), (topic,), checker=checker, **TLS))


def simple(topic: str, group: str, wait_s: int = 5) -> Any:
    return running(SimpleConsumer(configuration(), group, {topic: FilterExpression()}, await_duration=wait_s, **TLS))


def push(topic: str, group: str, handle: Callable[[Any], bool]) -> Any:
    return running(PushConsumer(configuration(), group, Listener(handle), {topic: FilterExpression()}, **TLS))


def message(topic: str, body: str, **fields: Any) -> Any:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def body(message: Any) -> str:
    return str(message.body.decode())


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.05)


def asked(consumer: Any, invisible_s: int) -> list[Any]:
    """One receive. RocketMQ's proxy fails it while it has not read the client's settings."""
    try:
        return consumer.receive(32, invisible_s) or []
    except InternalErrorException:
        time.sleep(0.1)
        return []


def received(consumer: Any, count: int, invisible_s: int = 30) -> list[Any]:
    found: list[Any] = []

    def enough() -> bool:
        found.extend(asked(consumer, invisible_s))
        return len(found) >= count

    until(enough)
    return found


def normal(name: str) -> None:
    with producer(name) as sending:
        for number in range(COUNT):
            made = message(name, f"body-{number}", tag="tea")
            made.keys = f"k-{number}"
            made.add_property("p", f"v-{number}")
            sending.send(made)
    with simple(name, name) as consumer:
        found = received(consumer, COUNT)
        for each in found:
            consumer.ack(each)
        said(len({each.message_id for each in found}), "messages, attempts", {each.delivery_attempt for each in found})
        (one,) = [each for each in found if body(each) == "body-7"]
        said(one.tag, *one.keys, one.properties["p"])
        said("then", len(consumer.receive(32, 30) or ()))


def again(name: str) -> None:
    """One message is given back, the time of another is over."""
    with producer(name) as sending:
        sending.send(message(name, "back"))
        sending.send(message(name, "over"))
    with simple(name, name) as consumer:
        for each in received(consumer, 2, invisible_s=10):
            if body(each) == "back":
                consumer.change_invisible_duration(each, 1)
        found = received(consumer, 2)
        for each in found:
            consumer.ack(each)
        for each in sorted(found, key=body):
            said(body(each), each.delivery_attempt)


def pushed(name: str) -> None:
    attempts: dict[str, list[int]] = defaultdict(list)

    def handle(each: Any) -> bool:
        attempts[body(each)].append(each.delivery_attempt)
        return body(each) != "bad" or each.delivery_attempt > 1

    with producer(name) as sending:
        for number in range(COUNT):
            sending.send(message(name, f"good-{number}"))
        sending.send(message(name, "bad"))
        with push(name, name, handle):
            until(lambda: len(attempts) == COUNT + 1 and len(attempts["bad"]) == 2)
    said(len(attempts), "messages, bad", *attempts.pop("bad"), "good", {tuple(each) for each in attempts.values()})


def dlq(name: str) -> None:
    attempts: list[int] = []

    def handle(each: Any) -> bool:
        attempts.append(each.delivery_attempt)
        return False

    with producer(name) as sending:
        sending.send(message(name, "poison"))
    with push(name, name, handle):
        until(lambda: len(attempts) == 2)
        letters = f"%DLQ%{name}"
        with simple(letters, f"{name}-letters", wait_s=3) as consumer:
            found: list[Any] = []

            def look() -> bool:
                try:
                    found.extend(consumer.receive(32, 30) or ())
                except Exception:  # the topic is made with its first letter
                    time.sleep(0.5)
                return bool(found)

            until(look)
            for each in found:
                consumer.ack(each)
    said("attempts", *attempts, "letter", *map(body, found))


def fifo(name: str) -> None:
    orders: dict[str, list[str]] = defaultdict(list)

    def handle(each: Any) -> bool:
        orders[each.message_group].append(body(each))
        return True

    with producer(name) as sending:
        for number in range(10):
            for group in "ab":
                sending.send(message(name, str(number), message_group=group))
        with push(name, name, handle):
            until(lambda: sum(map(len, orders.values())) >= 20)
    for group in sorted(orders):
        said(group, *orders[group])


def delay(name: str) -> None:
    with producer(name) as sending:
        due = int(time.time()) + 4
        sending.send(message(name, "later", delivery_timestamp=due))
        with simple(name, name) as consumer:
            (found,) = received(consumer, 1)
            consumer.ack(found)
    said(body(found), "early" if time.time() < due else "on time")


def transaction(name: str) -> None:
    with producer(name, Checker()) as sending:
        for word in ("committed", "rolled-back", "checked"):
            begun = sending.begin_transaction()
            sending.send(message(name, word), begun)
            if word == "committed":
                begun.commit()
            elif word == "rolled-back":
                begun.rollback()
        with simple(name, name) as consumer:
            found = received(consumer, 2)
            for each in found:
                consumer.ack(each)
    said(*sorted(map(body, found)))


def restart(name: str) -> None:
    """The server is started again between both halves, when it was told, and says so by a line."""
    seen: set[str] = set()
    lock = threading.Lock()

    def handle(each: Any) -> bool:
        with lock:
            seen.add(body(each))
        return True

    def sent(number: int) -> bool:
        try:
            sending.send(message(name, f"body-{number}"))
        except Exception:  # the server is not back yet
            time.sleep(0.5)
            return False
        return True

    with producer(name) as sending:
        until(lambda: sent(0))
        with push(name, name, handle):
            until(lambda: len(seen) == 1)
            said("restart now")
            sys.stdin.readline()
            for number in range(1, 6):
                until(lambda number=number: sent(number))  # type: ignore[misc]
            until(lambda: len(seen) == 6)
    said(*sorted(seen))


def keys(name: str) -> None:
    """With access control: a user has rights to this topic and group, and may read the topic NAME-read."""
    with producer(name) as sending:
        sending.send(message(name, "allowed"))
    with simple(name, name) as consumer:
        (found,) = received(consumer, 1)
        consumer.ack(found)
        said("got", body(found))

    def sent(topic: str, keys: tuple[str, str]) -> None:
        with producer(name, keys=keys) as sending:
            sending.send(message(topic, "refused"))

    def got(group: str) -> None:
        with simple(name, group) as consumer:
            consumer.receive(32, 30)

    said("wrong secret", refusal(lambda: sent(name, (KEYS[0], "another-secret"))))
    said("no such user", refusal(lambda: sent(name, ("nobody", KEYS[1]))))
    said("topic to read", refusal(lambda: sent(f"{name}-read", KEYS)))
    said("foreign group", refusal(lambda: got("foreign")))


def refusal(action: Callable[[], None]) -> object:
    """The code that the server refused it with. This client hides that of a route behind words of its own."""
    try:
        action()
    except Exception as error:
        return getattr(error, "code", None) or ("no route" if "failed to fetch topic" in str(error) else repr(error))
    return "allowed"


def speed(name: str) -> None:
    """For a benchmark: one send after the other, then receives whose messages are acknowledged one by one.

    Each line has the messages of a second and the median of a call in ms, the first part of them left out.
    """
    with producer(name) as sending:
        took = []
        for _ in range(WARM + SPEED_COUNT):
            began = time.perf_counter()
            sending.send(message(name, "x" * 1024))
            took.append(time.perf_counter() - began)
        measured("sent", took)
    with simple(name, name) as consumer:
        received_in, acked_in, count, warm_s = [], [], 0, time.perf_counter()
        while count < SPEED_COUNT:
            began = time.perf_counter()
            found = asked(consumer, 60)
            received_in.append(time.perf_counter() - began)
            for each in found:
                began = time.perf_counter()
                consumer.ack(each)
                acked_in.append(time.perf_counter() - began)
            count += len(found)
        rate = count / (time.perf_counter() - warm_s)
        said("received", round(rate, 1), round(1000 * median(received_in), 3))
        said("acknowledged", round(len(acked_in) / sum(acked_in), 1), round(1000 * median(acked_in), 3))


def measured(what: str, took: list[float]) -> None:
    kept = took[WARM:]
    said(what, round(len(kept) / sum(kept), 1), round(1000 * median(kept), 3))


SCENARIOS = {
    "normal": normal, "again": again, "push": pushed, "dlq": dlq, "fifo": fifo, "delay": delay,
    "transaction": transaction, "restart": restart, "speed": speed, "keys": keys,
}  # fmt: skip

for chosen in sys.argv[3:]:
    said("==", chosen)
    SCENARIOS[chosen](f"{WORD}-{chosen}")
said("== end")
