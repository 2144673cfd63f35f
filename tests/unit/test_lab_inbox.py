"""Effects of a scenario's consumers through an inbox: once a message, however often it is delivered."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq_lab.scenario.actors.handling import Handlers, ScriptedFailure
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.text import HandlerScript


def received(number: int, delivery: int = 1, message_id: str = "") -> Any:
    return SimpleNamespace(
        body=json.dumps({"number": number}).encode(), delivery_id=f"b-{number}-{delivery}", group="g", topic="orders",
        message_id=message_id or f"id-{number}", keys=[f"number-{number}"], properties={},
    )  # fmt: skip


def made(ledger: EffectLedger, actor: str = "c1", **handling: Any) -> Handlers:
    return Handlers(actor, "g", HandlerScript(inbox=True, **handling), ledger)


@pytest.fixture
def ledger(tmp_path: Path) -> EffectLedger:
    return EffectLedger(tmp_path / "ledger.sqlite")


async def test_a_second_delivery_has_no_effect_and_counts_as_handled(ledger: EffectLedger) -> None:
    await made(ledger).one(received(1))
    await made(ledger, "c2").one(received(1, delivery=2))
    assert (ledger.delivery_ids(), ledger.doubles()) == ({"b-1-1"}, set())
    assert (ledger.count("c2"), ledger.count(different=False), ledger.count()) == (1, 2, 1)


async def test_without_an_inbox_the_same_deliveries_are_a_double_effect(ledger: EffectLedger) -> None:
    careless = Handlers("c1", "g", HandlerScript(), ledger)
    await careless.one(received(1))
    await careless.one(received(1, delivery=2))
    assert ledger.doubles() == {"b-1-2"}


async def test_one_event_that_was_sent_as_two_messages_has_one_effect(ledger: EffectLedger) -> None:
    handlers = made(ledger)
    await handlers.one(received(1))
    await handlers.one(received(1, delivery=2, message_id="another"))
    assert ledger.doubles() == set()


async def test_a_handler_that_fails_after_its_effect_does_not_repeat_it(ledger: EffectLedger) -> None:
    handlers = made(ledger, fails=(1,), parts=2)
    with pytest.raises(ScriptedFailure):
        await handlers.one(received(1))
    await handlers.one(received(1, delivery=2))
    assert ledger.connection.execute("SELECT part, COUNT(*) FROM effects GROUP BY part").fetchall() == [(1, 1), (2, 1)]


async def test_plain_handlers_in_threads_have_their_effects_once_too(ledger: EffectLedger) -> None:
    handlers = made(ledger, plain=True)
    deliveries = [received(number, delivery) for number in range(8) for delivery in (1, 2, 3)]
    await asyncio.gather(*(asyncio.to_thread(handlers.plain, each) for each in deliveries))
    assert ledger.doubles() == set()
    assert (ledger.count(), ledger.count(different=False)) == (8, 24)
