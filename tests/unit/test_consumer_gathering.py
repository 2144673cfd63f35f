"""At level ``audit`` successes are gathered before they are journalled, and so are the bytes they came in."""

from pathlib import Path

import pytest
from consumer_fakes import FakeLink, context, received
from dejamq.receiving import deliveries
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.values.message import MessageQueue
from journalled import journalled


def succeeded(told: Deliveries, number: int) -> None:
    """A message of a queue of its own is handled well."""
    owned = OwnedQueue(number, MessageQueue("orders", "broker-a", number), ProcessQueue(0), 0)
    messages = received(owned, 0)
    told.enter(owned, messages[0])
    told.succeed(owned, messages)


async def test_what_hundreds_of_queues_have_gathered_is_written_when_it_is_much_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "GATHER_OF_ALL", 5)
    made = context(FakeLink(), tmp_path, "audit")
    told, written = Deliveries(made), list[int]()
    for number in range(12):
        succeeded(told, number)
        made.journal.flush()
        written.append(sum(line["event"] == "RESULT" for line in journalled(tmp_path)))
    assert written == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10]
    told.close()
    made.journal.close()
    assert [line["queue_id"] for line in journalled(tmp_path, "DELIVER")] == list(range(12))
