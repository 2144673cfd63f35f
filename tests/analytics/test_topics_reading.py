"""Topics read as the Spark source reads them, without Spark, from a broker of ours: what comes, and what is lost."""

import itertools
import json
import logging
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dejamq_analytics.topics.cluster import ServerConnections
from dejamq_analytics.topics.options import ReadOptions
from dejamq_analytics.topics.places import Piece, TopicQueue, of_json
from dejamq_analytics.topics.queue_reader import COLUMNS, DataLost
from dejamq_analytics.topics.source import QueuePart, TopicReader, TopicStreamReader, read
from dejamq_proto.codes import BrokerUnavailable, ConfigError, DejamqError, RouteNotFound
from dejamq_proto.loose_json import loads_loose
from dejamq_proto.records.compression import Compression
from dejamq_proto.remoting import requests as r
from pyspark.sql.streaming.datasource import ReadAllAvailable
from topic_cluster import BROKER, Served, served

numbers = itertools.count()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "store") as running:
        yield running


@pytest.fixture
def topic(servers: Served) -> str:
    """A new one with two queues."""
    name = f"topic-{next(numbers)}"
    servers.topic(name, 2)
    return name


def options(servers: Served, topic: str, **more: Any) -> ReadOptions:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in more.items()}
    return ReadOptions.of({"namesrv": servers.namesrv, "topic": topic, **given})


def rows(servers: Served, topic: str, **more: Any) -> list[dict[str, Any]]:
    """All of a batch, part by part."""
    reader = TopicReader(options(servers, topic, **more))
    return [dict(zip(COLUMNS, row, strict=True)) for part in reader.partitions() for row in reader.read(part)]


def offsets(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["queue_id"], row["queue_offset"]) for row in found]


def places(topic: str, *numbers: int) -> dict[str, Any]:
    """Of queue 0, 1, …, as in JSON."""
    return {topic: {BROKER: {str(queue): offset for queue, offset in enumerate(numbers)}}}


@contextmanager
def stream(servers: Served, topic: str, **more: Any) -> Iterator[TopicStreamReader]:
    """As Spark keeps it for a query."""
    reader = TopicStreamReader(options(servers, topic, **more))
    try:
        yield reader
    finally:
        reader.stop()


def parts(reader: TopicStreamReader, start: Any, end: Any) -> list[Piece]:
    return [part.piece for part in reader.partitions(start, end) if isinstance(part, QueuePart)]


