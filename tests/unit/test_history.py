"""The life of one message, from journals that are made by hand so that the truth is known."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dejamq_cli.history.files import journal_files
from dejamq_cli.history.search import find
from dejamq_cli.history.show import lines_of
from dejamq_cli.history.story import MessageStory
from dejamq_cli.history.telling import tell
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.journal.events import CheckTransaction, EndTransaction, Gap, MemberEvent, Pull, SendEnd, State, Tx
from dejamq_proto.journal.writer import Level
from dejamq_proto.names import HALF_TOPIC, SCHEDULE_TOPIC, dlq_topic, retry_topic
from dejamq_proto.records.hosts import offset_message_id
from journals import TOPIC, History

KEY = "billing-key-6"


def story(made: History, message_id: str = KEY) -> MessageStory:
    made.end()
    return tell(find(journal_files([made.directory]), message_id))


def told(found: MessageStory) -> list[str]:
    return [f"{step.actor} {step.text}" for step in found.steps]


@pytest.fixture
def made(tmp_path: Path) -> History:
    return History(tmp_path)


def simple_life(made: History) -> None:
    """Sent, stored, delivered, committed; everybody ends."""
    producer, broker, consumer = made.producer(), made.broker(), made.consumer()
    producer.send(KEY, request=3, call=1, broker=broker)
    broker.append(KEY, 6, producer, request=3)
    producer.send_result(3, "ok")
    queue = consumer.open_queue(6)
    consumer.handle(queue, 6, 7)
    consumer.persist(queue, 7)
    broker.offset_set(consumer, 6, 7)
    for process in (consumer, producer, broker):
        process.close()


def test_a_simple_life_is_told_in_time_order(made: History) -> None:
    simple_life(made)
    assert told(story(made)) == [
        "P1 sends it to billing-broker-0",
        "billing-broker-0 stores copy 1 in billing-broker-0 orders:0 at offset 6",
        "P1 try 1 is answered: stored",
        "C1 takes billing-broker-0 orders:0 from offset 6 on (broker)",
        "C1 handles copy 1: delivery 1",
        "C1 delivery 1 ends: success; all before offset 7 done",
        "C1 tells billing-broker-0: all before offset 7 done in billing-broker-0 orders:0 (timer)",
        "billing-broker-0 commits billing past copy 1 for C1 (6 → 7, oneway)",
        "C1 has ended", "P1 has ended", "billing-broker-0 has ended",
    ]  # fmt: skip


def test_the_end_of_another_process_is_no_line_that_a_running_one_should_have_gone_on_to(made: History) -> None:
    producer, broker, consumer = made.producer(), made.broker(), made.consumer()
    broker.append(KEY, 6, producer, request=3)
    consumer.handle(consumer.open_queue(6), 6, 7)
    broker.close()
    assert told(story(made))[-2:] == [
        "C1 delivery 1 ends: success; all before offset 7 done",
        "billing-broker-0 has ended",
    ]


def test_when_all_journals_are_whole_nothing_is_missing(made: History) -> None:
    simple_life(made)
    found = story(made)
    assert found.missing == []
    assert [(end.group, end.results, end.committed_past, end.unasked) for end in found.groups] == [
        ("billing", ["success"], [1], 0)
    ]


def test_the_text_begins_with_what_it_comes_to(made: History) -> None:
    simple_life(made)
    text = list(lines_of(story(made)))
    assert text[:2] == [f"{KEY}  topic orders", "billing: 1 delivery (success); committed past copy 1"]
    assert "copy 1  billing-broker-0 orders:0 @6  7F00000100002A9F0000000000000258  sent by P1" in text
    first = text[text.index("2026-09-21 UTC") + 1]
    assert first == "14:13:20.015     +0.0 ms  P1                sends it to billing-broker-0"


def test_a_broker_made_id_leads_to_the_same_story(made: History) -> None:
    simple_life(made)
    copy = offset_message_id(("127.0.0.1", 10911), 600)
    assert told(story(made, copy)) == told(story(made))


def test_the_same_log_offset_at_another_broker_is_another_message(made: History) -> None:
    simple_life(made)
    with pytest.raises(DejamqError, match="no journal speaks of message"):
        story(made, offset_message_id(("127.0.0.1", 9), 600))


@pytest.mark.parametrize("nobody", ["billing-key-7", "not hex", "00" * 16, ""])
def test_a_message_that_nobody_speaks_of_is_an_error(made: History, nobody: str) -> None:
    simple_life(made)
    with pytest.raises(DejamqError, match="no journal speaks of message"):
        story(made, nobody)


def test_a_delivery_that_nobody_asked_for_is_counted_and_points_to_the_audit(made: History) -> None:
    broker, first = made.broker(), made.consumer("c1")
    broker.append(KEY, 6)
    first.handle(first.open_queue(6), 6, 7)
    first.kill()
    second = made.consumer("c2")
    broker.offset_get(second, 6)
    second.handle(second.open_queue(6), 6, 7)
    found = story(made)
    assert found.groups[0].unasked == 1
    assert "billing-broker-0 tells C2 to begin orders:0 at offset 6 (table)" in told(found)
    assert any("`dejamq audit`" in line for line in lines_of(found))


def test_a_killed_process_is_named_with_what_its_journal_may_lack(made: History) -> None:
    broker, consumer = made.broker(), made.consumer(level=Level.AUDIT)
    broker.append(KEY, 6)
    consumer.deliver(consumer.open_queue(6), 6)
    consumer.kill()
    broker.close()
    assert story(made).missing == [
        "no line of the producer's: its journal, or the part of it that sent the message, is not here",
        "C1 has no line of its end: it was killed, and with it up to 100 ms of lines, or runs on",
        "C1: delivery 1 has no result, it was running when the journal ends",
    ]


def test_where_a_journal_breaks_off_is_told_in_its_place(made: History) -> None:
    broker, first = made.broker(), made.consumer("c1")
    broker.append(KEY, 6)
    first.deliver(first.open_queue(6), 6)
    broker.write(
        MemberEvent(
            broker_name=broker.name,
            group="billing",
            client_id=first.name,
            client_boot_id=first.boot_id,
            change="-",
            reason="close",
        )
    )
    second = made.consumer("c2")
    second.handle(second.open_queue(6), 6, 7)
    second.close()
    steps = told(story(made))
    assert steps[2:6] == [
        "C1 handles copy 1: delivery 1", "C1 its journal breaks off here",
        "billing-broker-0 sees C1 leave billing (close)",
        "C2 takes billing-broker-0 orders:0 from offset 6 on (broker)",
    ]  # fmt: skip


def test_holes_and_torn_lines_are_counted(made: History) -> None:
    producer, broker = made.producer(), made.broker()
    broker.skip_lines(3)
    broker.append(KEY, 6, producer, request=3)
    producer.close()
    broker.kill()
    with broker.path.open("ab") as file:
        file.write(b'{"event":"APPEND","orig')
    found = story(made)
    assert "billing-broker-0: 3 of its lines are not there, and the last one is torn" in found.missing


def test_a_client_without_a_journal_is_named(made: History) -> None:
    producer, broker = made.producer(), made.broker()
    broker.append(KEY, 6, producer, request=3)
    producer.close()
    producer.path.unlink()
    found = story(made)
    assert f"P1: its journal is not here (boot id {producer.boot_id})" in found.missing
    assert [(one.name, one.role) for one in found.processes] == [("billing-broker-0", "broker"), ("P1", "producer")]
    assert found.copies[0].origin == "sent by P1"


def test_who_only_looked_is_a_reader_whose_journal_nobody_misses(made: History) -> None:
    broker = made.broker()
    broker.append(KEY, 6)
    broker.write(Pull(
        broker_name=broker.name, group="TOOLS_CONSUMER", topic=TOPIC, queue_id=0, client_id="dejamq-cli@1",
        client_boot_id="cli1", request_seq=1, request_offset=6, next_offset=7, count=1, code=0,
    ))  # fmt: skip
    broker.close()
    found = story(made)
    assert told(found)[-2:] == [f"{broker.name} hands copy 1 to R1", f"{broker.name} has ended"]
    assert [(one.name, one.role, one.process) for one in found.processes][1:] == [("R1", "reader", "dejamq-cli@1")]
    assert not any("R1" in text for text in found.missing)


def test_a_broker_without_a_journal_is_named_and_the_consumer_knows_the_copy(made: History) -> None:
    consumer = made.consumer()
    consumer.handle(consumer.open_queue(6), 6, 7)
    found = story(made)
    assert "no journal of broker billing-broker-0" in found.missing
    assert [(copy.offset_message_id, copy.origin) for copy in found.copies] == [
        ("7F00000100002A9F0000000000000258", "not known")
    ]


def test_a_retry_is_followed_from_copy_to_copy(made: History) -> None:
    broker, consumer = made.broker(), made.consumer()
    broker.append(KEY, 6)
    queue = consumer.open_queue(6)
    failed = consumer.deliver(queue, 6, KEY)
    consumer.result(queue, failed, 6, 6, "exception", reason="ValueError: no")
    ref = f"{consumer.boot_id}:{failed}"
    broker.append(KEY, 0, topic=SCHEDULE_TOPIC, origin="sendback", origin_refs=[ref])
    consumer.send_back(failed, 6, KEY)
    broker.append(KEY, 1, topic=retry_topic("billing"), origin="schedule", origin_refs=["1:0"])
    consumer.handle(consumer.open_queue(1, topic=retry_topic("billing")), 1, 2, key=KEY, topic=retry_topic("billing"))
    found = story(made)
    assert [copy.origin for copy in found.copies] == ["sent", "given back by C1 after delivery 1", "copy 2 was due"]
    assert [(one.number, one.copy, one.result) for one in found.deliveries] == [(1, 1, "exception"), (2, 3, "success")]
    assert found.groups[0].unasked == 0
    assert "billing-broker-0 stores copy 3 for another try of billing, copy 2 was due" in told(found)


def test_a_dead_letter_is_called_one(made: History) -> None:
    broker, consumer = made.broker(), made.consumer()
    broker.append(KEY, 6)
    failed = consumer.deliver(consumer.open_queue(6), 6, KEY)
    ref = f"{consumer.boot_id}:{failed}"
    broker.append(KEY, 0, topic=dlq_topic("billing"), origin="sendback", origin_refs=[ref])
    expected = "billing-broker-0 stores copy 2 as a dead letter of billing, given back by C1 after delivery 1"
    assert expected in told(story(made))


def test_a_replayed_dead_letter_names_what_it_was(made: History) -> None:
    broker = made.broker()
    broker.append(KEY, 0, topic=dlq_topic("billing"), origin="sendback")
    letter = offset_message_id(("127.0.0.1", 10911), 0)
    broker.append(KEY, 1, topic=retry_topic("billing"), origin="admin", origin_refs=[letter])
    assert [copy.origin for copy in story(made).copies][1] == "copy 1 was sent again by an operator"


def test_tries_that_were_lost_are_told_with_their_doubt(made: History) -> None:
    producer, broker = made.producer(), made.broker()
    producer.send(KEY, request=3, call=1, broker=broker)
    broker.append(KEY, 6, producer, request=3)
    producer.send_result(3, "connection_lost", definite=False)
    producer.send(KEY, request=4, call=1, try_no=2, broker=broker)
    producer.write(SendEnd(call_ids=[1], unique_keys=[KEY], code=1, definite=False, reason="no time left"))
    found = story(made)
    assert told(found) == [
        "P1 sends it to billing-broker-0",
        "billing-broker-0 stores copy 1 in billing-broker-0 orders:0 at offset 6",
        "P1 try 1 connection lost; it may be stored all the same",
        "P1 sends it to billing-broker-0, try 2",
        "P1 gives up: no time left; it may be stored all the same",
    ]
    assert "P1: try 2 has no answer" in found.missing


def test_commits_are_told_when_they_pass_it_or_come_back_and_not_otherwise(made: History) -> None:
    broker, consumer = made.broker(), made.consumer()
    broker.append(KEY, 6)
    for old, new in ((0, 3), (3, 6), (6, 9), (9, 12), (12, 2), (2, 5)):
        broker.offset_set(consumer, old, new)
    found = story(made)
    assert [text for text in told(found) if "billing past" in text or "back before" in text] == [
        "billing-broker-0 commits billing past copy 1 for C1 (6 → 9, oneway)",
        "billing-broker-0 moves billing back before copy 1 for C1 (12 → 2, oneway)",
    ]
    assert found.groups[0].committed_past == []


def test_neighbours_are_left_out(made: History) -> None:
    broker, consumer = made.broker(), made.consumer()
    queue = consumer.open_queue(5)
    for offset in (5, 6, 7):
        broker.append(made.key(offset), offset)
        consumer.handle(queue, offset, offset + 1)
    assert sum(step.event in ("DELIVER", "RESULT", "APPEND") for step in story(made).steps) == 3


def test_stops_of_those_concerned_are_told_and_of_others_not(made: History) -> None:
    broker, consumer, other = made.broker(), made.consumer("c1"), made.consumer("c2")
    broker.append(KEY, 6)
    delivery = consumer.deliver(1, 6)
    for process in (consumer, other):
        process.write(Gap(missing_ms=1200))
        process.write(State(state="suspended", reason="by the program"))
    consumer.result(1, delivery, 6, 7)
    assert told(story(made))[2:4] == ["C1 did not run for 1200 ms", "C1 suspended (by the program)"]


def test_a_transaction_is_told_from_half_message_to_commit(made: History) -> None:
    producer, broker = made.producer(), made.broker()
    half: dict[str, Any] = {"broker_name": broker.name, "group": "shop", "unique_key": KEY}
    half |= {"half_queue_offset": 0, "half_log_offset": 0}
    broker.append(KEY, 0, producer, request=3, topic=HALF_TOPIC, origin="tx_half")
    broker.append(KEY, 1, topic=HALF_TOPIC, origin="tx_check", origin_refs=["0:0"])
    broker.write(CheckTransaction(**half, check_times=1, client_id=producer.name))
    producer.write(Tx(**half, state="commit", from_check=True, request_seq=4))
    broker.append(KEY, 5, producer, request=4, origin="tx_final", origin_refs=["1:100"])
    broker.write(EndTransaction(**half, state="commit", from_check=True, outcome="committed",
                                client_boot_id=producer.boot_id))  # fmt: skip
    name = broker.name
    found = story(made)
    assert [copy.origin for copy in found.copies] == [
        "sent by P1", "copy 1 was stored anew for its check", "copy 2 was committed",
    ]  # fmt: skip
    assert told(found) == [
        f"{name} stores copy 1 as a half message, hidden until its transaction ends",
        f"{name} stores copy 2 as a half message, hidden until its transaction ends, "
        "copy 1 was stored anew for its check",
        f"{name} asks P1 how the transaction ended, check 1",
        "P1 answers the check: commit",
        "P1 its journal breaks off here",
        f"{name} stores copy 3 in {name} orders:0 at offset 5, copy 2 was committed",
        f"{name} is told commit by P1: committed",
    ]


def test_a_message_without_an_id_of_its_own_is_followed_by_its_origin(made: History) -> None:
    broker, consumer = made.broker(), made.consumer()
    broker.append("", 5)
    broker.append("", 6)
    failed = consumer.deliver(1, 6, log_offset=600)
    ref = f"{consumer.boot_id}:{failed}"
    broker.append("", 9, topic=SCHEDULE_TOPIC, origin="sendback", origin_refs=[ref])
    broker.append("", 1, topic=retry_topic("billing"), origin="schedule", origin_refs=["1:9"])
    copy = offset_message_id(("127.0.0.1", 10911), 600)
    found = story(made, copy)
    assert found.message_id == copy
    assert [(one.topic, one.queue_offset) for one in found.copies] == [
        (TOPIC, 6), (SCHEDULE_TOPIC, 9), (retry_topic("billing"), 1),
    ]  # fmt: skip


def test_clocks_that_contradict_the_order_of_things_are_named(made: History) -> None:
    producer, broker = made.producer(), made.broker()
    made.clock.now_us += 5_000_000
    producer.send(KEY, request=3, call=1, broker=broker)
    made.clock.now_us -= 2_000_000
    broker.append(KEY, 6, producer, request=3)
    assert (
        "the clock of billing-broker-0 is at least 1998.0 ms behind that of P1: "
        "their steps are not in the order in which they happened"
    ) in story(made).missing


def test_several_folders_are_read_and_one_given_twice_counts_once(made: History, tmp_path: Path) -> None:
    simple_life(made)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in tmp_path.glob("producer-*.jsonl"):
        path.rename(elsewhere / path.name)
    found = tell(find(journal_files([tmp_path, elsewhere, tmp_path]), KEY))
    assert len(found.steps) == 11
    assert found.missing == []


def test_a_folder_without_journals_is_bad_use(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="journal_dir"):
            journal_files([folder])


def test_damage_never_ends_the_telling(made: History, chance: random.Random) -> None:
    """Lines cut, doubled and filled with other bytes: what is left is told."""
    simple_life(made)
    made.end()
    paths = journal_files([made.directory])
    whole = {path: path.read_bytes() for path in paths}
    for _ in range(100):
        for path, content in whole.items():
            damaged = bytearray(content)
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(damaged))
                damaged[at : at + chance.randrange(40)] = chance.randbytes(chance.randrange(20))
            path.write_bytes(damaged)
        try:
            found = tell(find(paths, KEY))
        except DejamqError:
            continue
        assert next(lines_of(found)).startswith(KEY)
        list(lines_of(found))


@pytest.mark.slow
def test_the_benchmark_tells_its_figures() -> None:
    program = Path(__file__).parents[2] / "benchmarks" / "history.py"
    command = [sys.executable, str(program), "--megabytes", "1", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["messages"] > 1000
    assert figures["steps"] == 5
