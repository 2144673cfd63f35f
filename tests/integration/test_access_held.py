"""Requests that wait for messages while their sender loses the right: no door hands him a message any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from access_site import ACCOUNTS, GROUP, SECRETS, TOPIC, Site, guarded, v2_headers
from broker_wire import until
from dejamq import Admin, Message, Producer
from dejamq_proto import client_pb2, fast_pb2, pop_pb2, pull_pb2, running_pb2
from dejamq_proto.access.changes import deleted, unruled, updated
from dejamq_proto.access.model import Action, Rule
from dejamq_proto.account import now_ms
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting import pop_requests, requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting_client import connect
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.framed import Framed
from dejamq_proto.wire.messages import PullAnswer

HELD = "held"
WAIT_MS = 60_000
BODY = b"not-for-everybody"
FITTING = ACCOUNTS["fitting"]
ROOT: Any = {"access_key": "root", "secret_key": SECRETS["root"]}
RULES = tuple(Rule("fitting", resource, (Action.SUB,)) for resource in (f"Topic:{HELD}", f"Group:{GROUP}"))
REVOKED: dict[str, Any] = {
    "rule": unruled("fitting", f"Topic:{HELD}"), "user": deleted("fitting"),
    "secret": updated("fitting", secret="another-secret-of-it"), "status": updated("fitting", status="disable"),
}  # fmt: skip


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, client_housekeeping_interval_ms=100) as found:
        async with Admin(found.address, **ROOT) as admin:
            await admin.create_topic(HELD, queues=1)
        await found.allow(*RULES)
        yield found


# Each of these waits at one door, and returns all bytes and codes that came.


def pull() -> bytes:
    asked = pull_pb2.PullRequest(group=GROUP, topic=HELD, max_messages=1, suspend_ms=WAIT_MS)
    asked.caller.client_id = "waits"
    return asked.SerializeToString()


async def v1_stream(site: Site) -> str:
    channel = dial(site.address, account=FITTING)
    try:
        stream: Any = channel.stream_stream("/dejamq.v1.Pull/PullStream")()  # type: ignore[call-arg]
        await stream.write(pull())
        return told(PullAnswer.decode(await stream.read()))
    finally:
        await channel.close(None)


async def unary(site: Site, name: str, raw: bytes) -> bytes:
    channel = dial(site.address, account=FITTING)
    try:
        method: Any = channel.unary_unary(f"/dejamq.v1.{name}")  # type: ignore[call-arg]
        answer: bytes = await call(method, raw, address=site.address, timeout_ms=WAIT_MS)
        return answer
    except DejamqError as error:
        return f"{error.code!r} {error}".encode()
    finally:
        await channel.close(None)


async def v1_unary(site: Site) -> str:
    return told(PullAnswer.decode(await unary(site, "Pull/PullOne", pull())))


async def v1_pop(site: Site) -> str:
    asked = pop_pb2.ReceiveRequest(
        group=GROUP, topic=HELD, max_messages=1, invisible_ms=WAIT_MS, wait_ms=WAIT_MS, from_min=True
    )  # fmt: skip
    return str(await unary(site, "Pop/Receive", asked.SerializeToString()))


async def fast(site: Site) -> str:
    method, frames = "/dejamq.v1.Pull/PullStream", asyncio.Queue[bytes]()
    port = site.broker.fast.port
    _, framed = await asyncio.get_running_loop().create_connection(Framed, "127.0.0.1", port)
    framed.received, framed.lost = lambda frame: frames.put_nowait(bytes(frame)), lambda _: frames.put_nowait(b"")
    try:
        hello = fast_pb2.Hello(boot_id=site.broker.boot_id, method=method)
        hello.authorization = FITTING.authorization(method, now_ms())
        framed.write(hello.SerializeToString())
        assert not fast_pb2.Welcome.FromString(await frames.get()).code
        framed.write(pull())
        return told(PullAnswer.decode(await frames.get()))
    finally:
        framed.fail("the test is over")


def told(answer: PullAnswer) -> str:
    return f"{Code(answer.code)!r} {answer.remark} {b''.join(answer.records)!r}"


async def remoting(site: Site, code: int, **fields: object) -> str:
    ext = {"consumerGroup": GROUP, "topic": HELD, "queueId": 0} | fields
    client = await connect(site.address, lambda _: None, account=FITTING)
    try:
        sent = Command(code=code, ext={name: str(value) for name, value in ext.items()})
        answer = await client.send(sent)
        return f"{Code(answer.code)!r} {answer.remark} {answer.ext} {answer.body!r}"
    finally:
        await client.close()


PULL: dict[str, object] = {
    "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 2, "commitOffset": 0, "suspendTimeoutMillis": WAIT_MS,
    "subVersion": 0, "subscription": "*",
}  # fmt: skip


async def remoting_pull(site: Site) -> str:
    return await remoting(site, requests.PULL_MESSAGE.code, **PULL | {"sysFlag": 6})


async def remoting_lite(site: Site) -> str:
    return await remoting(site, requests.LITE_PULL_MESSAGE.code, **PULL | {"sysFlag": 6})


async def remoting_pop(site: Site) -> str:
    return await remoting(
        site, pop_requests.POP_MESSAGE.code, maxMsgNums=1, invisibleTime=WAIT_MS, pollTime=WAIT_MS, bornTime=now_ms(),
        initMode=0,
    )  # fmt: skip


async def remoting_notification(site: Site) -> str:
    return await remoting(site, pop_requests.NOTIFICATION.code, pollTime=WAIT_MS, bornTime=now_ms())


async def v2(site: Site, name: str, request: Any) -> str:
    channel = dial(site.address)
    try:
        method: Any = channel.unary_stream(f"/{methods.SERVICE}/{name}")  # type: ignore[call-arg]
        frames = method(request.SerializeToString(), metadata=v2_headers(FITTING), timeout=WAIT_MS / 1000)
        return "".join([str(methods.STREAMS[name][1].FromString(raw)) async for raw in frames])
    finally:
        await channel.close(None)


async def v2_receive(site: Site) -> str:
    request = pb.ReceiveMessageRequest(group=pb.Resource(name=GROUP), batch_size=1)
    request.message_queue.topic.name = HELD
    request.invisible_duration.seconds = request.long_polling_timeout.seconds = 30
    return await v2(site, "ReceiveMessage", request)


async def v2_pull(site: Site) -> str:
    request = pb.PullMessageRequest(group=pb.Resource(name=GROUP), batch_size=1)
    request.message_queue.topic.name = HELD
    request.long_polling_timeout.seconds = 30
    return await v2(site, "PullMessage", request)


DOORS: tuple[Callable[[Site], Awaitable[str]], ...] = (
    v1_stream, v1_unary, v1_pop, fast, remoting_pull, remoting_lite, remoting_pop, remoting_notification, v2_receive,
    v2_pull,
)  # fmt: skip


async def answers(site: Site, change: Any) -> dict[str, str]:
    """What each door answers when messages come after the change."""
    waiting = {door.__name__: asyncio.ensure_future(door(site)) for door in DOORS}
    domain, guard = site.broker.domain, site.broker.guard
    assert guard is not None
    await until(lambda: domain.long_poll.waiting + len(domain.popping.held) == len(DOORS))
    if change is not None:
        await guard.book.change(change)
    async with Producer("makers", namesrv=site.address, **ROOT) as producer:
        for _ in DOORS:
            await producer.send(Message(HELD, BODY))
    async with asyncio.timeout(30):
        return {name: await answer for name, answer in waiting.items()}


async def test_each_door_hands_out_messages_while_the_right_is_there(site: Site) -> None:
    got = await answers(site, None)
    got["remoting_notification"] = got["remoting_notification"].replace("'hasMsg': 'true'", BODY.decode())
    assert [name for name, answer in got.items() if BODY.decode() not in answer] == []


@pytest.mark.parametrize("lost", REVOKED)
async def test_a_request_that_is_held_ends_without_a_message_when_its_senders_right_is_gone(
    site: Site, lost: str
) -> None:
    got = await answers(site, REVOKED[lost])
    assert [name for name, answer in got.items() if BODY.decode() in answer or "'hasMsg': 'true'" in answer] == []
    assert [name for name, answer in got.items() if not any(word in answer for word in (
        "NO_PERMISSION", "FORBIDDEN", "UNAUTHORIZED"
    ))] == []  # fmt: skip


# Reverse requests: what the broker itself sends to clients.


async def joined_v1(site: Site) -> tuple[Any, Any]:
    channel: Any = dial(site.address, account=FITTING)
    stream: Any = channel.stream_stream(
        "/dejamq.v1.Client/ClientChannel", client_pb2.Heartbeat.SerializeToString, client_pb2.BrokerCommand.FromString
    )()  # fmt: skip
    beat = client_pb2.Heartbeat()
    beat.caller.client_id = "member"
    member = beat.consumers.add(group=GROUP, message_model="CLUSTERING")
    member.subscriptions.add(topic=HELD, expression="*")
    await stream.write(beat)
    assert (await stream.read()).heartbeat_ack.code == 0
    return channel, stream


async def joined_remoting(site: Site) -> tuple[Any, list[Command]]:
    told: list[Command] = []
    client = await connect(site.address, told.append, account=FITTING)
    data = {
        "groupName": GROUP, "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
        "subscriptionDataSet": [{"topic": HELD, "subString": "*", "subVersion": 1}],
    }  # fmt: skip
    beat = msgspec.json.encode({"clientID": "java-member", "consumerDataSet": [data]})
    assert (await client.send(Command(code=requests.HEART_BEAT.code, body=beat))).code == Code.SUCCESS
    return client, told


async def direct(site: Site, client_id: str, message_id: str) -> None:
    """As an operator: this client shall take this message."""
    channel = dial(site.address, account=ACCOUNTS["root"])
    asked = running_pb2.ConsumeDirectlyRequest(group=GROUP, client_id=client_id, message_id=message_id)
    method: Any = channel.unary_unary("/dejamq.v1.Running/ConsumeDirectly")  # type: ignore[call-arg]
    try:
        await call(method, asked.SerializeToString(), address=site.address, timeout_ms=WAIT_MS)
    finally:
        await channel.close(None)


async def test_no_client_is_handed_a_message_of_a_topic_that_its_user_may_not_read(site: Site) -> None:
    """An operator hands it over; the message of ``orders`` is foreign to the members."""
    channel, stream = await joined_v1(site)
    client, told = await joined_remoting(site)
    for member in ("member", "java-member"):
        with pytest.raises(DejamqError, match="has left, or does not read"):
            await direct(site, member, site.message_id)
    await site.allow(*RULES, Rule("fitting", f"Topic:{TOPIC}", (Action.SUB,)))
    handing = [asyncio.ensure_future(direct(site, name, site.message_id)) for name in ("member", "java-member")]
    async with asyncio.timeout(30):
        while (await stream.read()).WhichOneof("command") != "take_directly":
            pass
        await until(lambda: [one.code for one in told if one.code == requests.CONSUME_DIRECTLY.code])
    for each in handing:
        each.cancel()
    await asyncio.gather(*handing, return_exceptions=True)
    await channel.close(None)
    await client.close()


async def test_a_stream_of_telemetry_ends_with_its_user(site: Site) -> None:
    channel, guard = dial(site.address), site.broker.guard
    assert guard is not None
    stream: Any = channel.stream_stream(f"/{methods.SERVICE}/Telemetry")(metadata=v2_headers(FITTING))  # type: ignore
    command = pb.TelemetryCommand()
    command.settings.subscription.group.name = GROUP
    command.settings.subscription.subscriptions.add().topic.name = HELD
    await stream.write(command.SerializeToString())
    assert await stream.read()
    await guard.book.change(updated("fitting", secret="another-secret-of-it"))
    async with asyncio.timeout(30):
        while isinstance(await stream.read(), bytes):
            pass
    await channel.close(None)
