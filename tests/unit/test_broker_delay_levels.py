"""Delay levels through time: in order, never early, never stuck, and exact over a restart."""

import errno
from pathlib import Path

import pytest
from dejamq_broker.deferred.delay import scheduled
from dejamq_broker.store import Appended, StoreConfig, StoreFull
from dejamq_broker.writing.record_writer import RecordOrigin
from dejamq_proto.codes import ConfigError
from dejamq_proto.records.record import Record, decode, encode_properties
from delay_world import BACKOFF_MS, SCHEDULE, Clock, World, world

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


def failing(world: World, error: Exception, topic: str) -> None:
    """Puts to this topic fail from now on."""
    put = world.writer.put

    def refuse(record: Record, origin: RecordOrigin) -> Appended:
        if record.topic == topic:
            raise error
        return put(record, origin)

    world.writer.put = refuse  # type: ignore[method-assign]  # a disk that fails for this topic


def overwrite(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("table", "levels_ms"),
    [
        ("1s", (1000,)),
        ("1s 2m 3h 4d", (1000, 120_000, 3 * HOUR_MS, 96 * HOUR_MS)),
        (" ".join(["7s"] * 40), (7000,) * 40),
    ],
    ids=["one", "every unit", "more than 18"],
)
def test_the_table_of_levels_takes_rocketmqs_units_and_any_number_of_levels(
    table: str, levels_ms: tuple[int, ...]
) -> None:
    config = StoreConfig(message_delay_level=table)
    config.validate()
    assert config.delay_levels_ms == levels_ms


@pytest.mark.parametrize("table", ["", "1", "s", "1w", "1s,5s", "-1s", "1.5s"])
def test_a_table_that_cannot_be_read_is_refused_at_the_start(table: str) -> None:
    with pytest.raises(ConfigError):
        StoreConfig(message_delay_level=table).validate()


def test_rocketmqs_table_is_the_default() -> None:
    minutes = [60_000 * number for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)]
    assert StoreConfig().delay_levels_ms == (1000, 5000, 10_000, 30_000, *minutes)


