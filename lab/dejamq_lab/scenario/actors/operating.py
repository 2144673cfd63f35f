"""Operators of a scenario: they call a method of Admin, with arguments that only the running cluster can tell."""

import inspect
from typing import Any

from dejamq import Admin, MessageQueue
from dejamq_proto.codes import ConfigError

from dejamq_lab.scenario.actors.handling import KEY
from dejamq_lab.scenario.script.steps import AdminCall


async def operate(admin: Admin, step: AdminCall, topic: str) -> None:
    """Call the method and wait for its end; what it yields is done, too.

    An argument ``queue`` is written as a list of topic, broker name and queue id; ``number`` is the message of this
    number in ``topic`` and becomes ``message_id``. Raises ConfigError for a method or message that there is not.
    """
    found: Any = getattr(admin, step.method, None)
    if found is None or step.method.startswith("_"):
        raise ConfigError(f"Admin has no method {step.method!r}")
    arguments = dict(step.arguments)
    if "queue" in arguments:
        arguments["queue"] = MessageQueue(*arguments["queue"])
    if "number" in arguments:
        arguments["message_id"] = await _stored(admin, topic, arguments.pop("number"))
    answered = found(**arguments)
    if inspect.isasyncgen(answered):
        async for _ in answered:
            pass
    else:
        await answered


async def _stored(admin: Admin, topic: str, number: int) -> str:
    """The offset message id of the message with this number."""
    stored = await admin.messages_by_key(topic, f"{KEY}{number}")
    if not stored:
        raise ConfigError(f"no broker has message {number} of {topic}")
    return stored[0].offset_message_id
