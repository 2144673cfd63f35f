"""Access control at the gRPC doors and the fast port: every call without, with wrong, other's and right keys."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from access_site import ACCOUNTS, GROUP, TOLD, TOPIC, WRONG, Site, filled, for_servers, guarded, rules_for, v2_headers
from dejamq import Message, Producer
from dejamq_broker.doors.services import SERVICES
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto import fast_pb2, send_pb2
from dejamq_proto.access.call_rights import V1, V2
from dejamq_proto.access.changes import updated
from dejamq_proto.access.model import Action, Rule
from dejamq_proto.access.needs import Of, Right
from dejamq_proto.account import Account, SignedChannel, now_ms, v2_proof
from dejamq_proto.codes import Code, PermissionDenied
from dejamq_proto.records.record import Outgoing
from dejamq_proto.serving.access_gate import BY_MESSAGE
from dejamq_proto.serving.server import ACCESS
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.wire.calling import REMARK_KEY, dial
from dejamq_proto.wire.framed import Framed
from dejamq_proto.wire.messages import PullAnswer, SendRunResult
from google.protobuf import descriptor_pool, message_factory

PATIENCE_S = 5
QUIET_S = 0.2
"""A stream that says nothing for so long refuses nothing."""
V1_SERVICES = {*SERVICES, *NameServerDoors.services, ACCESS} - {methods.SERVICE}


def v1_methods() -> dict[str, Any]:
    """Of every service that a server lists, by ``Service.Method``."""
    pool = descriptor_pool.Default()
    return {
        f"{service.rpartition('.')[2]}.{method.name}": method
        for service in V1_SERVICES
        for method in pool.FindServiceByName(service).methods
    }


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as found:
        yield found


def v1_request(method: Any, site: Site) -> bytes:
    """A run of records is made as producers make it."""
    if method.input_type.name == "SendRun":
        record = Outgoing.to(TOPIC).encode(0, 1, b"x", b"")
        run = send_pb2.SendRun(sizes=[len(record)], records=record)
        run.queues.add(topic=TOPIC)
        return run.SerializeToString()
    made: bytes = filled(message_factory.GetMessageClass(method.input_type)(), site).SerializeToString()
    return made


async def v1_refusal(channel: Any, name: str, method: Any, raw: bytes) -> str:
    """What access control said no with; '' where it did not."""
    path = f"/dejamq.v1.{name.replace('.', '/')}"
    try:
        if method.server_streaming:
            stream = channel.stream_stream(path)()
            return await _stream_refusal(stream, path, raw)
        await channel.unary_unary(path)(raw, timeout=PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return _told(_remark(error))
    return ""


async def _stream_refusal(stream: Any, path: str, raw: bytes) -> str:
    try:
        await stream.write(raw)
        async with asyncio.timeout(QUIET_S if path not in BY_MESSAGE else PATIENCE_S):
            answer = await stream.read()
    except TimeoutError:
        return ""
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        answer = grpc.aio.EOF  # type: ignore[attr-defined]
    finally:
        ended = stream.done()
        if not ended:
            stream.cancel()
    if isinstance(answer, bytes):
        return _told(repr(answer))
    if ended:
        return _told(str(await stream.details()))
    return ""


def _remark(error: grpc.aio.AioRpcError) -> str:
    metadata: Any = error.trailing_metadata() or ()
    return str(dict(metadata).get(REMARK_KEY, b""))


def _told(text: str) -> str:
    return text if any(words in text for words in TOLD) else ""


def channel_for(site: Site, account: Account | None) -> Any:
    return dial(site.address, account=account)


def test_every_call_of_every_service_has_a_right() -> None:
    assert V1.keys() == v1_methods().keys()
    assert V2.keys() == {*methods.UNARY, *methods.STREAMS, "Telemetry"}


def test_streams_that_answer_for_each_message_are_those_of_the_fast_port_and_the_heartbeats() -> None:
    assert {f"/dejamq.v1.{name.replace('.', '/')}" for name in V1} >= BY_MESSAGE


async def test_each_call_is_refused_without_with_wrong_and_with_others_keys(site: Site) -> None:
    open_to: list[str] = []
    for account in (None, WRONG, ACCOUNTS["stranger"]):
        channel = channel_for(site, account)
        for name, method in v1_methods().items():
            if account is ACCOUNTS["stranger"] and not V1[name].needs:
                continue  # it suffices to be a user
            if not await v1_refusal(channel, name, method, v1_request(method, site)):
                open_to.append(f"{name} to {account}")
        await channel.close()
    assert not open_to


async def test_each_call_is_served_with_exactly_the_rights_of_the_table(site: Site) -> None:
    shut: list[str] = []
    channels = {name: channel_for(site, ACCOUNTS[name]) for name in ("root", "fitting")}
    for name, method in v1_methods().items():
        await site.allow(*rules_for(V1[name]))
        channel = channels["root" if for_servers(V1[name]) else "fitting"]
        if refusal := await v1_refusal(channel, name, method, v1_request(method, site)):
            shut.append(f"{name}: {refusal}")
    for channel in channels.values():
        await channel.close()
    assert not shut


async def test_each_right_of_a_call_counts(site: Site) -> None:
    needless: list[str] = []
    channel = channel_for(site, ACCOUNTS["fitting"])
    for name, method in v1_methods().items():
        needed = Right(tuple(need for need in V1[name].needs if need.of not in (Of.ORIGIN, Of.REPLY)))
        rules = rules_for(needed)
        for rule in rules:
            await site.allow(*(one for one in rules if one is not rule))
            if not await v1_refusal(channel, name, method, v1_request(method, site)):
                needless.append(f"{name} without {rule.resource}")
    await channel.close()
    assert not needless


async def test_a_call_that_was_signed_long_ago_is_refused(site: Site) -> None:
    old = SignedChannel(dial(site.address), ACCOUNTS["root"], lambda: now_ms() - 16 * 60_000)
    method = v1_methods()["Admin.ListGroups"]
    assert "signed" in await v1_refusal(old, "Admin.ListGroups", method, b"")
    await old.close()


async def test_a_header_of_one_call_is_none_of_another(site: Site) -> None:
    header = ACCOUNTS["root"].authorization("/dejamq.v1.Admin/ListGroups", now_ms())
    channel = dial(site.address)
    with pytest.raises(grpc.aio.AioRpcError, match="do not belong together"):
        await channel.unary_unary("/dejamq.v1.Admin/ListClashes")(  # type: ignore[call-arg]
            b"", metadata=(("authorization", header),)
        )
    await channel.close(None)


async def test_health_is_everybodys_and_reflection_every_users(site: Site) -> None:
    channel = dial(site.address)
    await channel.unary_unary("/grpc.health.v1.Health/Check")(b"")  # type: ignore[call-arg]
    stream = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")()  # type: ignore
    await stream.write(b"")
    with pytest.raises(grpc.aio.AioRpcError, match="no credentials came"):
        await stream.read()
    await channel.close(None)


# RocketMQ 5's service.


def v2_request(name: str, site: Site) -> Any:
    kinds = {**methods.UNARY, **methods.STREAMS}
    if name == "Telemetry":
        command = pb.TelemetryCommand()
        command.settings.subscription.group.name = GROUP
        command.settings.subscription.subscriptions.add().topic.name = TOPIC
        return command
    request = filled(kinds[name][0](), site)
    if hasattr(request, "group") and request.DESCRIPTOR.fields_by_name["group"].message_type is not None:
        request.group.name = GROUP
    if name == "Heartbeat":
        request.client_type = pb.PUSH_CONSUMER
    if name == "ReceiveMessage":
        request.long_polling_timeout.SetInParent()  # no time: it answers at once
    return request


async def v2_status(site: Site, name: str, account: Account | None) -> int:
    """The status of the first answer; 0 for silence."""
    channel, raw = dial(site.address), v2_request(name, site).SerializeToString()
    path, headers = f"/{methods.SERVICE}/{name}", v2_headers(account)
    try:
        if name in methods.UNARY:
            answer = await channel.unary_unary(path)(raw, metadata=headers, timeout=PATIENCE_S)  # type: ignore
            return int(methods.UNARY[name][1].FromString(answer).status.code)
        if name in methods.STREAMS:
            first = await channel.unary_stream(path)(raw, metadata=headers, timeout=PATIENCE_S).read()  # type: ignore
            return int(methods.STREAMS[name][1].FromString(first).status.code)
        stream: Any = channel.stream_stream(path)(metadata=headers)  # type: ignore[call-arg]
        await stream.write(raw)
        async with asyncio.timeout(PATIENCE_S):
            command = pb.TelemetryCommand.FromString(await stream.read())
        if command.status.code == pb.UNAUTHORIZED:
            assert await stream.code() is grpc.StatusCode.OK
        return int(command.status.code)
    except grpc.aio.AioRpcError:
        return 0
    finally:
        await channel.close(None)


async def test_calls_of_rocketmq_5_are_unauthorized_without_and_with_wrong_and_with_others_keys(site: Site) -> None:
    """As RocketMQ's proxy 5.3.3 answers: it has one status for all three, at telemetry in a command."""
    told: dict[str, list[int]] = {}
    for name in V2:
        told[name] = [await v2_status(site, name, account) for account in (None, WRONG, ACCOUNTS["stranger"])]
    assert told == dict.fromkeys(V2, [pb.UNAUTHORIZED] * 3)


