"""Claims on queues at the broker: who gets one, when, and what that allows."""

import random
from pathlib import Path
from typing import Any

import pytest
from broker_tables import offset_table
from dejamq_broker.members.handover import FORMER_OWNERS, ClaimTable, QueueWish
from dejamq_broker.members.handover_service import Handovers, Returned
from dejamq_broker.members.locks import QueueAt
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_proto.journal.writer import Journal, Level, open_journal
from journalled import journalled

LIFE_MS = 60_000
FIRST, SECOND = QueueAt("orders", 0), QueueAt("orders", 1)
A, B = Asker("a", "boot-a", 1), Asker("b", "boot-b", 1)


def claimed(table: ClaimTable, member: Asker, *, now_ms: int = 0, generation: int = 0, queue: QueueAt = FIRST) -> int:
    """The generation that was granted, 0 for none."""
    (answer,) = table.claim("g", member, [QueueWish(queue, generation)], now_ms)
    return answer.generation if answer.granted else 0


def released(table: ClaimTable, member: Asker, generation: int = 0, *, now_ms: int = 0) -> bool:
    return table.release("g", member, QueueWish(FIRST, generation), now_ms).granted


def test_a_queue_has_one_owner_until_it_is_released() -> None:
    table = ClaimTable(LIFE_MS)
    first = claimed(table, A)
    assert (first, claimed(table, B)) == (1, 0)
    assert released(table, A, first)
    assert claimed(table, B) == first + 1
    assert claimed(table, A) == 0


def test_the_refused_are_told_who_has_it_and_since_when() -> None:
    table = ClaimTable(LIFE_MS)
    claimed(table, A, now_ms=1000)
    (answer,) = table.claim("g", B, [QueueWish(FIRST)], 1250)
    assert (answer.granted, answer.owner, answer.age_ms) == (False, "a", 250)


def test_a_claim_ends_when_it_is_not_renewed_and_its_owner_learns_of_it() -> None:
    table = ClaimTable(LIFE_MS)
    first = claimed(table, A)
    assert claimed(table, A, now_ms=LIFE_MS, generation=first) == first
    assert claimed(table, B, now_ms=2 * LIFE_MS) == 0
    assert claimed(table, B, now_ms=2 * LIFE_MS + 1) == first + 1
    assert claimed(table, A, now_ms=2 * LIFE_MS + 2, generation=first) == 0
    assert not released(table, A, first, now_ms=2 * LIFE_MS + 2)


def test_an_expired_claim_that_nobody_took_can_be_renewed() -> None:
    table = ClaimTable(LIFE_MS)
    first = claimed(table, A)
    assert claimed(table, A, now_ms=9 * LIFE_MS, generation=first) == first


def test_groups_and_queues_do_not_meet() -> None:
    table = ClaimTable(LIFE_MS)
    assert claimed(table, A)
    assert claimed(table, B, queue=SECOND)
    (answer,) = table.claim("other", B, [QueueWish(FIRST)], 0)
    assert answer.granted


def test_two_starts_with_one_client_id_are_two_owners() -> None:
    """Cause R4 does no harm here."""
    table = ClaimTable(LIFE_MS)
    assert claimed(table, A)
    assert claimed(table, Asker("a", "another boot", 1)) == 0


def test_an_owner_that_did_not_hear_the_answer_gets_a_new_claim_and_may_give_back_without_knowing_its_number() -> None:
    table = ClaimTable(LIFE_MS)
    first = claimed(table, A)
    assert claimed(table, A) == first + 1
    assert not released(table, A, first), "the first one is over"
    assert released(table, A, 0)
    assert claimed(table, B)
    assert not released(table, A, 0), "it is another's now"


def test_a_release_that_was_overtaken_by_a_new_claim_frees_nothing() -> None:
    table = ClaimTable(LIFE_MS)
    claimed(table, A._replace(seq=3))
    assert not released(table, A._replace(seq=2), 0)
    assert claimed(table, B) == 0


