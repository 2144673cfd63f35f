"""Message: a frozen value that checks types; results that compute their ids when asked."""

import copy
import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from dejamq import Message, MessageQueue, SendResult, SendStatus
from dejamq.values.message import StoredRun
from dejamq_proto.wire.messages import SendRunResult


def test_one_key_and_several_keys_are_a_tuple() -> None:
    assert Message("t", b"x", keys="one").keys == ("one",)
    assert Message("t", b"x", keys=["a", "b"]).keys == ("a", "b")
    assert Message("t", b"x").keys == ()


def test_a_message_cannot_be_changed_not_even_through_the_dict_it_was_made_from() -> None:
    properties = {"region": "eu"}
    message = Message("t", b"x", properties=properties)
    properties["region"] = "us"
    assert message.properties == {"region": "eu"}
    with pytest.raises(AttributeError):
        message.body = b"y"  # type: ignore[misc]  # what is tested


def test_a_message_without_properties_takes_none_later_neither_itself_nor_by_the_dict_it_was_made_from() -> None:
    properties: dict[str, str] = {}
    message = Message("t", b"x", properties=properties)
    properties["region"] = "us"
    added: Any = message.properties
    with pytest.raises(TypeError, match="when it is made"):
        added["region"] = "us"
    with pytest.raises(TypeError, match="when it is made"):
        added.update(region="us")
    with pytest.raises(TypeError, match="when it is made"):
        added.setdefault("region", "us")
    with pytest.raises(TypeError, match="when it is made"):
        added |= {"region": "us"}
    assert message.properties == Message("t", b"x").properties == {}


def test_a_copy_of_no_properties_is_a_dict_as_any_other() -> None:
    message = Message("t", b"x")
    for same in (copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert same == message
    properties: Any = copy.deepcopy(message.properties)
    properties["region"] = "us"
    assert (properties, message.properties) == ({"region": "us"}, {})


def test_a_replaced_message_has_another_id_and_the_rest_of_the_old() -> None:
    message = Message("t", b"x", tags="a", keys="k", delay_level=2)
    other = message.replace(body=b"y")
    assert other.message_id != message.message_id
    assert (other.topic, other.body, other.tags, other.keys, other.delay_level) == ("t", b"y", "a", ("k",), 2)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"body": "text"}, "encode"),
        ({"body": 5}, "bytes"),
        ({"topic": b"t"}, "topic"),
        ({"tags": b"a"}, "tags"),
        ({"keys": [1]}, "keys"),
        ({"properties": {"a": 1}}, "properties"),
        ({"sharding_key": 3}, "sharding_key"),
        ({"delay_level": "3"}, "delay_level"),
    ],
)
def test_a_wrong_type_is_refused_at_construction(arguments: dict[str, object], hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        Message(**{"topic": "t", "body": b"x", **arguments})  # type: ignore[arg-type]  # what is tested


def test_other_bytes_are_copied_to_bytes() -> None:
    body = bytearray(b"x")
    message = Message("t", body)  # type: ignore[arg-type]  # convenience beyond the declared type
    body[0] = 0
    assert message.body == b"x"


def result_of(stored: StoredRun, index: int) -> SendResult:
    return SendResult(SendStatus.SEND_OK, "id", MessageQueue("t", "a", 0), 7, stored, index)


def test_a_printed_result_shows_what_programs_may_read_of_it() -> None:
    answer = SendRunResult(
        store_host="127.0.0.1:10911", store_timestamp_ms=5,
        span_starts=np.array([0], "<u4"), span_log_offsets=np.array([255], "<u8"),
    )  # fmt: skip
    text = repr(result_of(StoredRun(answer, np.array([50], "<u4")), 0))
    assert text == (
        "SendResult(status=SEND_OK, message_id='id', queue=MessageQueue(topic='t', broker_name='a', queue_id=0), "
        "queue_offset=7, offset_message_id='7F00000100002A9F00000000000000FF')"
    )


def test_log_offsets_of_a_run_that_crossed_a_file_are_computed_from_its_spans() -> None:
    answer = SendRunResult(
        store_host="127.0.0.1:10911", store_timestamp_ms=5,
        span_starts=np.array([0, 2], "<u4"), span_log_offsets=np.array([900, 1024], "<u8"),
    )  # fmt: skip
    stored = StoredRun(answer, np.array([50, 60, 70, 80], "<u4"))
    results = [result_of(stored, index) for index in range(4)]
    assert [result.log_offset for result in results] == [900, 950, 1024, 1094]
    assert results[0].offset_message_id == "7F00000100002A9F0000000000000384"
    assert results[0].store_timestamp_ms == 5


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [MessageQueue("t", "b", 0), MessageQueue("t", "a", 2), MessageQueue("t", "a", 10)]
    assert sorted(queues) == [queues[1], queues[2], queues[0]]


def test_a_message_can_be_written_as_json_for_a_log() -> None:
    assert b'"topic":"t"' in msgspec.json.encode(Message("t", b"x"))


def test_the_status_of_a_send_prints_as_its_name_and_is_a_number() -> None:
    status = SendStatus.FLUSH_DISK_TIMEOUT
    assert (str(status), f"{status}", int(status)) == ("FLUSH_DISK_TIMEOUT", "FLUSH_DISK_TIMEOUT", 10)


def test_a_program_s_own_kind_of_message_may_look_at_itself_after_the_usual_check() -> None:
    seen: list[str] = []

    class Order(Message, frozen=True, kw_only=True):
        def __post_init__(self) -> None:
            super().__post_init__()
            seen.append(self.topic)

    assert Order("orders", b"x", keys="k").keys == ("k",)
    assert Order("orders", b"x").body == b"x"
    assert seen == ["orders", "orders"]
