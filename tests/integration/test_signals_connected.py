"""Each signal of a broker and of a client that run has a listener, or a reason to have none."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import pytest
from dejamq import LitePullConsumer, Message, PushConsumer, ReceivedMessage, TransactionProducer
from dejamq import TransactionState as State
from dejamq_broker.app import Broker
from dejamq_proto.signals import Signal
from ha_pair import a_pair, following
from producer_site import Site

NOT_YET_OF_THE_LOG = {"MappedFile.on_open"}
"""The file made ahead: who counts the open files takes it with the append that needs it."""
OF_POPS = {"LongPoll.on_wake", "OffsetTable.on_move", "Lives.on_topic_end", "Lives.on_group_end"}
NO_TRANSACTIONS = {"Presence.on_check"}
"""Brokers ask only those who began a transaction."""
NO_REQUESTS = {"Presence.on_reply"}
"""Brokers push replies only to those who asked for one, which producers do."""


def parts_of(one: Any) -> Iterator[Any]:
    """What an object holds: its attributes, the elements of containers, and what its functions were made with."""
    if isinstance(one, dict):
        yield from one.keys()
        yield from one.values()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from one
    elif isinstance(one, MethodType):
        yield one.__self__
    elif isinstance(one, FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or () if cell.cell_contents is not None)
    elif isinstance(one, partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif type(one).__module__.startswith("dejamq"):
        yield from attributes(one).values()


def attributes(one: Any) -> dict[str, Any]:
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = getattr(type(one), "__struct_fields__", ())
    named = {name: getattr(one, name) for name in (*slots, *fields) if hasattr(one, name)}
    return named | getattr(one, "__dict__", {})


def signals_of(root: Any) -> dict[str, list[bool]]:
    """Class and attribute of each signal that can be reached from here; for each object whether it has a listener."""
    found: dict[str, list[bool]] = {}
    seen, waiting = set[int](), [root]
    alive = []  # an id is one's own for as long as the object lives
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        alive.append(one)
        if type(one).__module__.startswith("dejamq"):
            for name, value in attributes(one).items():
                if isinstance(value, Signal):
                    found.setdefault(f"{type(one).__name__}.{name}", []).append(value.connected)
        waiting += parts_of(one)
    return found


def silent(root: Any) -> set[str]:
    """Signals of which one at least has no listener."""
    return {name for name, connected in signals_of(root).items() if not all(connected)}


class Whole:
    """A part in a part, by all the ways there are."""

    def __init__(self, part: Any) -> None:
        self.part = part


Whole.__module__ = "dejamq.whole"  # only ours are looked into


@pytest.mark.parametrize(
    "way",
    [
        lambda part: part,
        lambda part: [(part,)],
        lambda part: {"one": part},
        lambda part: lambda: part,
        lambda part: partial(print, part),
        lambda part: Whole(part),
    ],
)
def test_a_signal_without_a_listener_is_found_wherever_it_is(way: Any) -> None:
    signal = Signal[[]]()
    whole = Whole(way(Whole(signal)))
    assert silent(whole) == {"Whole.part"}
    signal.connect(print)
    assert silent(whole) == set()
    assert signals_of(whole) == {"Whole.part": [True]}


def look_at(broker: Broker, store: str) -> None:
    found = signals_of(broker)
    assert found.keys() == {f"{store}.on_append", "Clients.on_closed", "MappedFile.on_open", *OF_POPS}
    assert any(found["MappedFile.on_open"])
    assert silent(broker) <= NOT_YET_OF_THE_LOG


@asynccontextmanager
async def a_site(directory: Path) -> AsyncIterator[Site]:
    site = Site(directory)
    await site.namesrv.start()
    try:
        await site.start_broker("broker-a")
        yield site
    finally:
        await site.close()


async def test_a_brokers_signals_are_all_heard(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site, site.producer() as producer:
        await producer.send(Message("orders", b"x"))
        look_at(site.brokers["broker-a"], "MessageStore")


async def test_a_slaves_signals_are_all_heard(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (_, slave):
        await following(slave)
        assert silent(slave) <= NOT_YET_OF_THE_LOG
        assert signals_of(slave).keys() >= {"SlaveStore.on_append", "Clients.on_closed"}


CLIENT = {
    "Instance.on_fatal",
    "Instance.on_left_open",
    "Presence.on_check",
    "Presence.on_connected",
    "Presence.on_reply",
}


async def test_a_producers_signals_are_heard_but_for_transactions(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site, site.producer() as producer:
        await producer.send(Message("orders", b"x"))
        assert signals_of(producer).keys() == CLIENT
        assert silent(producer) == NO_TRANSACTIONS


async def test_a_transaction_producers_signals_are_all_heard(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site:
        producer = TransactionProducer("g", checker=lambda message: State.COMMIT, namesrv=site.namesrv.address)
        async with producer as one:
            assert signals_of(one).keys() == CLIENT
            assert silent(one) == set()


@pytest.mark.parametrize("settings", [{}, {"ordered": True}, {"graceful_handover": True}])
async def test_a_push_consumers_signals_are_heard_but_for_what_producers_do(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async def handler(message: ReceivedMessage) -> None: ...

    async with a_site(tmp_path) as site:
        consumer = PushConsumer("g", namesrv=site.namesrv.address, **settings)
        consumer.subscribe("orders", handler)
        async with consumer:
            assert signals_of(consumer).keys() == CLIENT
            assert silent(consumer) == NO_TRANSACTIONS | NO_REQUESTS


async def test_a_lite_pull_consumers_signals_are_heard_but_for_what_producers_do(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site:
        consumer = LitePullConsumer("g", namesrv=site.namesrv.address)
        consumer.subscribe("orders")
        async with consumer:
            assert signals_of(consumer).keys() == CLIENT
            assert silent(consumer) == NO_TRANSACTIONS | NO_REQUESTS
