"""The demo's parts: orders, the ledger, who shares the queues, and what is told at the end."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_analytics.report.causes import CAUSES
from dejamq_lab.demo import telling
from dejamq_lab.demo.compare import LedgerComparison
from dejamq_lab.demo.ledger import Charge, ChargeLedger
from dejamq_lab.demo.orders import charge_delay_ms, order_body, order_tag
from dejamq_lab.demo.producer import order_message
from dejamq_lab.demo.story import Story, StoryFailed, sharing
from dejamq_proto.journal.events import Assign
from rich.console import Console

AGREED = LedgerComparison(set(), set(), {"b-1", "b-2"}, {"b-3"})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ChargeLedger]:
    ledger = ChargeLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


def charge(ledger: ChargeLedger, delivery: str, order: str, process: str = "consumer-1") -> None:
    ledger.charge(Charge(delivery, order, 100, "id", process))


def test_one_order_is_the_same_each_time_and_differs_from_the_next() -> None:
    assert order_body(7) == order_body(7) != order_body(8)


def test_an_order_travels_with_its_number_as_key() -> None:
    message = order_message(42)
    assert message.keys == ("order-000042",)
    assert json.loads(message.body)["order_id"] == "order-000042"
    assert message.tags == order_tag(42)


def test_one_order_in_two_hundred_and_eleven_is_slow() -> None:
    slow = [number for number in range(1200) if charge_delay_ms(f"order-{number:06d}")]
    assert slow == [7, 218, 429, 640, 851, 1062]


def test_charges_are_counted_by_process_and_orders_once(ledger: ChargeLedger) -> None:
    charge(ledger, "a-1", "o1")
    charge(ledger, "b-1", "o1", "consumer-2")
    charge(ledger, "a-2", "o2")
    assert ledger.charged_by() == {"consumer-1": 2, "consumer-2": 1}
    assert ledger.orders_charged() == 2


def test_every_charge_of_an_order_but_the_first_is_a_double_one(ledger: ChargeLedger) -> None:
    for delivery in ("a-1", "b-1", "c-1"):
        charge(ledger, delivery, "o1")
    charge(ledger, "a-2", "o2")
    assert ledger.double_charges() == {"b-1", "c-1"}


def test_another_process_sees_a_charge_at_once(ledger: ChargeLedger, tmp_path: Path) -> None:
    other = ChargeLedger(tmp_path / "ledger.sqlite")
    charge(ledger, "a-1", "o1")
    assert other.orders_charged() == 1
    other.close()


def assign(topic: str, *members: str) -> bytes:
    event = Assign(
        group="billing", topic=topic, client_id=members[0], round=1, namesrv="n", route_digest="d",
        broker_name="broker-a", members=list(members), strategy="averagely", queues=[],
    )  # fmt: skip
    return msgspec.json.encode(event) + b"\n"


def test_consumers_share_the_queues_when_both_saw_both_in_their_last_round(tmp_path: Path) -> None:
    (tmp_path / "consumer-a.jsonl").write_bytes(assign("orders", "a") + assign("orders", "a", "b"))
    (tmp_path / "consumer-b.jsonl").write_bytes(assign("orders", "b"))
    assert sharing(tmp_path) == 1
    (tmp_path / "consumer-b.jsonl").write_bytes(assign("orders", "a", "b"))
    assert sharing(tmp_path) == 2


def test_rounds_of_the_retry_topic_say_nothing_about_the_orders(tmp_path: Path) -> None:
    (tmp_path / "consumer-a.jsonl").write_bytes(assign("%RETRY%billing", "a", "b"))
    assert sharing(tmp_path) == 0


def test_a_folder_with_something_else_in_it_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoryFailed, match="something else"):
        Story(1, tmp_path)._make_room()
    assert (tmp_path / "thesis.txt").exists()


def test_an_earlier_demos_folder_is_made_anew(tmp_path: Path) -> None:
    Story(1, tmp_path)._make_room()
    (tmp_path / "report.html").write_text("old")
    Story(1, tmp_path)._make_room()
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def told(directory: Path, comparison: LedgerComparison, findings: list[dict[str, Any]], **verdict: Any) -> str:
    numbers = {
        "messages": 10, "deliveries": 12, "duplicates": 2, "unfinished_first": 1, "causes": {}, "undetermined": 0,
    }  # fmt: skip
    (directory / "verdict.json").write_text(json.dumps(numbers | verdict))
    output = io.StringIO()
    telling.tell(Console(file=output, width=200, highlight=False), directory, findings, comparison)
    return output.getvalue()


def proof(cause: str, *, expected: bool = False, message_id: str = "M1") -> dict[str, Any]:
    second = {"topic": "orders", "broker_name": "broker-a", "queue_id": 3, "queue_offset": 41}
    line = {"process": "consumer-1", "seq": 9, "event": "DELIVER", "summary": "queue offset 41 [red]"}
    return {
        "cause": cause, "expected": expected, "message_id": message_id, "business_key": "order-1",
        "second": second, "evidence": [line],
    }  # fmt: skip


def test_the_telling_begins_with_the_numbers(tmp_path: Path) -> None:
    assert "10 messages, 12 deliveries, 2 duplicates (1 were in flight at the crash)" in told(tmp_path, AGREED, [])


def test_each_cause_is_told_with_one_proof(tmp_path: Path) -> None:
    text = told(tmp_path, AGREED, [proof("O1"), proof("O1", message_id="M2")], causes={"O1": 2})
    assert "One O1: message M1 order-1" in text
    assert "M2" not in text
    assert "stored at orders broker-a queue 3 offset 41" in text


def test_a_proof_is_never_a_duplicate_that_was_asked_for(tmp_path: Path) -> None:
    text = told(tmp_path, AGREED, [proof("L1", expected=True), proof("L1", message_id="M2")], causes={"L1": 1})
    assert "message M2" in text


def test_evidence_is_printed_as_it_stands(tmp_path: Path) -> None:
    assert "queue offset 41 [red]" in told(tmp_path, AGREED, [proof("O7")], causes={"O7": 1})


def test_every_cause_has_its_meaning_beside_it(tmp_path: Path) -> None:
    text = told(tmp_path, AGREED, [], causes=dict.fromkeys(CAUSES, 1))
    assert all(f"{cause.title} " in text for cause in CAUSES.values())


def test_in_a_pipe_a_line_of_evidence_is_never_broken(tmp_path: Path) -> None:
    long = proof("O2")
    long["evidence"][0]["summary"] = "of a commit " * 40
    assert "of a commit " * 40 in told(tmp_path, AGREED, [long], causes={"O2": 1})


def test_what_could_not_be_determined_has_a_row_of_its_own(tmp_path: Path) -> None:
    assert "evidence is missing" in told(tmp_path, AGREED, [], undetermined=4)
    assert "evidence is missing" not in told(tmp_path, AGREED, [])


def test_agreement_and_disagreement_are_said_in_words(tmp_path: Path) -> None:
    assert "Ledger and audit agree, delivery by delivery." in told(tmp_path, AGREED, [])
    text = told(tmp_path, LedgerComparison({"x-1"}, {"y-1"}, set(), set()), [])
    assert "Ledger and audit disagree." in text
    assert "charged twice, not found: 1 ['x-1']" in text
    assert "found, not charged twice: 1 ['y-1']" in text


def test_the_telling_of_an_inbox_says_whether_any_order_was_charged_twice(tmp_path: Path) -> None:
    once = LedgerComparison(set(), {"b-1", "b-2"}, set(), set(), inbox=True)
    assert "No order was charged twice: the inbox turned 2 deliveries away." in told(tmp_path, once, [])
    twice = LedgerComparison(set(), set(), {"b-1"}, set(), inbox=True)
    assert "Charged twice although there is an inbox: 1 ['b-1']" in told(tmp_path, twice, [])


def test_the_telling_ends_with_the_paths(tmp_path: Path) -> None:
    lines = told(tmp_path, AGREED, []).strip().splitlines()
    assert [Path(line.strip()).name for line in lines[-3:]] == ["verdict.json", "findings", "report.html"]