async def test_calls_of_rocketmq_5_are_served_with_exactly_the_rights_of_the_table(site: Site) -> None:
    shut: list[str] = []
    for name, needed in V2.items():
        await site.allow(*rules_for(needed))
        status = await v2_status(site, name, ACCOUNTS["fitting"])
        if status == pb.UNAUTHORIZED:
            shut.append(f"{name}: {status}")
    assert not shut


async def test_the_signature_of_nodes_and_javas_clients_may_be_in_capitals(site: Site) -> None:
    account = ACCOUNTS["root"]
    (_, who), date, (_, told) = v2_headers(account)
    start, _, proof = told.rpartition("=")
    channel = dial(site.address)
    headers = (("x-mq-client-id", who), date, ("authorization", f"{start}={proof.upper()}"))
    raw = v2_request("QueryRoute", site).SerializeToString()
    answer = await channel.unary_unary(f"/{methods.SERVICE}/QueryRoute")(raw, metadata=headers)  # type: ignore
    assert pb.QueryRouteResponse.FromString(answer).status.code == pb.OK
    await channel.close(None)


async def test_what_a_user_signed_for_remoting_is_no_time_of_rocketmq_5(site: Site) -> None:
    """Both are HMACs of one key: who saw a request for the route of ``orders`` has the proof of this text."""
    root = ACCOUNTS["root"]
    seen = f"root{TOPIC}"
    told = hmac.digest(root.secret_key.encode(), seen.encode(), "sha1").hex()
    authorization = f"MQv2-HMAC-SHA1 Credential=root, SignedHeaders=x-mq-date-time, Signature={told}"
    channel = dial(site.address)
    headers = (("x-mq-client-id", "c"), ("x-mq-date-time", seen), ("authorization", authorization))
    raw = v2_request("QueryRoute", site).SerializeToString()
    answer = await channel.unary_unary(f"/{methods.SERVICE}/QueryRoute")(raw, metadata=headers)  # type: ignore
    assert pb.QueryRouteResponse.FromString(answer).status.code == pb.UNAUTHORIZED
    await channel.close(None)


