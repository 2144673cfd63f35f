"""The demo's last word: ledger rows against findings, delivery by delivery."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dejamq_lab.demo.compare import compare
from dejamq_lab.demo.ledger import Charge, ChargeLedger
from dejamq_lab.demo.orders import SLOW_MS, charge_delay_ms, order_body


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ChargeLedger]:
    ledger = ChargeLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


def charge(ledger: ChargeLedger, delivery: str, order: str) -> None:
    ledger.charge(Charge(delivery, order, 100, f"id-of-{order}", "consumer-1"))


def finding(first: str, second: str, *, result: str | None = "success", expected: bool = False) -> dict[str, Any]:
    return {
        "first": {"delivery_id": first, "result": result},
        "second": {"delivery_id": second, "result": "success"},
        "expected": expected,
    }


def test_a_double_charge_that_is_found_agrees(ledger: ChargeLedger) -> None:
    charge(ledger, "a-1", "o1")
    charge(ledger, "b-1", "o1")
    comparison = compare([finding("a-1", "b-1")], ledger)
    assert comparison.agrees
    assert comparison.double_charges == {"b-1"}


def test_a_double_charge_without_a_finding_disagrees(ledger: ChargeLedger) -> None:
    charge(ledger, "a-1", "o1")
    charge(ledger, "b-1", "o1")
    comparison = compare([], ledger)
    assert not comparison.agrees
    assert comparison.charges_without_finding == {"b-1"}


def test_a_finding_whose_first_delivery_ended_must_be_a_double_charge(ledger: ChargeLedger) -> None:
    charge(ledger, "b-1", "o1")
    comparison = compare([finding("a-1", "b-1")], ledger)
    assert not comparison.agrees
    assert comparison.findings_without_charge == {"b-1"}


def test_a_first_delivery_in_flight_at_the_crash_is_shown_apart(ledger: ChargeLedger) -> None:
    charge(ledger, "b-1", "o1")
    comparison = compare([finding("a-1", "b-1", result=None)], ledger)
    assert comparison.agrees
    assert comparison.unfinished_first == {"b-1"}


def test_a_first_delivery_in_flight_that_had_charged_is_still_a_double_charge(ledger: ChargeLedger) -> None:
    charge(ledger, "a-1", "o1")
    charge(ledger, "b-1", "o1")
    comparison = compare([finding("a-1", "b-1", result=None)], ledger)
    assert comparison.agrees
    assert comparison.double_charges == comparison.unfinished_first == {"b-1"}


def test_an_expected_duplicate_does_not_excuse_a_double_charge(ledger: ChargeLedger) -> None:
    charge(ledger, "a-1", "o1")
    charge(ledger, "b-1", "o1")
    assert not compare([finding("a-1", "b-1", expected=True)], ledger).agrees


def test_the_ledger_counts_per_process_and_per_order(ledger: ChargeLedger) -> None:
    for number in range(3):
        charge(ledger, f"a-{number}", f"o{number % 2}")
    assert ledger.charged_by() == {"consumer-1": 3}
    assert ledger.orders_charged() == 2


def test_an_order_is_the_same_each_time_it_is_made() -> None:
    assert order_body(17) == order_body(17)
    assert order_body(17) != order_body(18)


def test_few_orders_are_slow() -> None:
    slow = [number for number in range(4000) if charge_delay_ms(f"order-{number:06d}") == SLOW_MS]
    assert len(slow) == 19


def test_with_an_inbox_a_repeated_delivery_agrees_and_a_double_charge_does_not(ledger: ChargeLedger) -> None:
    charge(ledger, "a-1", "o1")
    turned_away = compare([finding("a-1", "b-1")], ledger, inbox=True)
    assert turned_away.agrees
    assert turned_away.findings_without_charge == {"b-1"}
    charge(ledger, "b-1", "o1")
    assert not compare([finding("a-1", "b-1")], ledger, inbox=True).agrees
