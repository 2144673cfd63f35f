"""What send refuses, and the bytes of what it takes."""

import pytest
from dejamq import DejamqError, InvalidName, Message, MessageTooLarge
from dejamq.sending.encoding import UNIQUE_NAME, check_body, template
from dejamq.sending.intake import Intake
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.records.record import decode_properties, java_hash


def encoded(message: Message) -> dict[str, str]:
    return decode_properties(properties(message))


def properties(message: Message) -> bytes:
    sends = Intake(ProducerConfig()).single(message, None)
    part = sends.each_extra[0] or sends.commons[0]
    return UNIQUE_NAME + message.message_id.encode() + part.rest


def test_the_unique_key_comes_first_so_that_it_is_found_without_decoding() -> None:
    message = Message("t", b"x", tags="a", keys="k", properties={"p": "v"})
    field = properties(message)
    assert field.startswith(b"UNIQ_KEY\x01" + message.message_id.encode() + b"\x02")


def test_all_arguments_become_rocketmqs_properties() -> None:
    message = Message(
        "t",
        b"x",
        tags="支付",
        keys=["a", "b"],
        properties={"p": "v"},
        delay_level=3,
        sharding_key="u1",
        wait_store=False,
    )
    assert encoded(message) == {
        "UNIQ_KEY": message.message_id, "TAGS": "支付", "KEYS": "a b", "p": "v", "DELAY": "3", "__SHARDINGKEY": "u1",
        "WAIT": "false",
    }  # fmt: skip


def test_the_tags_code_is_javas_hash() -> None:
    assert template("t", 0, "paid").tags_code == java_hash("paid")
    assert template("t", 0, None).tags_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"keys": "a b"},
        {"keys": ["a b", "c"]},
        {"keys": ["a", ""]},
        {"keys": "a\x01b"},
        {"tags": "a\x02"},
        {"properties": {"a": "b\x02c"}},
        {"properties": {"": "b"}},
        {"properties": {"a": ""}},
        {"properties": {"UNIQ_KEY": "mine"}},
        {"properties": {"KEYS": "mine"}},
        {"properties": {"half": "\ud800"}},
        {"tags": "half \ud800"},
        {"message_id": "half \ud800"},
        {"topic": "a b"},
        {"topic": ""},
        {"topic": "x" * 128},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
    ],
)
def test_what_could_not_be_read_back_is_refused(arguments: dict[str, object]) -> None:
    message = Message(**{"topic": "t", "body": b"x", **arguments})  # type: ignore[arg-type]  # of many types
    with pytest.raises((InvalidName, DejamqError)) as caught:
        encoded(message)
    assert caught.value.definite
    assert "\n" not in str(caught.value)


def test_properties_beyond_a_record_are_refused() -> None:
    with pytest.raises(MessageTooLarge, match="32767"):
        encoded(Message("t", b"x", properties={"p": "v" * 40_000}))


def test_a_negative_delay_level_and_a_wide_flag_are_refused() -> None:
    with pytest.raises(DejamqError, match="delay_level"):
        encoded(Message("t", b"x", delay_level=-1))
    with pytest.raises(DejamqError, match="32 bits"):
        encoded(Message("t", b"x", flag=1 << 31))


def test_a_body_at_the_limit_passes_and_one_beyond_or_empty_does_not() -> None:
    check_body(b"x" * 10, 10)
    with pytest.raises(MessageTooLarge, match="11 bytes, max_message_size is 10"):
        check_body(b"x" * 11, 10)
    with pytest.raises(DejamqError, match="empty"):
        check_body(b"", 10)
