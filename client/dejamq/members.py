"""Who else is in the group, as one random broker of a topic knows it."""

import random
from collections.abc import Iterable

from dejamq.context import Context


class Members:
    """A broker's answer holds for all topics of a round: it is over what is wanted of them within milliseconds."""

    def __init__(self, context: Context, *, broadcasting: bool) -> None:
        """Each member of a ``broadcasting`` group has all queues: nobody is asked who else there is."""
        self._context, self._broadcasting = context, broadcasting
        self._told: dict[str, list[str]] = {}

    def forget(self) -> None:
        """A round begins, or members changed: ask again, also who is being asked just now."""
        self._told = {}

    async def of(self, broker_names: Iterable[str]) -> tuple[str, list[str]]:
        """The broker that was asked, and the client ids of the group that it knows, sorted. Raises DejamqError."""
        if self._broadcasting:
            return "", [self._context.client_id]
        broker_name, told = random.choice(sorted(broker_names)), self._told
        if broker_name not in told:
            told[broker_name] = sorted(await self._context.link(broker_name).consumer_list(self._context.group))
        return broker_name, told[broker_name]
