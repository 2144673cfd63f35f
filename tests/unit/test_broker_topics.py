"""The topic table: creation on first use, RocketMQ's file, and what is refused."""

import json
from pathlib import Path

import pytest
from broker_tables import topic_table
from dejamq_broker.base import json_file
from dejamq_broker.tables.topics import TopicConfig, TopicTable, check_queue, check_readable
from dejamq_proto.codes import Code, DejamqError, InvalidName

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def table_in(directory: Path, queues: int = 8) -> TopicTable:
    table = topic_table(directory / "topics.json", lambda: 5000)
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


def test_a_template_in_the_file_makes_no_topics_where_that_is_off_and_does_again_where_it_is_on(tmp_path: Path) -> None:
    table_in(tmp_path)
    table = table_in(tmp_path, queues=0)
    with pytest.raises(DejamqError) as caught:
        table.for_sending("orders", 4)
    assert caught.value.code is Code.TOPIC_NOT_EXIST
    table.allow_auto_create(8)
    assert table.for_sending("orders", 4).write_queue_nums == 4


def test_only_a_template_that_may_be_inherited_makes_topics(tmp_path: Path) -> None:
    table_in(tmp_path)
    path = tmp_path / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"]["TBW102"]["perm"] = 6
    path.write_text(json.dumps(content))
    with pytest.raises(DejamqError) as caught:
        table_in(tmp_path).for_sending("orders", 4)
    assert caught.value.code is Code.TOPIC_NOT_EXIST


def test_a_change_leaves_what_was_not_given(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.update(TopicConfig("orders", 4, 4, order=True, attributes={"+message.type": "NORMAL"}))
    assert table.change("orders", write_queue_nums=2) == table_in(tmp_path).get("orders")
    changed = table.require("orders")
    assert (changed.read_queue_nums, changed.write_queue_nums, changed.order) == (4, 2, True)
    assert changed.attributes == {"+message.type": "NORMAL"}
    with pytest.raises(DejamqError) as caught:
        table.change("nowhere", perm=4)
    assert caught.value.code is Code.TOPIC_NOT_EXIST


def test_a_deleted_topic_is_gone_from_the_file_and_name_servers_are_told(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.for_sending("orders", 2)
    changes: list[int] = []
    table.on_change = lambda: changes.append(table.version.counter)
    before = table.version.counter
    assert table.delete("orders") is True
    assert table.delete("orders") is False
    assert changes == [before + 1]
    assert table_in(tmp_path).get("orders") is None


@pytest.mark.parametrize(
    "topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x", "c_REPLY_TOPIC", "c", "b"]
)
def test_topics_of_the_broker_itself_are_neither_changed_nor_deleted(tmp_path: Path, topic: str) -> None:
    table = table_in(tmp_path)
    table.ensure_system(8, "c", "b")
    table.ensure(topic, 1)
    for act in (lambda: table.delete(topic), lambda: table.change(topic, perm=4)):
        with pytest.raises(InvalidName, match="belongs to the broker itself"):
            act()
    assert table.get(topic) is not None


def test_a_name_server_marks_topics_as_ordered_and_its_silence_takes_nothing_back(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.for_sending("orders", 2)
    table.mark_ordered(["orders", "nowhere"])
    assert table_in(tmp_path).require("orders").order
    changes: list[int] = []
    table.on_change = lambda: changes.append(1)
    table.mark_ordered(["orders"])
    table.mark_ordered([])
    assert (changes, table.require("orders").order) == ([], True)


def test_what_the_broker_does_not_permit_is_taken_from_what_is_told_of_topics(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    told: list[int] = []
    table.on_change = lambda: told.append(table.perm_mask)
    table.mask_permissions(4)
    table.mask_permissions(6)
    assert told == [4, 7]
