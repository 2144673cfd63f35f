"""How delayed and retried records change their place, and what stays in them (compare: stores of a real broker)."""

import json
from pathlib import Path

import pytest
from broker_tables import delay_progress
from dejamq_broker.deferred.delay import restored, scheduled
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.deferred.retry import next_try
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import Record, decode, encode, encode_properties
from journalled import journalled

LEVELS = 18
GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def record(topic: str = "orders", **properties: str) -> Record:
    return Record(
        topic=topic, queue_id=3, body=b"body", raw_properties=encode_properties(properties), reconsume_times=2,
        log_offset=0x1234, store_host=("127.0.0.1", 10911), born_host=("10.0.0.1", 7), born_timestamp_ms=5,
    )  # fmt: skip


@pytest.mark.parametrize(("delay", "queue_id"), [("1", 0), ("3", 2), ("18", 17), ("19", 17), ("99999", 17)])
def test_a_delay_waits_in_its_levels_queue(delay: str, queue_id: int) -> None:
    waiting = scheduled(record(DELAY=delay, TAGS="x"), LEVELS)
    assert (waiting.topic, waiting.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue_id)
    assert waiting.properties == {
        "DELAY": str(queue_id + 1),
        "TAGS": "x",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize("delay", ["0", "-1", "--5", "²", "soon", ""])
def test_no_delay_is_no_detour(delay: str) -> None:
    plain = record(DELAY=delay)
    assert scheduled(plain, LEVELS) is plain


def test_a_due_record_returns_with_everything_it_had() -> None:
    waiting = scheduled(record(DELAY="2", KEYS="k"), LEVELS)
    due = restored(waiting)
    assert due is not None
    assert (due.topic, due.queue_id, due.reconsume_times, due.born_host) == ("orders", 3, 2, ("10.0.0.1", 7))
    assert due.raw_properties == waiting.raw_properties


@pytest.mark.parametrize(
    "properties", [{}, {"REAL_TOPIC": "t"}, {"REAL_TOPIC": "t", "REAL_QID": "x"}, {"REAL_TOPIC": "t", "REAL_QID": "²"}]
)
def test_a_record_without_a_home_is_known_as_such(properties: dict[str, str]) -> None:
    assert restored(record("SCHEDULE_TOPIC_XXXX", **properties)) is None


def test_a_long_retry_topic_survives_the_detour() -> None:
    home = "%RETRY%" + "g" * 130
    due = restored(scheduled(record(home, DELAY="1"), LEVELS))
    assert due is not None
    assert decode(encode(due)).topic == home


def test_a_next_try_counts_and_remembers_where_the_first_one_was() -> None:
    first = next_try(record(TAGS="x", UNIQ_KEY="u", WAIT="true"), "%RETRY%g", 0, 5)
    assert (first.topic, first.queue_id, first.reconsume_times, first.body) == ("%RETRY%g", 0, 3, b"body")
    assert first.properties == {
        "TAGS": "x",
        "UNIQ_KEY": "u",
        "WAIT": "false",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000001234",
        "DELAY": "5",
    }
    second = next_try(first, "%DLQ%g", 0, 0)
    assert second.properties["RETRY_TOPIC"] == "orders"
    assert second.properties["ORIGIN_MESSAGE_ID"] == first.properties["ORIGIN_MESSAGE_ID"]
    assert second.properties["DELAY"] == "0"


def progress_in(directory: Path) -> DelayProgress:
    journal = Journal(None, role="broker", process="b", boot_id="x", level=Level.OFF)
    return delay_progress(directory / "delayOffset.json", journal)


async def test_what_was_read_at_the_start_is_journalled(tmp_path: Path) -> None:
    progress = progress_in(tmp_path)
    progress.set(3, 7)
    await progress.flush()
    journal = Journal(tmp_path / "j.jsonl", role="broker", process="b", boot_id="x", level=Level.FORENSIC)
    for name in ("delayOffset.json", "none.json"):
        delay_progress(tmp_path / name, journal).load()
    lines = journalled(tmp_path / "j.jsonl")
    told = [(line["event"], line["service"], line["source"], line["progress"]) for line in lines]
    assert told == [("PROGRESS_LOAD", "schedule", "main", '{"3":7}'), ("PROGRESS_LOAD", "schedule", "none", "{}")]
    journal.close()


async def test_progress_survives_and_is_written_only_when_it_moved(tmp_path: Path) -> None:
    progress = progress_in(tmp_path)
    progress.set(3, 0)
    await progress.flush()
    assert not progress.path.exists()
    progress.set(3, 7)
    await progress.flush()
    again = progress_in(tmp_path)
    again.load()
    assert (again.get(3), again.get(4)) == (7, 0)
    assert json.loads(progress.path.read_text())["offsetTable"] == {"3": 7}


@pytest.mark.parametrize(("kind", "offsets"), [("clean", (13, 6)), ("crash", (12, 6))])
def test_a_real_brokers_progress_is_read(tmp_path: Path, kind: str, offsets: tuple[int, int]) -> None:
    source = GOLDEN / kind / "store/config/delayOffset.json"
    (tmp_path / "delayOffset.json").write_bytes(source.read_bytes())
    progress = progress_in(tmp_path)
    progress.load()
    assert (progress.get(1), progress.get(2)) == offsets
