"""Claims on queues, so that a queue of a group goes from one member to the next without both having it.

Pure: the time is an argument. In memory only: a broker that restarts takes an owner's word for its claims, and gives no
queue to anybody else for a while (``opens_ms``), so that owners come back first. Not in RocketMQ, where a new owner
begins before the old one has committed (causes O8, O9).
"""

from collections.abc import Iterable

import msgspec

from dejamq_broker.locks import QueueAt


class Wish(msgspec.Struct, frozen=True):
    """A queue with the claim that the asker has on it: 0 for none yet, or when giving back, for whichever it has."""

    queue: QueueAt
    generation: int = 0


class ClaimAnswer(msgspec.Struct, frozen=True):
    """What became of one wish. ``owner`` had the queue before ('': nobody has asked yet), ``age_ms`` after its last."""

    queue: QueueAt
    granted: bool
    generation: int
    owner: str = ""
    age_ms: int = 0


class Member(msgspec.Struct, frozen=True):
    """Who asks: one start of one client. Two processes with one client id are two members (unlike with locks)."""

    client_id: str
    boot_id: str


class _Claim(msgspec.Struct):
    member: Member
    generation: int
    renewed_ms: int
    released: bool = False


class ClaimTable:
    """The claims of all groups. Owned by the event loop; nothing here waits or raises."""

    def __init__(self, life_ms: float, *, last_generation: int = 0, opens_ms: int = 0) -> None:
        """A claim that was not renewed for ``life_ms`` may be given to others.

        Generations count on from ``last_generation``. Before ``opens_ms`` only claims that exist are renewed.
        """
        self._life_ms, self._generation, self._opens_ms = life_ms, last_generation, opens_ms
        self._claims: dict[tuple[str, QueueAt], _Claim] = {}

    def claim(self, group: str, member: Member, wishes: Iterable[Wish], now_ms: int) -> list[ClaimAnswer]:
        """Give each queue that is released, expired or new, and renew what the member has."""
        return [self._ask((group, wish.queue), member, wish.generation, now_ms) for wish in wishes]

    def release(self, group: str, member: Member, wish: Wish, now_ms: int) -> ClaimAnswer:
        """Free a queue for the next owner, if it is the member's by this claim (``granted``)."""
        place = group, wish.queue
        claim = self._claims.get(place)
        if claim is None:
            if wish.generation:  # of a broker that was here before
                self._claims[place] = _Claim(member, wish.generation, now_ms, released=True)
            return ClaimAnswer(wish.queue, bool(wish.generation), wish.generation)
        mine = claim.member == member and wish.generation in (0, claim.generation) and not claim.released
        claim.released |= mine
        return ClaimAnswer(wish.queue, mine, claim.generation, claim.member.client_id, now_ms - claim.renewed_ms)

    def fenced(self, group: str, queue: QueueAt, boot_id: str, now_ms: int) -> str:
        """Why this start of a client may not commit the queue's offset now, '' when it may.

        An offset that was on its way when its sender gave the queue up would set the next owner back (cause O12).
        """
        claim = self._claims.get((group, queue))
        if claim is None:
            return ""
        mine = claim.member.boot_id == boot_id
        if mine and claim.released:
            return "it has given the queue back"
        if not mine and not self._free(claim, now_ms):
            return f"the queue is {claim.member.client_id}'s"
        return ""

    def _ask(self, place: tuple[str, QueueAt], member: Member, generation: int, now_ms: int) -> ClaimAnswer:
        claim, queue = self._claims.get(place), place[1]
        if claim is None:
            if not generation and now_ms < self._opens_ms:
                return ClaimAnswer(queue, False, 0)
            return ClaimAnswer(queue, True, self._grant(place, member, generation, now_ms))
        before = claim.member.client_id, now_ms - claim.renewed_ms
        mine = claim.member == member and not claim.released
        if generation and mine and claim.generation == generation:
            claim.renewed_ms = now_ms
            return ClaimAnswer(queue, True, generation, *before)
        if generation or not (mine or self._free(claim, now_ms)):
            return ClaimAnswer(queue, False, claim.generation, *before)
        return ClaimAnswer(queue, True, self._grant(place, member, 0, now_ms), *before)

    def _grant(self, place: tuple[str, QueueAt], member: Member, generation: int, now_ms: int) -> int:
        """A new claim, or one that a broker before this one gave."""
        if not generation:
            generation = self._generation = self._generation + 1
        self._claims[place] = _Claim(member, generation, now_ms)
        return generation

    def _free(self, claim: _Claim, now_ms: int) -> bool:
        return claim.released or now_ms - claim.renewed_ms > self._life_ms