def test_a_renewal_that_comes_after_the_release_takes_nothing_back() -> None:
    table = ClaimTable(LIFE_MS)
    first = claimed(table, A)
    released(table, A, first)
    assert claimed(table, A, generation=first) == 0
    assert claimed(table, B) == first + 1


def test_a_broker_that_restarted_believes_owners_and_lets_them_come_first() -> None:
    before = ClaimTable(LIFE_MS, last_generation=1_000)
    first = claimed(before, A)
    after = ClaimTable(LIFE_MS, last_generation=2_000, opens_ms=3_000)
    assert claimed(after, B, now_ms=0) == 0
    assert claimed(after, A, now_ms=1_000, generation=first) == first
    assert claimed(after, B, now_ms=3_000) == 0
    assert claimed(after, B, now_ms=3_000, queue=SECOND) == 2_001
    assert released(after, A, first)
    assert claimed(after, B, now_ms=3_001) == 2_002


def test_what_was_released_at_a_broker_that_forgot_the_claim_is_free() -> None:
    table = ClaimTable(LIFE_MS, last_generation=2_000, opens_ms=3_000)
    assert released(table, A, 7)
    assert claimed(table, B, now_ms=1) == 2_001
    assert not released(ClaimTable(LIFE_MS), A, 0)


def fenced(table: ClaimTable, asker: Asker, *, now_ms: int = 0) -> str:
    return table.fenced("g", FIRST, asker, now_ms)


def test_commits_of_others_to_a_claimed_queue_are_fenced_off() -> None:
    table = ClaimTable(LIFE_MS)
    assert fenced(table, B) == "", "nobody hands this queue over gracefully"
    claimed(table, A)
    assert fenced(table, A) == ""
    assert fenced(table, B) == "the queue is a's"
    assert fenced(table, B, now_ms=LIFE_MS + 1) == "", "a is gone"


def test_a_commit_that_was_sent_before_its_sender_gave_the_queue_back_is_fenced_off_for_good() -> None:
    """However late it comes: the next owner has it, has given it back, or the sender has it again."""
    table, late, told = ClaimTable(LIFE_MS), A._replace(seq=5), "the queue was given back after that"
    claimed(table, A)
    assert fenced(table, late) == ""
    assert released(table, A._replace(seq=6))
    assert fenced(table, late) == told
    claimed(table, B)
    assert fenced(table, late) == told
    assert released(table, B)
    assert fenced(table, late) == told
    claimed(table, A._replace(seq=7))
    assert fenced(table, late) == told
    assert fenced(table, A._replace(seq=8)) == ""


def test_only_so_many_former_owners_are_remembered() -> None:
    table = ClaimTable(LIFE_MS)
    owners = [Asker("c", f"boot-{number}", 1) for number in range(FORMER_OWNERS + 1)]
    for owner in owners:
        assert claimed(table, owner)
        assert released(table, owner)
    assert [bool(fenced(table, owner)) for owner in owners] == [False] + [True] * FORMER_OWNERS