async def test_what_is_due_comes_in_the_order_in_which_it_was_stored(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as delays:
        for number in range(100):
            delays.delay(1, b"%d" % number)
            clock.now_ms += 1
        clock.now_ms += 949
        await delays.service.step()
        assert delays.delivered() == [b"%d" % number for number in range(50)]
        clock.now_ms += 1000
        await delays.service.step()
        assert delays.delivered() == [b"%d" % number for number in range(100)]


async def test_nothing_comes_one_millisecond_early_at_any_level(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as delays:
        for level in (1, 2, 3):
            delays.delay(level, b"%d" % level)
        for due_ms, before, after in ((1000, [], [b"1"]), (5000, [b"1"], [b"1", b"2"])):
            clock.now_ms = 1_700_000_000_000 + due_ms - 1
            await delays.service.step()
            assert delays.delivered() == before
            clock.now_ms += 1
            await delays.service.step()
            assert delays.delivered() == after


async def test_a_long_backlog_of_one_level_keeps_no_other_level_waiting(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as delays:
        for _ in range(500):
            delays.delay(1)
        delays.delay(2)
        clock.now_ms += 5000
        await delays.service.step()
        assert len(delays.deliveries) == 501
        assert delays.deliveries.index("2:0") < 100


async def test_a_level_that_cannot_be_delivered_rests_and_goes_on_where_it_stopped(
    tmp_path: Path, clock: Clock
) -> None:
    with world(tmp_path, clock) as delays:
        delays.delay(1, b"before")
        delays.delay(1, topic="full")
        delays.delay(1, b"behind")
        delays.delay(2, b"other level")
        failing(delays, StoreFull("no room"), "full")
        clock.now_ms += 5000
        await delays.service.step()
        assert delays.delivered() == [b"before", b"other level"]
        assert delays.progress.get(1) == 1
        failing(delays, StoreFull("no room"), "nothing fails any more")
        clock.now_ms += BACKOFF_MS - 1
        await delays.service.step()
        assert delays.progress.get(1) == 1


@pytest.mark.parametrize("error", [StoreFull("no room"), OSError(errno.EIO, "disk"), RuntimeError("a bug")])
async def test_after_its_rest_a_level_delivers_everything_once_whatever_had_failed(
    tmp_path: Path, clock: Clock, error: Exception
) -> None:
    with world(tmp_path, clock) as delays:
        put = delays.writer.put
        for body in (b"1", b"2"):
            delays.delay(1, body)
        failing(delays, error, "orders")
        clock.now_ms += 1000
        await delays.service.step()
        assert delays.deliveries == []
        delays.writer.put = put  # type: ignore[method-assign]  # the disk is well again
        clock.now_ms += BACKOFF_MS
        await delays.service.step()
        assert delays.deliveries == ["1:0", "1:1"]


async def test_a_clock_that_is_moved_back_ends_a_rest_and_delivers_what_would_wait_too_long(
    tmp_path: Path, clock: Clock
) -> None:
    with world(tmp_path, clock) as delays:
        put = delays.writer.put
        delays.delay(1)
        failing(delays, StoreFull("no room"), "orders")
        clock.now_ms += 1000
        await delays.service.step()
        delays.writer.put = put  # type: ignore[method-assign]  # there is room again
        clock.now_ms -= HOUR_MS
        await delays.service.step()
        assert delays.deliveries == ["1:0"]


async def test_under_a_shorter_table_nothing_waits_longer_than_it_says(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock, "2h") as delays:
        delays.delay(1)
    with world(tmp_path, clock, "1s") as delays:
        clock.now_ms += 1000
        await delays.service.step()
        assert delays.deliveries == ["1:0"]


async def test_a_level_that_left_the_table_keeps_its_messages_until_it_is_back(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as delays:
        delays.delay(3)
    clock.now_ms += HOUR_MS
    with world(tmp_path, clock, "1s 5s") as delays:
        await delays.service.step()
        assert delays.deliveries == []
    with world(tmp_path, clock) as delays:
        await delays.service.step()
        assert delays.deliveries == ["3:0"]


async def test_a_level_above_the_last_one_waits_as_long_as_the_last_one(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock, "1s 5s") as delays:
        delays.delay(99)
        clock.now_ms += 4999
        await delays.service.step()
        assert delays.deliveries == []
        clock.now_ms += 1
        await delays.service.step()
        assert delays.deliveries == ["2:0"]


async def test_a_restart_goes_on_after_the_last_delivery_and_not_before_time(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as delays:
        for _ in range(5):
            delays.delay(1)
        clock.now_ms += 500
        delays.delay(1, b"later")
        clock.now_ms += 500
        await delays.service.step()
        await delays.progress.flush()
    with world(tmp_path, clock) as delays:
        await delays.service.step()
        assert delays.deliveries == []
        clock.now_ms += 500
        await delays.service.step()
        assert delays.deliveries == ["1:5"]


async def test_a_crash_repeats_exactly_what_was_delivered_since_progress_was_written(
    tmp_path: Path, clock: Clock
) -> None:
    with world(tmp_path, clock) as delays:
        for _ in range(5):
            delays.delay(1)
        clock.now_ms += 1000
        await delays.service.step()
        await delays.progress.flush()
        for _ in range(3):
            delays.delay(1)
        clock.now_ms += 1000
        await delays.service.step()
    with world(tmp_path, clock) as delays:
        await delays.service.step()
        assert delays.deliveries == ["1:5", "1:6", "1:7"]


@pytest.mark.parametrize("damaged", [0, 1, 2])
async def test_a_damaged_record_is_passed_over_and_those_around_it_are_delivered(
    tmp_path: Path, clock: Clock, damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    with world(tmp_path, clock) as delays:
        for number in range(3):
            delays.delay(1, b"%d" % number)
        found = delays.store.read(SCHEDULE, 0, 0, max_messages=3)
        at = sum(found.sizes[:damaged])
    (log_file,) = [path for path in (tmp_path / "store/commitlog").iterdir() if path.name.isdecimal()]
    overwrite(log_file, at + 20, b"\xff" * 8)  # the queue offset
    clock.now_ms += 1000
    with world(tmp_path, clock) as delays:
        await delays.service.step()
        assert delays.delivered() == [b"%d" % number for number in range(3) if number != damaged]
        assert delays.progress.get(1) == 3
    assert "delayed_message_damaged" in caplog.text


async def test_messages_that_belong_nowhere_or_to_the_broker_itself_are_passed_over(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with world(tmp_path, clock) as delays:
        delays.delay(1, topic="RMQ_SYS_TRANS_HALF_TOPIC")
        delays.delay(1, topic=SCHEDULE)
        delays.delay(1, b"mine")
        clock.now_ms += 1000
        await delays.service.step()
        assert delays.deliveries == ["1:2"]
    assert caplog.text.count("delayed_message_homeless") == 2


async def test_what_is_delivered_is_the_message_as_it_was_sent_but_for_its_store_time(
    tmp_path: Path, clock: Clock
) -> None:
    with world(tmp_path, clock) as delays:
        sent = Record(
            topic="orders", queue_id=3, body=b"x", raw_properties=encode_properties({"DELAY": "1", "TAGS": "paid"}),
            flag=7, born_timestamp_ms=5, born_host=("10.0.0.1", 7), store_host=("10.0.0.2", 8), reconsume_times=2,
        )  # fmt: skip
        delays.store.put(scheduled(sent, 3))
        clock.now_ms += 1000
        await delays.service.step()
        found = delays.store.read("orders", 3, 0)
    delivered = decode(found.records)
    for name in (
        "topic",
        "queue_id",
        "body",
        "flag",
        "born_timestamp_ms",
        "born_host",
        "store_host",
        "reconsume_times",
    ):
        assert getattr(delivered, name) == getattr(sent, name), name
    assert delivered.store_timestamp_ms == clock.now_ms
    assert delivered.properties == {"DELAY": "1", "TAGS": "paid", "REAL_TOPIC": "orders", "REAL_QID": "3"}


async def test_closing_leaves_what_is_due_for_the_next_start(tmp_path: Path, clock: Clock) -> None:
    with world(tmp_path, clock) as delays:
        delays.delay(1)
        clock.now_ms += 1000
        await delays.service.close()
        await delays.service.step()
        assert delays.deliveries == []
