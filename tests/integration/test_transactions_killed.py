"""The short form of ``prove_transactions.py``, and its judge on trial."""

from pathlib import Path
from typing import Any

import pytest
from dejamq import MessageQueue, SendStatus, TransactionResult
from dejamq.values.message import SendResult
from transaction_traffic import CLOSING, COMMIT, ROLLBACK, Ledger, killed_again_and_again

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]


@pytest.mark.parametrize("settings", [{}, CLOSING], ids=["windows open", "windows closed"])
async def test_no_commit_is_lost_and_no_rollback_delivered_while_the_broker_is_killed(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    seed = 1121
    ledger = await killed_again_and_again(tmp_path, 1, seed, settings)
    assert len(ledger.committed) > 10, f"seed {seed}"
    ledger.check()
    if settings:
        assert not ledger.doubled, f"seed {seed}"


def ledger_of(**places: set[tuple[int, int]]) -> Ledger:
    """``a`` was committed, ``b`` rolled back; delivered as told."""
    ledger = Ledger({"a": COMMIT, "b": ROLLBACK})
    stored: Any = None
    sent = SendResult(SendStatus.SEND_OK, "a", MessageQueue("orders", "broker-a", 0), 0, stored, 0)
    ledger.returned.append(TransactionResult(COMMIT, sent))
    ledger.places.update(places)
    return ledger


def test_a_lost_commit_and_a_delivered_rollback_are_seen() -> None:
    ledger_of(a={(0, 0)}).check()
    with pytest.raises(AssertionError, match="lost"):
        ledger_of().check()
    with pytest.raises(AssertionError, match="rolled back"):
        ledger_of(a={(0, 0)}, b={(0, 1)}).check()


def finding(cause: str | None, first: int, second: int, key: str = "a", **more: Any) -> dict[str, Any]:
    sides = {side: {"queue_id": 0, "queue_offset": at} for side, at in (("first", first), ("second", second))}
    return {"identity": "I2", "message_id": key, "cause": cause, "missing": "", **sides} | more


@pytest.mark.parametrize(
    ("findings", "right"),
    [
        ([finding("P7", 0, 4)], True),
        ([finding("P8", 0, 4), finding("O1", 0, 0, identity="I1")], True),
        ([finding(None, 0, 4, missing="no APPEND line of it, only its commit log")], True),
        ([], False),
        ([finding("P1", 0, 4)], False),
        ([finding(None, 0, 4, missing="seq gap")], False),
        ([finding("P7", 0, 5)], False),
        ([finding("P7", 0, 4), finding("P7", 1, 2, "b")], False),
    ],
)
def test_what_was_doubled_must_be_told_with_its_records_and_nothing_else(
    findings: list[dict[str, Any]], right: bool
) -> None:
    ledger = ledger_of(a={(0, 0), (0, 4)})
    if right:
        ledger.check_told(findings)
    else:
        with pytest.raises(AssertionError):
            ledger.check_told(findings)