@pytest.mark.parametrize("seed", range(5))
def test_no_two_members_ever_believe_in_claims_of_one_queue(seed: int) -> None:
    """Members believe in a claim for less than its life after they asked; generations only grow."""
    print(f"seed {seed}")
    dice, table, now_ms, highest = random.Random(seed), ClaimTable(LIFE_MS), 0, 0
    believed: dict[Asker, tuple[int, int]] = {}
    members = [Asker(name, name, 1) for name in "abc"]
    for _ in range(3000):
        now_ms += dice.randrange(LIFE_MS // 6)
        member = dice.choice(members)
        mine = believed.pop(member, (0, 0))[0]
        if mine and dice.random() < 0.3:
            released(table, member, mine, now_ms=now_ms)
        elif generation := claimed(table, member, now_ms=now_ms, generation=mine):
            assert generation == mine or generation > highest
            highest = max(highest, generation)
            believed[member] = generation, now_ms
        owners = [who for who, (_, at_ms) in believed.items() if now_ms - at_ms <= LIFE_MS]
        assert len(owners) <= 1, (now_ms, owners)


def handovers(directory: Path, journal: Journal | None = None) -> tuple[Handovers, OffsetTable]:
    journal = journal or Journal(None, role="broker", process="", boot_id="", level=Level.OFF)
    offsets = offset_table(
        directory / "offsets.json", journal, lambda: 0, fenced=lambda at, asker: made.fenced(at, asker)
    )
    made: Handovers = Handovers("broker-a", ClaimTable(LIFE_MS), offsets, journal, lambda: 0, lambda group: "")
    return made, offsets


def test_a_release_commits_and_frees_in_one_step(tmp_path: Path) -> None:
    made, offsets = handovers(tmp_path)
    at = Position("g", "orders", 0)
    (claim,) = made.claim("g", [QueueWish(FIRST)], A)
    offsets.commit(at, 50, by="oneway", asker=A._replace(seq=2))
    assert made.release("g", [Returned(QueueWish(FIRST, claim.generation), 60)], A._replace(seq=4)) == [FIRST]
    assert offsets.get(at) == 60
    offsets.commit(at, 55, by="piggyback", asker=A._replace(seq=3))
    assert offsets.get(at) == 60, "it was on its way when the queue was given back"


def test_a_release_by_who_lost_the_queue_commits_nothing(tmp_path: Path) -> None:
    made, offsets = handovers(tmp_path)
    made.claim("g", [QueueWish(FIRST)], B)
    assert (
        made.release("g", [Returned(QueueWish(FIRST, 7), 60), Returned(QueueWish(FIRST), 60)], Asker("a", "boot-a", 2))
        == []
    )
    assert offsets.get(Position("g", "orders", 0)) is None


def test_a_queue_given_back_unused_keeps_its_committed_offset(tmp_path: Path) -> None:
    made, offsets = handovers(tmp_path)
    offsets.commit(Position("g", "orders", 0), 5, by="oneway")
    asker = Asker("a", "boot-a", 1)
    made.claim("g", [QueueWish(FIRST)], asker)
    assert made.release("g", [Returned(QueueWish(FIRST))], asker) == [FIRST]
    assert offsets.get(Position("g", "orders", 0)) == 5


def test_an_operator_is_never_fenced_off(tmp_path: Path) -> None:
    made, offsets = handovers(tmp_path)
    made.claim("g", [QueueWish(FIRST)], Asker("a", "boot-a", 1))
    offsets.commit(Position("g", "orders", 0), 5, by="admin")
    assert offsets.get(Position("g", "orders", 0)) == 5


def test_the_journal_proves_that_a_queue_was_released_before_it_was_given_to_the_next(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, role="broker", process="b", boot_id="b0", level="forensic")
    made, _ = handovers(tmp_path, journal)
    one, two = Asker("a", "boot-a", 1), Asker("b", "boot-b", 2)
    made.claim("g", [QueueWish(FIRST)], one)
    made.claim("g", [QueueWish(FIRST)], two)
    made.release("g", [Returned(QueueWish(FIRST, 1), 60)], one)
    made.claim("g", [QueueWish(FIRST)], two)
    journal.close()
    fields = ("event", "client_boot_id", "granted", "generation", "value", "by", "new")
    assert [{name: line[name] for name in fields if name in line} for line in _lines(tmp_path)] == [
        {"event": "CLAIM", "client_boot_id": "boot-a", "granted": True, "generation": 1},
        {"event": "CLAIM", "client_boot_id": "boot-b", "granted": False, "generation": 1},
        {"event": "OFF_SET", "client_boot_id": "boot-a", "by": "release", "new": 60},
        {"event": "RELEASE", "client_boot_id": "boot-a", "granted": True, "generation": 1, "value": 60},
        {"event": "CLAIM", "client_boot_id": "boot-b", "granted": True, "generation": 2},
    ]  # fmt: skip


def _lines(directory: Path) -> list[dict[str, Any]]:
    (path,) = directory.glob("*.jsonl")
    return journalled(path)