async def test_an_offset_of_a_foreign_group_is_not_told_to_who_may_read_the_topic(site: Site) -> None:
    await site.allow(Rule("fitting", f"Topic:{TOPIC}", (Action.ALL,)))
    assert await v2_status(site, "GetOffset", ACCOUNTS["fitting"]) == pb.UNAUTHORIZED
    assert await v2_status(site, "QueryOffset", ACCOUNTS["fitting"]) != pb.UNAUTHORIZED


async def test_a_client_id_belongs_to_the_user_who_came_with_it_first(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    channel = dial(site.address)
    statuses = []
    for account in (ACCOUNTS["root"], ACCOUNTS["stranger"]):
        headers = (("x-mq-client-id", "the-same"), *v2_headers(account)[1:])
        answer = await channel.unary_unary(f"/{methods.SERVICE}/Heartbeat")(b"", metadata=headers)  # type: ignore
        statuses.append(pb.HeartbeatResponse.FromString(answer).status.code)
    assert statuses == [pb.OK, pb.FORBIDDEN]
    assert [one.getMessage().split()[:2] for one in caplog.records if "another user" in one.getMessage()] == [
        ["access_refused", "subject=stranger"]
    ]
    await channel.close(None)


# Fast frames.


async def fast(site: Site, method: str, account: Account | None, raw: bytes) -> tuple[fast_pb2.Welcome, bytes]:
    """The welcome, and the answer to this message where one is welcome."""
    host, _, _ = site.address.rpartition(":")
    frames: asyncio.Queue[bytes] = asyncio.Queue()
    _, framed = await asyncio.get_running_loop().create_connection(Framed, host, site.broker.fast.port)
    framed.received, framed.lost = lambda frame: frames.put_nowait(bytes(frame)), lambda _: frames.put_nowait(b"")
    try:
        hello = fast_pb2.Hello(boot_id=site.broker.boot_id, method=method)
        hello.authorization = account.authorization(method, now_ms()) if account else ""
        framed.write(hello.SerializeToString())
        async with asyncio.timeout(PATIENCE_S):
            welcome = fast_pb2.Welcome.FromString(await frames.get())
            if welcome.code:
                return welcome, b""
            framed.write(raw)
            return welcome, await frames.get()
    finally:
        framed.fail("the test is over")


@pytest.mark.parametrize("method", ["Send.SendStream", "Pull.PullStream"])
async def test_the_fast_port_asks_who_connects_and_what_he_may(site: Site, method: str) -> None:
    path, raw = f"/dejamq.v1.{method.replace('.', '/')}", v1_request(v1_methods()[method], site)
    for account in (None, WRONG):
        welcome, _ = await fast(site, path, account, raw)
        assert welcome.code == Code.NO_PERMISSION
    welcome, answer = await fast(site, path, ACCOUNTS["stranger"], raw)
    read = SendRunResult.decode if method == "Send.SendStream" else PullAnswer.decode
    assert (welcome.code, read(answer).code) == (0, Code.NO_PERMISSION)
    await site.allow(*rules_for(V1[method]))
    welcome, answer = await fast(site, path, ACCOUNTS["fitting"], raw)
    assert (welcome.code, read(answer).code) != (0, Code.NO_PERMISSION)
    assert welcome.code == 0


async def test_a_proof_for_one_stream_opens_no_other_one(site: Site) -> None:
    class Elsewhere(Account):
        def authorization(self, method: str, now_ms: int) -> str:
            return super().authorization("/dejamq.v1.Pull/PullStream", now_ms)

    welcome, _ = await fast(site, "/dejamq.v1.Send/SendStream", Elsewhere(*ACCOUNTS["root"]), b"")
    assert welcome.code == Code.NO_PERMISSION


# The SDK.


@pytest.mark.parametrize("fast_port", [False, True])
async def test_a_refused_run_leaves_the_stream_and_other_topics_alone(site: Site, fast_port: bool) -> None:
    await site.allow(Rule("fitting", "Topic:*", (Action.GET,)), Rule("fitting", f"Topic:{TOPIC}", (Action.PUB,)))
    async with Producer(
        "makers", namesrv=site.address, access_key="fitting", secret_key=ACCOUNTS["fitting"].secret_key,
        vip_channel_enabled=fast_port, retry_times_when_send_failed=0,
    ) as producer:  # fmt: skip
        await producer.send(Message(TOPIC, b"1"))
        with pytest.raises(PermissionDenied, match="Pub on Topic:another"):
            await producer.send(Message("another", b"2"))
        await producer.send(Message(TOPIC, b"3"))


async def test_a_user_who_is_changed_is_refused_on_connections_that_are_open(site: Site) -> None:
    await site.allow(Rule("fitting", "Topic:*", (Action.ALL,)))
    async with Producer(
        "makers", namesrv=site.address, access_key="fitting", secret_key=ACCOUNTS["fitting"].secret_key,
        retry_times_when_send_failed=0,
    ) as producer:  # fmt: skip
        await producer.send(Message(TOPIC, b"1"))
        guard = site.broker.guard
        assert guard is not None
        await guard.book.change(updated("fitting", status="disable"))
        with pytest.raises(PermissionDenied, match="changed or deleted"):
            await producer.send(Message(TOPIC, b"2"))


def test_a_v2_proof_is_sha_1_of_the_time_alone() -> None:
    assert v2_proof("secret", "20261128T000000Z") == hmac.digest(b"secret", b"20261128T000000Z", "sha1").hex()
