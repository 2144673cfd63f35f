"""The judges of hand-overs, on trial with hand-made histories."""

from typing import Any

import pytest
from churn import Told
from dejamq_lab.duplicates import Delivery, Duplicate
from handover_proof import given_too_early, owned_twice

PLACE = {"group": "g", "broker_name": "b", "topic": "t", "queue_id": 0}


def claim(boot_id: str, generation: int, age_ms: int = 0) -> dict[str, Any]:
    return PLACE | {
        "event": "CLAIM", "client_boot_id": boot_id, "generation": generation, "granted": True, "age_ms": age_ms
    }  # fmt: skip


def release(boot_id: str, *, granted: bool = True) -> dict[str, Any]:
    return PLACE | {"event": "RELEASE", "client_boot_id": boot_id, "granted": granted}


def opened(boot_id: str, pq_id: int, generation: int) -> dict[str, Any]:
    return PLACE | {"event": "PQ_OPEN", "boot_id": boot_id, "pq_id": pq_id, "generation": generation}


def dropped(boot_id: str, pq_id: int) -> dict[str, Any]:
    return PLACE | {"event": "PQ_DROP", "boot_id": boot_id, "pq_id": pq_id}


@pytest.mark.parametrize(
    ("history", "wrong"),
    [
        ([claim("a", 1), claim("a", 1, 5), release("a"), claim("b", 2)], 0),
        ([claim("a", 1), claim("b", 2, 101)], 0),
        ([claim("a", 1), claim("b", 2, 100)], 1),
        ([claim("a", 1), release("a", granted=False), claim("b", 2, 5)], 1),
        ([claim("a", 1), release("a"), claim("b", 2), claim("a", 3, 5)], 1),
    ],
)
def test_a_claim_that_was_granted_too_early_is_seen(history: list[dict[str, Any]], wrong: int) -> None:
    assert len(given_too_early(history, 100)) == wrong


@pytest.mark.parametrize(
    ("history", "wrong"),
    [
        ([opened("a", 1, 1), dropped("a", 1), opened("b", 1, 2), dropped("b", 1)], 0),
        ([opened("a", 1, 1), opened("b", 1, 2), dropped("a", 1)], 1),
        ([opened("a", 1, 1), dropped("b", 1), opened("b", 2, 2)], 1),
        ([opened("a", 1, 2), dropped("a", 1), opened("b", 1, 1)], 1),
    ],
)
def test_a_queue_with_two_owners_is_seen(history: list[dict[str, Any]], wrong: int) -> None:
    assert len(owned_twice(history)) == wrong


def told(**deliveries: list[str]) -> Told:
    made = Told(sent=2)
    made.deliveries |= {"0": ["boot-1"], "1": ["boot-2"]} | {key[1:]: ids for key, ids in deliveries.items()}
    return made


def duplicate(*delivery_ids: int) -> Duplicate:
    one, two = (Delivery("p", "boot", number, "b", "t", 0, 7, "key", "", number) for number in delivery_ids)
    return Duplicate("I1", "g", "key", one, two)


def test_a_lost_message_is_seen() -> None:
    made = told()
    made.sent = 3
    for check in (made.check_graceful, made.check_told):
        with pytest.raises(AssertionError, match="lost"):
            check()


def test_a_repeat_is_seen_and_must_be_told_with_both_deliveries() -> None:
    made = told(_1=["boot-2", "boot-3", "boot-4"])
    with pytest.raises(AssertionError, match="twice"):
        made.check_graceful()
    for found in ([], [duplicate(2, 3)], [duplicate(2, 3), duplicate(2, 4)], [duplicate(2, 3), duplicate(3, 5)]):
        made.duplicates = found
        with pytest.raises(AssertionError):
            made.check_told()
    made.duplicates = [duplicate(2, 3), duplicate(3, 4)]
    made.check_told()


def test_a_duplicate_that_no_handler_saw_is_seen() -> None:
    made = told()
    made.duplicates = [duplicate(2, 3)]
    with pytest.raises(AssertionError):
        made.check_told()
