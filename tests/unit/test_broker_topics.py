"""The topic table: creation on first use, RocketMQ's file, and what is refused."""

import json
from pathlib import Path

import pytest
from dejamq_broker import json_file
from dejamq_broker.topics import TopicConfig, TopicTable, check_queue, check_readable
from dejamq_proto.codes import Code, DejamqError

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def table_in(directory: Path, queues: int = 8) -> TopicTable:
    table = TopicTable(directory / "topics.json", lambda: 5000)
    table.load()
    table.ensure_system(queues)
    return table


@pytest.mark.parametrize(("client", "queues"), [(0, 4), (4, 4), (1, 1), (16, 8)])
def test_a_first_send_makes_the_topic_with_the_smaller_queue_count(tmp_path: Path, client: int, queues: int) -> None:
    made = table_in(tmp_path).for_sending("orders", client)
    assert (made.write_queue_nums, made.read_queue_nums, made.perm) == (queues, queues, 6)


def test_without_auto_creation_an_unknown_topic_is_told_and_retry_topics_still_appear(tmp_path: Path) -> None:
    table = table_in(tmp_path, queues=0)
    with pytest.raises(DejamqError, match="orders") as caught:
        table.for_sending("orders", 4)
    assert caught.value.code is Code.TOPIC_NOT_EXIST
    assert table.for_sending("%RETRY%g", 4).write_queue_nums == 1


def test_every_change_is_on_disk_told_and_counted(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    changes: list[int] = []
    table.on_change = lambda: changes.append(1)
    before = table.version.counter
    table.for_sending("orders", 2)
    table.for_sending("orders", 2)
    assert changes == [1]
    assert table.version.counter == before + 1
    again = table_in(tmp_path)
    assert again.get("orders") == TopicConfig("orders", 2, 2, 6)
    assert again.version == table.version


def test_the_file_has_rocketmqs_fields(tmp_path: Path) -> None:
    table_in(tmp_path).for_sending("orders", 2)
    content = json.loads((tmp_path / "topics.json").read_text())
    assert set(content["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    golden = json.loads((GOLDEN / "clean/store/config/topics.json").read_text())
    assert set(content["topicConfigTable"]["orders"]) == set(golden["topicConfigTable"]["GoldenTopic"])


@pytest.mark.parametrize("kind", ["clean", "crash"])
def test_a_real_brokers_file_is_read_and_written_back_equal(tmp_path: Path, kind: str) -> None:
    source = GOLDEN / kind / "store/config/topics.json"
    path = tmp_path / "topics.json"
    path.write_bytes(source.read_bytes())
    table = table_in(tmp_path)
    assert path.read_bytes() == source.read_bytes(), "nothing was missing, so nothing is written"
    table.for_sending("orders", 2)
    golden = json.loads(source.read_text())["topicConfigTable"]
    written = json.loads(path.read_text())["topicConfigTable"]
    assert {name: written[name] for name in golden} == golden


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig("bad name", 1, 1),
        TopicConfig("SCHEDULE_TOPIC_XXXX", 1, 1),
        TopicConfig("t", 0, 1),
        TopicConfig("t", 1, 70_000),
        TopicConfig("t", 1, 1, 8),
    ],
)
def test_an_impossible_topic_is_refused(tmp_path: Path, config: TopicConfig) -> None:
    with pytest.raises(DejamqError) as caught:
        table_in(tmp_path).update(config)
    assert caught.value.code is Code.INVALID_PARAMETER


def test_a_file_of_another_shape_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"topicConfigTable": {"t": 5}}')
    with pytest.raises(json_file.UnreadableFile, match=r"topics\.json.*move it away"):
        table_in(tmp_path)
    assert path.read_text() == '{"topicConfigTable": {"t": 5}}'


@pytest.mark.parametrize(
    ("config", "queue_id", "code"),
    [
        (TopicConfig("t", 2, 4), 4, Code.INVALID_PARAMETER),
        (TopicConfig("t", 2, 4), -1, Code.INVALID_PARAMETER),
        (TopicConfig("t", 2, 4), 3, None),
    ],
)
def test_a_send_may_use_any_queue_that_readers_or_writers_have(
    config: TopicConfig, queue_id: int, code: Code | None
) -> None:
    if code is None:
        check_queue(config, queue_id)
        return
    with pytest.raises(DejamqError) as caught:
        check_queue(config, queue_id)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("config", "queue_id", "code"),
    [
        (TopicConfig("t", 2, 4), 2, Code.INVALID_PARAMETER),
        (TopicConfig("t", 2, 4, 2), 0, Code.NO_PERMISSION),
    ],
)
def test_a_pull_needs_a_readable_queue(config: TopicConfig, queue_id: int, code: Code) -> None:
    with pytest.raises(DejamqError) as caught:
        check_readable(config, queue_id)
    assert caught.value.code is code


def test_a_topic_that_cannot_be_kept_is_refused_and_not_half_made(tmp_path: Path) -> None:
    table = table_in(tmp_path / "config")
    (tmp_path / "config").rename(tmp_path / "away")
    (tmp_path / "config").write_text("something else")
    with pytest.raises(DejamqError, match=r"topics\.json cannot be written") as caught:
        table.for_sending("orders", 4)
    assert caught.value.code is Code.SERVICE_NOT_AVAILABLE
    assert table.get("orders") is None
