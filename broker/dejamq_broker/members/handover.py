"""Claims on queues, so that a queue of a group goes from one member to the next without both having it.

Pure: the time is an argument. In memory only. A broker that restarts takes an owner's word for its claims. It gives no
queue to anybody else for a while (``opens_ms``), so that owners come back first. Not in RocketMQ, where a new owner
begins before the old one has committed (causes O8, O9).
"""

from collections.abc import Iterable

import msgspec

from dejamq_broker.members.locks import MOST, QueueAt
from dejamq_broker.tables.offsets import Asker

FORMER_OWNERS = 16  # remembered for each queue; messages of the owner before them arrived long ago


class QueueWish(msgspec.Struct, frozen=True):
    """A queue with the claim that the asker has on it: 0 for none yet, or when giving back, for whichever it has."""

    queue: QueueAt
    generation: int = 0


class ClaimAnswer(msgspec.Struct, frozen=True):
    """The result of one wish. ``owner`` had the queue before ('': nobody has asked yet), ``age_ms`` after its last."""

    queue: QueueAt
    granted: bool
    generation: int
    owner: str = ""
    age_ms: int = 0


class _Claim(msgspec.Struct):
    """``former``: the number of the request in which a start of a client last gave the queue back, by boot id."""

    owner: Asker
    generation: int
    renewed_ms: int
    released: bool = False
    former: dict[str, int] = {}

    def mine(self, asker: Asker) -> bool:
        """By start, not by client id: two processes that share an id are two owners, unlike with locks."""
        return self.owner.boot_id == asker.boot_id

    def give_back(self, asker: Asker) -> None:
        self.released = True
        self.former.pop(asker.boot_id, None)
        self.former[asker.boot_id] = asker.seq
        if len(self.former) > FORMER_OWNERS:
            del self.former[next(iter(self.former))]


class ClaimTable:
    """The claims of all groups. Owned by the event loop; nothing here waits or raises."""

    def __init__(self, life_ms: float, *, last_generation: int = 0, opens_ms: int = 0) -> None:
        """A claim that was not renewed for ``life_ms`` may be given to others.

        Generations count on from ``last_generation``. Before ``opens_ms`` only claims that exist are renewed.
        """
        self._life_ms, self._generation, self._opens_ms = life_ms, last_generation, opens_ms
        self._claims: dict[tuple[str, QueueAt], _Claim] = {}

    def claim(self, group: str, asker: Asker, wishes: Iterable[QueueWish], now_ms: int) -> list[ClaimAnswer]:
        """Give each queue that is released, expired or new, and renew what the asker has."""
        return [self._ask((group, wish.queue), asker, wish.generation, now_ms) for wish in wishes]

    def release(self, group: str, asker: Asker, wish: QueueWish, now_ms: int) -> ClaimAnswer:
        """Free a queue for the next owner, if it is the asker's by this claim (``granted``)."""
        place = group, wish.queue
        claim = self._claims.get(place)
        if claim is None:
            if wish.generation and self._has_room(now_ms):  # of a broker that was here before
                self._claims[place] = _Claim(asker, wish.generation, now_ms)
                self._claims[place].give_back(asker)
            return ClaimAnswer(wish.queue, place in self._claims, wish.generation)
        mine = claim.mine(asker) and wish.generation in (0, claim.generation) and not claim.released
        mine = mine and asker.seq >= claim.owner.seq  # one without a generation may have been overtaken by a new claim
        if mine:
            claim.give_back(asker)
        return ClaimAnswer(wish.queue, mine, claim.generation, claim.owner.client_id, now_ms - claim.renewed_ms)

    def fenced(self, group: str, queue: QueueAt, asker: Asker, now_ms: int, *, off: bool = False) -> str:
        """Why this request may not commit the queue's offset now, '' when it may.

        ``off``: the group has members that claim nothing, and their commits count.

        An offset that was on its way when its sender gave the queue up would set the next owner back (cause O12). It
        may come so late that the sender has the queue again, or nobody.
        """
        claim = self._claims.get((group, queue))
        if claim is None:
            return ""
        if asker.seq <= claim.former.get(asker.boot_id, -1):
            return "the queue was given back after that"
        if not off and not claim.mine(asker) and not self._free(claim, now_ms):
            return f"the queue is {claim.owner.client_id}'s"
        return ""

    def _ask(self, place: tuple[str, QueueAt], asker: Asker, generation: int, now_ms: int) -> ClaimAnswer:
        claim, queue = self._claims.get(place), place[1]
        if claim is None:
            if (not generation and now_ms < self._opens_ms) or not self._has_room(now_ms):
                return ClaimAnswer(queue, False, 0)
            return ClaimAnswer(queue, True, self._grant(place, asker, generation, now_ms))
        before = claim.owner.client_id, now_ms - claim.renewed_ms
        mine = claim.mine(asker) and not claim.released
        if generation and mine and claim.generation == generation:
            claim.renewed_ms = now_ms
            return ClaimAnswer(queue, True, generation, *before)
        if generation or not (mine or self._free(claim, now_ms)):
            return ClaimAnswer(queue, False, claim.generation, *before)
        return ClaimAnswer(queue, True, self._grant(place, asker, 0, now_ms), *before)

    def _grant(self, place: tuple[str, QueueAt], asker: Asker, generation: int, now_ms: int) -> int:
        """A new claim, or one that a broker before this one gave."""
        if not generation:
            generation = self._generation = self._generation + 1
        before = self._claims.get(place)
        self._claims[place] = _Claim(asker, generation, now_ms, former=before.former if before else {})
        return generation

    def _has_room(self, now_ms: int) -> bool:
        """For one more claim, if need be without those that nobody has renewed for long."""
        if len(self._claims) >= MOST:
            self._claims = {place: claim for place, claim in self._claims.items() if not self._free(claim, now_ms)}
        return len(self._claims) < MOST

    def _free(self, claim: _Claim, now_ms: int) -> bool:
        return claim.released or now_ms - claim.renewed_ms > self._life_ms