def test_a_row_has_what_the_producer_sent_and_what_the_broker_knows(servers: Served, topic: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    properties = "UNIQ_KEY\x01K9\x02TAGS\x01paid\x02KEYS\x01k1 k2\x02colour\x01red\x02"
    servers.send(topic, 1, body=zlib.compress(b"a body"), i=properties, f=1, j=2)
    (row,) = rows(servers, topic)
    stored, offset_id = row.pop("store_timestamp"), row.pop("offset_message_id")
    assert before < stored < datetime.now(UTC) + timedelta(seconds=1)
    assert len(offset_id) == 32
    assert row.pop("born_host").startswith("127.0.0.1:")
    assert row.pop("properties").items() >= {"TAGS": "paid", "KEYS": "k1 k2", "colour": "red"}.items()
    assert row == {
        "topic": topic, "broker_name": BROKER, "queue_id": 1, "queue_offset": 0, "message_id": "K9", "keys": "k1 k2",
        "tags": "paid", "body": b"a body", "reconsume_times": 2,
        "born_timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    }  # fmt: skip


def test_a_message_without_a_key_is_named_by_its_place_and_may_be_born_at_no_time(servers: Served, topic: str) -> None:
    servers.send(topic, i="", g=1 << 62)
    (row,) = rows(servers, topic)
    assert row["message_id"] == row["offset_message_id"]
    assert (row["keys"], row["tags"], row["born_timestamp"]) == (None, None, None)


def test_every_message_is_in_one_part_however_small_the_parts_are(servers: Served, topic: str) -> None:
    servers.send(topic, 0, count=70)
    servers.send(topic, 1, count=5)
    every = [(0, offset) for offset in range(70)] + [(1, offset) for offset in range(5)]
    assert offsets(rows(servers, topic)) == every
    assert offsets(rows(servers, topic, maxRecordsPerPartition=8, pullBatchSize=3)) == every
    reader = TopicReader(options(servers, topic, maxRecordsPerPartition=8))
    assert len(reader.partitions()) == 10


def test_a_batch_is_from_the_begin_to_the_end_that_it_names(servers: Served, topic: str) -> None:
    servers.send(topic, 0, count=9)
    servers.send(topic, 1, count=2)
    chosen = rows(servers, topic, startingOffsets=places(topic, 4, -2), endingOffsets=places(topic, 6, -1))
    assert offsets(chosen) == [(0, 4), (0, 5), (1, 0), (1, 1)]
    assert rows(servers, topic, startingOffsets="latest") == []


def test_a_time_divides_what_was_stored_before_from_the_rest(servers: Served, topic: str) -> None:
    servers.send(topic, count=3)
    at = int(rows(servers, topic)[-1]["store_timestamp"].timestamp() * 1000)
    while int(datetime.now(UTC).timestamp() * 1000) <= at:
        pass
    servers.send(topic, count=2)
    assert offsets(rows(servers, topic, startingTimestamp=at + 1)) == [(0, 3), (0, 4)]
    assert offsets(rows(servers, topic, endingTimestamp=at + 1)) == [(0, 0), (0, 1), (0, 2)]
    assert rows(servers, topic, startingTimestamp=at + 3_600_000) == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0,), "lacks queue 1 of"), ((0, 0, 0), "there is no queue 2 of"),
        ((1, 0), "would be read from 1 to before 0: begin before the end"),
    ],
)  # fmt: skip
def test_offsets_that_do_not_fit_the_topic_are_refused(
    servers: Served, topic: str, numbers: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        rows(servers, topic, startingOffsets=places(topic, *numbers))


def test_a_topic_that_nobody_knows_is_told(servers: Served) -> None:
    with pytest.raises(RouteNotFound, match="no name server has a route of the topic nowhere: make it"):
        rows(servers, "nowhere")


def test_a_cluster_that_does_not_answer_is_told_when_patience_is_over() -> None:
    given = ReadOptions.of({"namesrv": "127.0.0.1:1", "topic": "t", "timeoutMs": "50"})
    with pytest.raises(BrokerUnavailable, match=r"GET_ROUTEINFO_BY_TOPIC had no answer for 0.05 s: 127.0.0.1:1"):
        TopicReader(given).partitions()


def test_reading_leaves_neither_a_group_nor_an_offset_nor_an_event(servers: Served, topic: str) -> None:
    def state() -> Any:
        tables = [loads_loose(servers.ask(which).body.decode()) for which in (
            r.GET_ALL_GROUPS, r.GET_ALL_CONSUMER_OFFSET
        )]  # fmt: skip
        moved = servers.ask(r.GET_MAX_OFFSET, topic="OFFSET_MOVED_EVENT", queueId=0).ext["offset"]
        return sorted(tables[0]["subscriptionGroupTable"]), tables[1]["offsetTable"], moved

    servers.send(topic, count=40)
    before = state()
    assert len(rows(servers, topic)) == 40
    with stream(servers, topic, startingOffsets="earliest") as reader:
        end = reader.latestOffset(reader.initialOffset())
        reader.commit(end)
    assert state() == before


def test_a_group_is_told_how_far_a_stream_is_when_it_is_asked_for(servers: Served, topic: str) -> None:
    servers.send(topic, count=4)
    servers.ask(r.UPDATE_GROUP, {"groupName": "dashboard"})
    with stream(servers, topic, commitGroup="dashboard") as reader:
        reader.commit(reader.latestOffset(reader.initialOffset()))
    table = loads_loose(servers.ask(r.GET_ALL_CONSUMER_OFFSET).body.decode())["offsetTable"]
    assert table[f"{topic}@dashboard"] == {"0": 4, "1": 0}


def test_a_stream_begins_at_the_end_and_goes_on_from_offset_to_offset(servers: Served, topic: str) -> None:
    servers.send(topic, count=3)
    with stream(servers, topic) as reader:
        start = reader.initialOffset()
        assert start == places(topic, 3, 0)
        assert reader.latestOffset(start) == start
        assert reader.partitions(start, start) == []
        servers.send(topic, count=2)
        servers.topic(topic, 3)
        servers.send(topic, 2)
        end = reader.latestOffset(start)
        assert end == places(topic, 5, 0, 1)
        assert parts(reader, start, end) == [
            Piece(TopicQueue(topic, BROKER, 0), 3, 5),
            Piece(TopicQueue(topic, BROKER, 2), 0, 1),
        ]


def test_a_stream_that_stops_when_it_is_done_does_not_run_after_new_messages(servers: Served, topic: str) -> None:
    servers.send(topic, count=3)
    with stream(servers, topic, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        servers.send(topic, count=4)
        servers.topic(topic, 3)
        servers.send(topic, 2)
        assert reader.latestOffset(start) == places(topic, 3, 0, 0)
        assert reader.reportLatestOffset() == places(topic, 7, 0, 1)


def test_a_micro_batch_is_as_large_as_it_may_be(servers: Served, topic: str) -> None:
    servers.send(topic, 0, count=6)
    servers.send(topic, 1, count=3)
    with stream(servers, topic, startingOffsets="earliest", maxOffsetsPerTrigger=3) as reader:
        start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
        middle = reader.latestOffset(start, limit)
        assert middle == places(topic, 2, 1)
        assert reader.latestOffset(middle, limit) == places(topic, 4, 2)
        assert reader.latestOffset(middle, ReadAllAvailable()) == places(topic, 6, 3)


def test_a_queue_that_is_not_in_the_route_for_a_while_keeps_its_place(servers: Served, topic: str) -> None:
    with stream(servers, topic) as reader:
        start = {topic: {BROKER: {"0": 0, "1": 0}, "broker-away": {"0": 8}}}
        assert reader.latestOffset(start) == start
        assert reader.partitions(start, start) == []


def test_messages_that_have_expired_are_an_error_or_passed_over(
    servers: Served, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    low = servers.expire(topic)
    start = places(topic, 0, 0)
    with pytest.raises(DataLost, match=f"queue 0 of {topic} .*: messages 0 to {low - 1} are gone, as it begins at"):
        rows(servers, topic, startingOffsets=start)
    with caplog.at_level(logging.WARNING, "dejamq.topics"):
        left = rows(servers, topic, startingOffsets=start, failOnDataLoss=False)
    assert offsets(left) == [(0, offset) for offset in range(low, 150)]
    assert f"messages 0 to {low - 1} are gone" in caplog.text


def test_messages_that_expire_while_they_are_read_are_an_error(servers: Served, topic: str) -> None:
    servers.send(topic, count=3)
    part = QueuePart(Piece(TopicQueue(topic, BROKER, 0), 0, 150))
    with pytest.raises(DataLost, match="it ends at 3, before 150: its broker lost messages"):
        list(read(part, options(servers, topic)))
    reading = read(QueuePart(Piece(TopicQueue(topic, BROKER, 0), 0, 3)), options(servers, topic, pullBatchSize=1))
    first = next(reading)
    assert servers.expire(topic) > 3
    with pytest.raises(DataLost, match="messages 1 to 2 are gone: the broker passes over them"):
        list(reading)
    assert first[3] == 0


def test_a_stream_tells_of_a_queue_that_is_shorter_than_it_was(
    servers: Served, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers.send(topic, count=3)
    start = places(topic, 90, 0)
    with stream(servers, topic) as reader, pytest.raises(DataLost, match="it ends at 3, and was read to 90"):
        reader.latestOffset(start)
    with stream(servers, topic, failOnDataLoss=False) as reader:
        with caplog.at_level(logging.WARNING, "dejamq.topics"):
            end = reader.latestOffset(start)
        assert "was read to 90" in caplog.text
        assert end == places(topic, 3, 0)
        assert parts(reader, start, end) == [Piece(TopicQueue(topic, BROKER, 0), 0, 3)]


def test_a_body_that_cannot_be_unpacked_is_an_error_or_passed_over(servers: Served, topic: str) -> None:
    servers.send(topic)
    servers.send(topic, body=b"no zlib", f=1 | Compression.ZLIB << 8)
    servers.send(topic)
    with pytest.raises(DataLost, match="the body of message 1 cannot be read: the zlib body of 7 bytes"):
        rows(servers, topic)
    assert offsets(rows(servers, topic, failOnDataLoss=False)) == [(0, 0), (0, 2)]


def test_a_broker_that_gives_nothing_of_what_it_has_is_told_when_patience_is_over(
    servers: Served, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.send(topic, count=2)
    pull = ServerConnections.pull
    monkeypatch.setattr(
        ServerConnections, "pull", lambda *given: pull(*given)._replace(found=False, records=b"", next=0)
    )
    part = QueuePart(Piece(TopicQueue(topic, BROKER, 0), 0, 2))
    with pytest.raises(DejamqError, match=r"nothing came of 0 to 1 for 0\.2 s"):
        list(read(part, options(servers, topic, timeoutMs=200)))


def test_a_reader_goes_to_workers_without_its_connections(servers: Served, topic: str) -> None:
    servers.send(topic)
    with stream(servers, topic, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        elsewhere, part = pickle.loads(pickle.dumps((reader, reader.partitions(start, end)[0])))
        assert [row[3] for row in elsewhere.read(part)] == [0]
        assert of_json(elsewhere.latestOffset(start)) == of_json(end)
        elsewhere.stop()
