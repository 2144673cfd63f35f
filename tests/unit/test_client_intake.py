"""What a producer makes of a message at once: packed bodies, namespaces, destinations, and clear errors."""

import random
from typing import Any

import numpy as np
import pytest
from dejamq import ConfigError, DejamqError, Message, MessageQueue, MessageTooLarge, select_by_hash
from dejamq.sending.batches import BatchIncomplete, all_stored, check_batch, split
from dejamq.sending.encoding import UNIQUE_NAME
from dejamq.sending.intake import Intake
from dejamq.sending.sends import NO_WAIT, PLAIN, REPLY, REWRITE, TRANSACTION, Extra, Sends
from dejamq.values.message import SendResult, SendStatus, StoredRun
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.codes import SEND_RETRIABLE, Code
from dejamq_proto.records.compression import Compression, decompress
from dejamq_proto.records.record import SYS_COMPRESSED, decode
from dejamq_proto.wire.messages import SendRunResult

TEXT = b"the same words again and again, " * 200


def config(**settings: Any) -> ProducerConfig:
    made = ProducerConfig(**settings)
    made.validate()
    return made


def taken(message: Message, *, pack: bool = True, half_of: str = "", **settings: Any) -> Sends:
    somebody: Any = object()
    return Intake(config(**settings)).single(message, somebody, pack=pack, half_of=half_of)


def extra_of(sends: Sends) -> Extra:
    (extra,) = sends.extras
    assert extra is not None
    return extra


def record_of(sends: Sends) -> bytes:
    (message,), (common,), (extra,) = sends.messages, sends.commons, sends.each_extra
    properties = UNIQUE_NAME + message.message_id.encode() + (extra or common).rest
    return common.record.encode(0, 0, (extra and extra.packed) or message.body, properties)


# --- packed bodies


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd", "ZSTD"])
def test_a_body_of_4_kib_is_packed_and_the_record_says_how(kind: str) -> None:
    sends = taken(Message("t", TEXT), compress_type=kind)
    record = decode(record_of(sends))
    assert record.sys_flag == Compression[kind.upper()].sys_flag
    assert decompress(record.body, record.sys_flag) == TEXT
    assert sends.sizes == [len(record_of(sends))]


def test_a_body_below_the_limit_and_one_that_would_not_shrink_are_sent_as_they_are() -> None:
    for body in (b"a" * 4095, random.Random(5).randbytes(5000)):
        record = decode(record_of(taken(Message("t", body))))
        assert record.body == body
        assert record.sys_flag & SYS_COMPRESSED == 0


def test_the_limit_on_bodies_is_of_the_body_as_given() -> None:
    with pytest.raises(MessageTooLarge):
        taken(Message("t", TEXT), max_message_size=len(TEXT) - 1)
    assert len(extra_of(taken(Message("t", TEXT), max_message_size=len(TEXT))).packed) < 1000


def test_a_batch_is_not_packed() -> None:
    sends = taken(Message("t", TEXT), pack=False)
    record = decode(record_of(sends))
    assert (record.body, record.sys_flag) == (TEXT, 0)
    assert sends.sizes == [len(record_of(sends))]


# --- what kind of record it is


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("t", b"x"), PLAIN),
        (Message("t", b"x", wait_store=False), NO_WAIT),
        (Message("t", b"x", delay_level=1), REWRITE),
        (Message("t", b"x", properties={"REPLY_TO_CLIENT": "c"}), REWRITE),
        (Message("t", b"x", properties={"REPLY_TO_CLIENT": "c", "MSG_TYPE": "reply"}), REPLY),
        (Message("t", b"x", properties={"MSG_TYPE": "order"}), PLAIN),
    ],
)
def test_requests_and_delayed_ones_are_looked_at_by_the_broker_and_replies_are_replies(
    message: Message, kind: int
) -> None:
    assert taken(message).kind == kind


def test_two_replies_never_share_a_run() -> None:
    reply = Message("t", b"x", properties={"MSG_TYPE": "reply"})
    assert not taken(reply).joins(taken(reply))


