"""Bad use that every client refuses at once, before any server is asked, in words that say what to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from dejamq import (
    Admin,
    ClientClosed,
    ConfigError,
    DejamqError,
    InvalidName,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageTooLarge,
    Producer,
    PushConsumer,
    ReceivedMessage,
    sync,
)

NOBODY = "127.0.0.1:1"
QUEUE = MessageQueue("orders", "broker-a", 0)
MESSAGE = Message("orders", b"x")
WITH_GROUP: list[Any] = [
    Producer, PushConsumer, LitePullConsumer, sync.Producer, sync.PushConsumer, sync.LitePullConsumer,
]  # fmt: skip


async def handler(message: ReceivedMessage) -> None: ...


@pytest.mark.parametrize("client", WITH_GROUP)
@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("", "empty"),
        (" ", "empty"),
        ("no good", "letters"),
        ("g" * 121, "at most 120"),
        ("DEFAULT_PRODUCER", "reserved"),
    ],
)
def test_a_bad_group_is_refused_by_every_client(client: Any, group: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        client(group)


@pytest.mark.parametrize("client", WITH_GROUP)
def test_a_missing_group_is_named(client: Any) -> None:
    with pytest.raises(TypeError, match="group"):
        client()


@pytest.mark.parametrize("client", [*WITH_GROUP, lambda group, **settings: Admin(**settings)])
def test_a_setting_that_there_is_not_and_an_address_that_is_none_are_refused(client: Any) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        client("g", nonsense=1)
    with pytest.raises(ConfigError, match="host:port"):
        client("g", namesrv="nowhere")


@pytest.mark.parametrize(
    ("message", "kind", "why"),
    [
        (Message("", b"x"), InvalidName, "empty"),
        (Message("no good", b"x"), InvalidName, "letters"),
        (Message("t" * 128, b"x"), InvalidName, "at most 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), InvalidName, "belongs to the broker"),
        (Message("orders", b""), DejamqError, "at least one byte"),
        (Message("orders", b"x" * 101), MessageTooLarge, "max_message_size is 100"),
        (Message("orders", b"x", properties={"big": "x" * 32_768}), MessageTooLarge, "at most 32767"),
        (Message("orders", b"x", properties={"TAGS": "x"}), InvalidName, "argument for it"),
        (Message("orders", b"x", properties={"a": "\x02"}), InvalidName, "control character"),
        (Message("orders", b"x", keys=["a b"]), InvalidName, "spaces separate keys"),
        (Message("orders", b"x", delay_level=-1), DejamqError, "below 0"),
    ],
)
async def test_a_bad_message_is_refused_by_submit_and_surely_not_sent(
    message: Message, kind: type[DejamqError], why: str
) -> None:
    async with Producer("g", namesrv=NOBODY, max_message_size=100) as producer:
        with pytest.raises(kind, match=why) as refused:
            producer.submit(message)
        assert refused.value.definite
        with pytest.raises(kind, match=why):
            await producer.send(message)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"keys": 5}, "keys must be a str or several of them, not int"),
        ({"keys": ["a", 5]}, "keys must be str, not int"),
        ({"properties": 5}, "properties must be a mapping of str to str, not int"),
        ({"properties": ["ab", 5]}, "properties must be a mapping of str to str, not list"),
    ],
)
def test_an_argument_of_a_message_of_the_wrong_kind_is_named(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        Message("orders", b"x", **arguments)


@pytest.mark.parametrize("client", [PushConsumer, LitePullConsumer, sync.PushConsumer, sync.LitePullConsumer])
def test_a_yes_or_no_that_is_neither_is_refused(client: Any) -> None:
    with pytest.raises(ConfigError, match="auto_commit is True or False, not 'yes'"):
        client("g", auto_commit="yes", **({"ordered": True} if "Push" in client.__name__ else {}))
    if "Push" in client.__name__:
        with pytest.raises(ConfigError, match="ordered is True or False, not 'yes'"):
            client("g", ordered="yes")


@pytest.mark.parametrize("offset", ["1", None, 1.5])
async def test_an_offset_that_is_no_whole_number_is_refused(offset: Any) -> None:
    one = LitePullConsumer("g", namesrv=NOBODY)
    one.assign([QUEUE])
    with pytest.raises(DejamqError, match=f"offset is a whole number of 0 or more, not {offset!r}"):
        one.seek(QUEUE, offset)
    wrong: Any = 0
    with pytest.raises(ConfigError, match="MessageQueue"):
        one.seek(wrong, 1)
    await one.close()


def test_a_producer_of_an_event_loop_that_has_ended_says_so_in_another_one() -> None:
    one = Producer("g", namesrv=NOBODY)
    asyncio.run(one.start())
    for call in (one.start, *producer_calls(one)[:4]):
        with pytest.raises(ClientClosed, match=r"event loop .* make a new one"):
            asyncio.run(ask(call))


def producer_calls(one: Producer) -> list[Callable[[], Any]]:
    return [
        lambda: one.send(MESSAGE), lambda: one.submit(MESSAGE), lambda: one.send_oneway(MESSAGE),
        lambda: one.send_batch([MESSAGE]), lambda: one.request(MESSAGE, 100), one.drain, one.flush,
        lambda: one.publish_queues("orders"), one.start,
    ]  # fmt: skip


def consumer_calls(one: PushConsumer) -> list[Callable[[], Any]]:
    return [
        lambda: one.subscribe("orders", handler), lambda: one.subscribe_batch("orders", print, size=2),
        lambda: one.unsubscribe("orders"), one.suspend, one.resume, one.wait_assigned, one.start,
        lambda: one.run_until_stopped(signals=()),
    ]  # fmt: skip


def lite_calls(one: LitePullConsumer) -> list[Callable[[], Any]]:
    return [
        lambda: one.subscribe("orders"), lambda: one.assign([QUEUE]), one.poll, one.commit,
        lambda: one.committed(QUEUE), lambda: one.seek(QUEUE, 0), lambda: one.seek_to_begin(QUEUE),
        lambda: one.seek_to_end(QUEUE), lambda: one.pause([QUEUE]), lambda: one.resume([QUEUE]),
        lambda: one.offset_for_timestamp(QUEUE, 1), one.start,
    ]  # fmt: skip


def admin_calls(one: Admin) -> list[Callable[[], Any]]:
    return [one.topics, one.connections, lambda: one.stop_writes("a"), lambda: anext(one.dead_letters("g")), one.start]


async def ask(call: Callable[[], Any]) -> None:
    answer = call()
    if isinstance(answer, Awaitable):
        await answer


CALLS: list[tuple[Any, Any]] = [
    (Producer, producer_calls), (PushConsumer, consumer_calls), (LitePullConsumer, lite_calls), (Admin, admin_calls),
]  # fmt: skip


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("client", "calls"), CALLS)
async def test_a_closed_client_says_so_whatever_is_asked(client: Any, calls: Any, started: bool) -> None:
    one = client(namesrv=NOBODY) if client is Admin else client("g", namesrv=NOBODY)
    if started and client in (Producer, Admin):  # the others need a name server to start
        await one.start()
    await one.close()
    for call in calls(one):
        with pytest.raises(ClientClosed, match="closed; make a new one"):
            await ask(call)
