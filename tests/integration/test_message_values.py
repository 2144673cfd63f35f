"""What a message says at its sender it says at its receiver, or it is refused before it leaves."""

import asyncio
from typing import Any

import pytest
from dejamq import ConsumeFrom, InvalidName, Message, Producer, ReceivedMessage
from dejamq_lab import Cluster

# Names that RocketMQ's brokers and clients set, as the wire has them, and four of ours.
SYSTEM_NAMES = [
    "UNIQ_KEY",
    "KEYS",
    "TAGS",
    "WAIT",
    "DELAY",
    "RETRY_TOPIC",
    "REAL_TOPIC",
    "REAL_QID",
    "TRAN_MSG",
    "PGROUP",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "BUYER_ID",
    "ORIGIN_MESSAGE_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "RECONSUME_TIME",
    "MSG_REGION",
    "TRACE_ON",
    "EXTEND_UNIQ_INFO",
    "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME",
    "INNER_NUM",
    "INNER_BASE",
    "DUP_INFO",
    "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__",
    "PUSH_REPLY_TIME",
    "POP_CK",
    "POP_CK_OFFSET",
    "1ST_POP_TIME",
    "__SHARDINGKEY",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_DEL_UNIQKEY",
    "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DEAD_LETTER_REASON",
    "REPLAY_OF",
    "REPLAYED_FROM",
]
BLANKS = ("\t", "\n", "\x1f", "\x85", "\u00a0", "\u2028", "\u3000")


async def received(messages: list[Message], **subscription: Any) -> list[ReceivedMessage]:
    """The messages as a consumer of a fresh cluster gets them, in the order of their bodies."""
    got: list[ReceivedMessage] = []
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        got.append(message)
        if len(got) == len(messages):
            done.set()

    async with Cluster(topics={"t": 1}, time_scale=0.1) as cluster, cluster.producer("p") as producer:
        results = [await producer.send(message) for message in messages]
        consumer = cluster.push_consumer("g", consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("t", handle, **subscription)
        async with consumer:
            await asyncio.wait_for(done.wait(), 20)
    assert sorted(result.message_id for result in results) == sorted(message.message_id for message in got)
    return sorted(got, key=lambda message: message.body)


async def test_a_key_with_white_space_other_than_a_blank_stays_one_key() -> None:
    messages = [Message("t", b"%d" % number, keys=[f"a{blank}b", "c"]) for number, blank in enumerate(BLANKS)]
    assert [message.keys for message in await received(messages)] == [[f"a{blank}b", "c"] for blank in BLANKS]


async def test_a_tag_with_unicode_blanks_around_it_can_be_subscribed_to() -> None:
    (message,) = await received([Message("t", b"x", tags="\u3000paid\u00a0")], tags="\u3000paid\u00a0")
    assert message.tags == "\u3000paid\u00a0"


async def test_an_id_of_the_program_is_the_stored_one() -> None:
    ids = ["order-17", "o" * 32, "o-" * 16, "订单", "order 17"]
    got = await received([Message("t", b"%d" % number, message_id=each) for number, each in enumerate(ids)])
    assert [message.message_id for message in got] == ids


async def test_a_forwarded_message_takes_its_user_properties_along() -> None:
    asked = {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "somebody", "TTL": "100"}
    (first,) = await received([Message("t", b"x", tags="a", keys=["k"], properties={"colour": "red"} | asked)])
    assert first.user_properties == {"colour": "red"}
    (second,) = await received([Message("t", b"y", properties=first.user_properties)])
    assert second.user_properties == {"colour": "red"}


async def sent(producer: Producer, sending: str, message: Message) -> None:
    if sending == "send_batch":
        await producer.send_batch([message])
    elif sending == "send":
        await producer.send(message)
    else:
        getattr(producer, sending)(message)


@pytest.mark.parametrize("sending", ["send", "submit", "send_batch", "send_oneway"])
@pytest.mark.parametrize(
    "message",
    [
        *(Message("t", b"x", tags=tag) for tag in (" lead", "trail ", "x||y", "x|y", "*", " ", "a\x01b")),
        *(Message("t", b"x", message_id=each) for each in ("", "a\x02KEYS\x01stolen", "\x01" * 32, "\x02" + "a" * 31)),
        *(Message("t", b"x", keys=[key]) for key in ("a b", "", "a\x02b")),
        Message("t", b"x", properties={"RETRY_TOPIC": "elsewhere"}),
        Message("t", b"x", properties={"colour": "red\x02TAGS\x01stolen"}),
        Message("t", b"x", properties={"colour\x01red\x02TAGS": "stolen"}),
        Message("t", b"x", sharding_key="a\x02TAGS\x01stolen"),
    ],
    ids=lambda message: str((message.tags, message.keys, dict(message.properties), message.sharding_key)),
)
async def test_a_message_that_would_say_something_else_is_refused(
    dejamq_cluster: Cluster, sending: str, message: Message
) -> None:
    async with dejamq_cluster.producer("p") as producer:
        for _ in range(2):  # the second time past what the first one taught the compiled way
            with pytest.raises(InvalidName):
                await sent(producer, sending, message)


@pytest.mark.parametrize("name", SYSTEM_NAMES)
async def test_a_property_that_the_system_sets_is_refused(dejamq_cluster: Cluster, name: str) -> None:
    async with dejamq_cluster.producer("p") as producer:
        with pytest.raises(InvalidName, match="user_properties"):
            await producer.send(Message("t", b"x", properties={name: "elsewhere"}))


@pytest.mark.parametrize(
    "fields",
    [{"message_id": 17}, {"message_id": None}, {"message_id": b"a"}, {"wait_store": "false"}, {"wait_store": 0}],
)
def test_an_id_or_a_switch_of_another_type_is_refused_when_the_message_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(fields))):
        Message("t", b"x", **fields)


async def test_an_id_of_32_separators_is_refused_after_one_of_32_digits() -> None:
    """The compiled way takes what is like a message before it; an id is looked at each time."""
    async with Cluster(topics={"t": 1}) as cluster, cluster.producer("p") as producer:
        await asyncio.gather(*(producer.submit(Message("t", b"x")) for _ in range(100)))
        for _ in range(10):
            producer.submit(Message("t", b"x"))
            with pytest.raises(InvalidName):
                producer.submit(Message("t", b"x", message_id="a" * 20 + "\x02KEYS\x01stolen"))
        await producer.flush()
