"""Pops that found nothing and wait: for an arrival, a retry, or their deadline.

They wait by group and topic, first come, first served. An arrival lets those of its topic look, one after the other,
until one finds nothing. Source: RocketMQ ``PopLongPollingService``, which does not wake for retries whose topic has the
older name.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.base.config import PopSettings
from dejamq_broker.pop.handles import KINDS, physical_topic
from dejamq_broker.pop.query import ANY_QUEUE, PopAnswer, PopQuery
from dejamq_broker.pop.service import Pops

log = logging.getLogger(__name__)
Pair = tuple[str, str]
"""Group and topic."""
NOTHING, SOMETHING = PopAnswer(0), PopAnswer(0, rest=1)


class HeldPop(msgspec.Struct, eq=False):
    """``told`` is called once, with the answer or with why there is none, unless the hold is forgotten before."""

    query: PopQuery
    told: Callable[[PopAnswer | DejamqError], None]
    admit: Callable[[], None]
    """Raises DejamqError for who may not have messages any more."""
    owner: object = None
    peek: bool = False
    """Only whether there are messages is asked; the answer then has none, and a rest."""
    timer: asyncio.TimerHandle | None = None


class HeldPops:
    """Owned by the event loop."""

    def __init__(self, pops: Pops, settings: PopSettings) -> None:
        self._pops, self._settings = pops, settings
        self._loop = asyncio.get_running_loop()
        self._by_pair: dict[Pair, dict[HeldPop, None]] = {}
        self._pairs_of: dict[str, set[Pair]] = {}
        self._woken: dict[Pair, None] = {}
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def park(
        self, query: PopQuery, wait_ms: float, told: Callable[[PopAnswer | DejamqError], None], owner: object = None, *,
        admit: Callable[[], None], peek: bool = False,
    ) -> HeldPop:  # fmt: skip
        """Hold a request that found nothing. ``admit`` is asked again before a message is given. Raises
        POLLING_FULL.
        """
        pair = query.group, query.topic
        holds = self._by_pair.get(pair, {})
        if self._count >= self._settings.max_pop_polling_size or len(holds) >= self._settings.pop_polling_size:
            text = "[POLLING_FULL]as many pops wait for messages here as may (pop_polling_size): pop again later"
            raise DejamqError(text, code=Code.POLLING_FULL)
        hold = HeldPop(query, told, admit, owner, peek)
        if self._closed:
            self._loop.call_soon(told, NOTHING)
            return hold
        hold.timer = self._loop.call_later(wait_ms / 1000, self._tell, hold, NOTHING)
        self._by_pair.setdefault(pair, {})[hold] = None
        self._count += 1
        for kind in KINDS:
            self._pairs_of.setdefault(physical_topic(*pair, kind), set()).add(pair)
        return hold

    def forget(self, hold: HeldPop) -> None:
        """Nobody waits for the answer any more. May be called twice."""
        self._take_out(hold)

    def forget_owner(self, owner: object) -> None:
        """The connection is gone: its holds are never told anything."""
        for hold in [hold for holds in self._by_pair.values() for hold in holds if hold.owner is owner]:
            self._take_out(hold)

    def arrived(self, keys: Iterable[tuple[str, int]]) -> None:
        """These queues got messages; holds look soon."""
        if self._pairs_of:
            for topic, _ in keys:
                for pair in self._pairs_of.get(topic, ()):
                    self.wake(pair)

    def wake(self, pair: Pair) -> None:
        """There may be something for the group; holds look soon."""
        if pair not in self._by_pair:
            return
        if not self._woken:
            self._loop.call_soon(self._turn)
        self._woken[pair] = None

    def close(self) -> None:
        """Tell everybody that there is nothing, and hold nobody from now on."""
        self._closed = True
        for hold in [hold for holds in self._by_pair.values() for hold in holds]:
            self._tell(hold, NOTHING)

    def _turn(self) -> None:
        woken, self._woken = tuple(self._woken), {}
        for pair in woken:
            self._look(pair)

    def _look(self, pair: Pair) -> None:
        """A hold that wants any message of any queue, and finds none, speaks for those behind it."""
        for hold in tuple(self._by_pair.get(pair, ())):
            try:
                hold.admit()
                if hold.peek:
                    if self._pops.has_messages(hold.query):
                        self._tell(hold, SOMETHING)
                    continue
                answer = self._pops.pop(hold.query)
            except DejamqError as error:
                self._tell(hold, error)
                continue
            if answer.batches:
                self._tell(hold, answer)
            elif hold.query.queue_id == ANY_QUEUE and hold.query.tags is None and hold.query.wanted is None:
                return

    def _tell(self, hold: HeldPop, outcome: PopAnswer | DejamqError) -> None:
        if self._take_out(hold):
            try:
                hold.told(outcome)
            except Exception:
                log.exception("wake_failed group=%s topic=%s", hold.query.group, hold.query.topic)

    def _take_out(self, hold: HeldPop) -> bool:
        pair = hold.query.group, hold.query.topic
        holds = self._by_pair.get(pair, {})
        if hold not in holds:
            return False
        del holds[hold]
        self._count -= 1
        if hold.timer is not None:
            hold.timer.cancel()
        if not holds:
            del self._by_pair[pair]
            for kind in KINDS:
                pairs = self._pairs_of[topic := physical_topic(*pair, kind)]
                pairs.discard(pair)
                if not pairs:
                    del self._pairs_of[topic]
        return True
