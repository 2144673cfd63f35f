"""What the handlers of a scenario answer, and what is in the ledger then."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import BatchResult, ConsumeStatus, OrderedStatus, SuspendQueue
from dejamq_lab.scenario.actors.handling import Handlers, ScriptedFailure
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.text import HandlerScript


def received(number: int, delivery: int = 1) -> Any:
    body = json.dumps({"number": number}).encode()
    return SimpleNamespace(body=body, delivery_id=f"b-{number}-{delivery}", message_id=f"id-{number}")


def made(tmp_path: Path, **handling: Any) -> tuple[Handlers, EffectLedger]:
    ledger = EffectLedger(tmp_path / "ledger.sqlite")
    return Handlers("c1", "g", HandlerScript(**handling), ledger), ledger


async def test_a_failure_comes_after_the_effect_and_a_refusal_before_it(tmp_path: Path) -> None:
    handlers, ledger = made(tmp_path, fails=(1,), refuses=(2,))
    for number in (1, 2):
        with pytest.raises(ScriptedFailure, match=f"message {number}"):
            await handlers.one(received(number))
    assert ledger.delivery_ids() == {"b-1-1"}
    assert await handlers.one(received(2, delivery=2)) is None


@pytest.mark.parametrize(
    ("answer", "word"), [("later", ConsumeStatus.RECONSUME_LATER), ("rollback", OrderedStatus.ROLLBACK)]
)
async def test_a_failure_is_answered_as_the_scenario_says(tmp_path: Path, answer: str, word: object) -> None:
    handlers, _ = made(tmp_path, fails=(1,), answer=answer)
    assert await handlers.one(received(1)) is word


async def test_a_queue_is_suspended(tmp_path: Path) -> None:
    handlers, _ = made(tmp_path, fails=(1,), answer="suspend")
    with pytest.raises(SuspendQueue):
        await handlers.one(received(1))


async def test_of_a_list_that_fails_the_rest_is_not_handled(tmp_path: Path) -> None:
    handlers, ledger = made(tmp_path, batch=4, fails=(1,), answer="rest")
    assert await handlers.many([received(number) for number in range(4)]) == BatchResult(0)
    assert ledger.delivery_ids() == {"b-0-1", "b-1-1"}


async def test_a_commit_is_the_last_word_of_a_list(tmp_path: Path) -> None:
    handlers, _ = made(tmp_path, batch=2, commits=(0,))
    assert await handlers.many([received(0), received(1)]) is OrderedStatus.COMMIT


async def test_the_first_of_two_effects_is_double_when_the_second_failed(tmp_path: Path) -> None:
    handlers, ledger = made(tmp_path, parts=2, fails=(1,))
    with pytest.raises(ScriptedFailure):
        await handlers.one(received(1))
    await handlers.one(received(1, delivery=2))
    assert ledger.doubles() == {"b-1-2"}
    assert ledger.connection.execute("SELECT part, COUNT(*) FROM effects GROUP BY part").fetchall() == [(1, 2), (2, 1)]


async def test_what_blocks_and_fails_once_lets_its_second_delivery_pass(tmp_path: Path) -> None:
    handlers, ledger = made(tmp_path, blocks=(1,), once=True, refuses=(1,))
    first = asyncio.ensure_future(handlers.one(received(1)))
    await asyncio.sleep(0)
    await handlers.one(received(1, delivery=2))
    handlers.release()
    with pytest.raises(ScriptedFailure):
        await first
    assert ledger.delivery_ids() == {"b-1-2"}
