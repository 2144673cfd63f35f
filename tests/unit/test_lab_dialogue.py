"""Local transactions of an actor that is a producer of transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import Message, Producer, PushConsumer, TransactionProducer, TransactionState
from dejamq_lab.scenario.actors.dialogue import ScriptedTransactions
from dejamq_lab.scenario.actors.performer import ActorPart, Performer
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.text import Actor, HandlerScript, Transacting

Execute = Callable[[Message], Awaitable[TransactionState]]


class Direct:
    """A producer that stores no half message and makes the local transaction."""

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: float | None
    ) -> TransactionState:
        return await execute(message)


def sent(transactions: ScriptedTransactions) -> "asyncio.Future[Any]":
    producer: Any = Direct()
    return asyncio.ensure_future(transactions.send(producer, Message("orders", b"x"), None))


async def test_a_local_transaction_that_blocks_ends_when_it_is_released_and_later_ones_at_once() -> None:
    transactions = ScriptedTransactions(Transacting(blocks=True))
    first = sent(transactions)
    await asyncio.sleep(0)
    assert not first.done()
    transactions.release()
    assert [await first, await sent(transactions)] == [TransactionState.COMMIT] * 2


async def test_what_a_local_transaction_says_and_what_a_check_says_are_two_things() -> None:
    transactions = ScriptedTransactions(Transacting(answer="unknown", check="rollback"))
    assert await sent(transactions) is TransactionState.UNKNOWN
    asked: Any = SimpleNamespace()
    assert await transactions._check(asked) is TransactionState.ROLLBACK


@pytest.mark.parametrize(
    ("actor", "client"),
    [
        (Actor(kind="producer", group="g"), Producer),
        (Actor(kind="producer", group="g", transaction=Transacting()), TransactionProducer),
        (Actor(kind="push", group="g", handler=HandlerScript(replies=True)), PushConsumer),
    ],
)
def test_an_actor_has_the_client_that_its_text_says(tmp_path: Path, actor: Actor, client: type) -> None:
    part = ActorPart(name="a", actor=actor, namesrv="127.0.0.1:1", ledger=str(tmp_path / "ledger.sqlite"), settings={})
    performer = Performer(part)
    assert type(performer._client) is client
    assert (performer._replier is not None) is actor.handler.replies


def test_the_ledger_counts_how_often_a_message_was_entered(tmp_path: Path) -> None:
    ledger = EffectLedger(tmp_path / "ledger.sqlite")
    for delivery_id, actor in (("c1-1", "c1"), ("c1-2", "c1"), ("c2-1", "c2")):
        ledger.enter(delivery_id, 7, actor)
    assert (ledger.entries("c1", 7), ledger.entries("c2", 7), ledger.entries("c1", 8)) == (2, 1, 0)
    ledger.close()