def test_a_half_message_names_its_producer_group_whatever_else_it_has() -> None:
    for message in (Message("t", b"x"), Message("t", b"x", keys="k"), Message("t", TEXT)):
        sends = taken(message, half_of="payers")
        properties = decode(record_of(sends)).properties
        assert sends.kind == TRANSACTION
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "payers")
        assert sends.sizes == [len(record_of(sends))]


def test_a_reply_is_no_half_message() -> None:
    with pytest.raises(DejamqError, match="a reply cannot be sent in a transaction"):
        taken(Message("t", b"x", properties={"MSG_TYPE": "reply"}), half_of="payers")


# --- namespaces


def test_a_message_goes_to_the_topic_inside_of_the_namespace_and_keeps_its_id() -> None:
    message = Message("orders", b"x")
    sends = taken(message, namespace="eu")
    assert (sends.messages[0].topic, sends.messages[0].message_id) == ("eu%orders", message.message_id)
    assert sends.commons[0].record.topic.endswith(b"eu%orders")


def test_a_reply_topic_is_the_clusters_own() -> None:
    sends = taken(Message("DefaultCluster_REPLY_TOPIC", b"x"), namespace="eu")
    assert sends.messages[0].topic.startswith("Default")


def test_a_selector_knows_nothing_of_the_namespace() -> None:
    seen: list[Any] = []

    def first(queues: Any, message: Message) -> MessageQueue:
        seen.extend((message.topic, queues[0].topic))
        chosen: MessageQueue = queues[0]
        return chosen

    intake = Intake(config(namespace="eu"))
    sends = intake.single(Message("orders", b"x"), None, queue=first)
    select: Any = extra_of(sends).where
    assert select([MessageQueue("eu%orders", "a", 1)], sends.messages[0]) == MessageQueue("eu%orders", "a", 1)
    assert seen == ["orders", "orders"]


# --- destinations


def test_a_chosen_queue_is_the_only_one() -> None:
    intake = Intake(config())
    sends = intake.single(Message("t", b"x"), None, queue=MessageQueue("t", "a", 1))
    assert (extra_of(sends).where, sends.pinned) == (MessageQueue("t", "a", 1), [True])
    assert sends.sizes == [len(record_of(sends))]


def test_a_selector_overrides_the_sharding_key() -> None:
    intake = Intake(config())
    select = select_by_hash("other")
    sends = intake.single(Message("t", b"x", sharding_key="k"), None, queue=select)
    assert extra_of(sends).where is select


def test_a_queue_of_another_topic_is_refused_by_its_name() -> None:
    intake = Intake(config(namespace="eu"))
    with pytest.raises(DejamqError, match="queue u/a/1 is not of topic 't'"):
        intake.single(Message("t", b"x"), None, queue=MessageQueue("u", "a", 1))


def test_a_queue_whose_number_does_not_fit_a_record_is_refused_before_it_joins_a_run() -> None:
    intake = Intake(ProducerConfig())
    with pytest.raises(DejamqError, match="queue id 4294967297 does not fit a record"):
        intake.single(Message("t", b"x"), None, queue=MessageQueue("t", "a", (1 << 32) + 1))


# --- bad use


def test_what_is_no_message_is_said_by_its_type() -> None:
    with pytest.raises(TypeError, match="sends Messages, not str"):
        taken("hello")  # type: ignore[arg-type]  # what a program may do


def test_what_is_no_queue_and_no_selector_is_said_by_its_type() -> None:
    intake = Intake(config())
    with pytest.raises(TypeError, match="MessageQueue or a selector, not int"):
        intake.single(Message("t", b"x"), None, queue=3)  # type: ignore[arg-type]  # what a program may do


