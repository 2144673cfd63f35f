"""What an operator of a scenario does: any method of Admin, with messages named by their number."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import MessageQueue
from dejamq_lab.scenario.actors.operating import operate
from dejamq_lab.scenario.script.steps import AdminCall
from dejamq_proto.codes import ConfigError


class FakeAdmin:
    """Knows message 3 only; writes down what it is asked to do."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def messages_by_key(self, topic: str, key: str) -> list[Any]:
        return [SimpleNamespace(offset_message_id="7F00")] if (topic, key) == ("orders", "number-3") else []

    async def consume_directly(self, group: str, client_id: str, message_id: str) -> None:
        self.done.append((group, client_id, message_id))

    async def update_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        self.done.append((group, queue, offset))

    async def replay_dead_letters(self, group: str) -> AsyncIterator[int]:
        for letter in (1, 2):
            yield letter
            self.done.append((group, letter))


async def asked(method: str, **arguments: Any) -> list[Any]:
    admin: Any = FakeAdmin()
    await operate(admin, AdminCall(method=method, arguments=arguments), "orders")
    done: list[Any] = admin.done
    return done


async def test_a_message_is_named_by_its_number() -> None:
    assert await asked("consume_directly", group="g", client_id="c1", number=3) == [("g", "c1", "7F00")]


async def test_a_message_that_is_not_stored_is_said() -> None:
    with pytest.raises(ConfigError, match="no broker has message 4 of orders"):
        await asked("consume_directly", group="g", client_id="c1", number=4)


async def test_a_queue_is_written_as_a_list() -> None:
    queue = MessageQueue("orders", "broker-a", 2)
    assert await asked("update_offset", group="g", queue=["orders", "broker-a", 2], offset=5) == [("g", queue, 5)]


async def test_what_a_method_yields_is_done_to_its_end() -> None:
    assert await asked("replay_dead_letters", group="g") == [("g", 1), ("g", 2)]


@pytest.mark.parametrize("method", ["explode", "_open"])
async def test_a_method_that_there_is_not_is_refused(method: str) -> None:
    with pytest.raises(ConfigError, match="no method"):
        await asked(method)