@pytest.mark.parametrize("timeout_ms", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(timeout_ms: float) -> None:
    with pytest.raises(DejamqError, match="must be more than 0"):
        Intake(config()).single(Message("t", b"x"), None, timeout_ms)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"compress_type": "rar"}, "zlib, lz4 or zstd"),
        ({"compress_level": 0}, "1 to 9"),
        ({"compress_msg_body_over_howmuch": 0}, "more than 0"),
        ({"retry_response_codes": "SYSTEM_BUSY;NO_SUCH"}, "no response code"),
        ({"retry_response_codes": "4711"}, "no response code"),
        ({"send_msg_max_timeout_per_request_ms": -1}, "not be below 0"),
        ({"start_detector_enable": True}, "without send_latency_enable"),
        ({"detect_interval_ms": 0}, "more than 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**wrong)


def test_the_codes_to_retry_are_rocketmqs_unless_told_otherwise() -> None:
    assert config().retriable == SEND_RETRIABLE - {Code.CONNECT_BROKER_EXCEPTION}
    assert config(retry_response_codes="system_busy, 14").retriable == {Code.SYSTEM_BUSY, Code.SERVICE_NOT_AVAILABLE}
    assert config(retry_response_codes="").retriable == frozenset()


# --- batches


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "empty"),
        ([Message("t", b"x"), Message("u", b"x")], "one topic"),
        ([Message("t", b"x"), Message("t", b"x", wait_store=False)], "one wait_store"),
        ([Message("t", b"x", delay_level=1)], "no delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("t", b"x", sharding_key="a"), Message("t", b"x", sharding_key="b")], "sharding_key"),
    ],
)
def test_a_batch_that_cannot_go_together_is_refused(messages: list[Message], says: str) -> None:
    with pytest.raises(DejamqError, match=says) as caught:
        check_batch(messages)
    assert caught.value.code == Code.INVALID_PARAMETER


def test_a_batch_of_something_else_is_said_by_its_type() -> None:
    with pytest.raises(TypeError, match="not bytes"):
        check_batch([b"x"])  # type: ignore[list-item]  # what a program may do


def test_a_batch_may_hold_one_sharding_key_and_go_to_dead_letters() -> None:
    check_batch([Message("%DLQ%g", b"x", sharding_key="a")] * 2)


def sized(*sizes: int) -> list[Sends]:
    singles = [taken(Message("t", b"x")) for _ in sizes]
    for single, size in zip(singles, sizes, strict=True):
        single.sizes = [size]
    return singles


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((10,), [[10]]),
        ((40, 40, 20, 1), [[40, 40, 20], [1]]),
        ((200, 1), [[200], [1]]),
        ((1, 200, 1), [[1], [200], [1]]),
        ((60, 60, 60), [[60], [60], [60]]),
    ],
)
def test_a_batch_is_divided_in_order_and_a_message_above_the_limit_goes_alone(
    sizes: tuple[int, ...], parts: list[list[int]]
) -> None:
    assert [part.sizes for part in split(sized(*sizes), 100)] == parts


def test_messages_of_a_batch_that_the_broker_looks_at_are_a_part_of_their_own() -> None:
    request = Message("t", b"x", properties={"REPLY_TO_CLIENT": "c"})
    parts = split([taken(message) for message in (Message("t", b"x"), request, request)], 1000)
    assert [(len(part), part.kind) for part in parts] == [(1, PLAIN), (2, REWRITE)]


def test_when_nothing_of_a_batch_is_stored_its_first_error_is_told() -> None:
    first = DejamqError("first")
    with pytest.raises(DejamqError) as caught:
        all_stored([first, DejamqError("second")])
    assert caught.value is first


def test_when_a_part_of_a_batch_is_stored_the_error_says_which(stored_result: Any) -> None:
    failure = DejamqError("disk full", definite=True)
    with pytest.raises(BatchIncomplete, match="1 of 2 messages of the batch failed") as caught:
        all_stored([stored_result, failure])
    assert caught.value.outcomes == [stored_result, failure]
    assert not caught.value.definite


@pytest.fixture
def stored_result() -> Any:
    place = StoredRun(SendRunResult(store_host="h:1"), np.array([1], "<u4"))
    return SendResult(SendStatus.SEND_OK, "A" * 32, MessageQueue("t", "a", 0), 0, place, 0)
