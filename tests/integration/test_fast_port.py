"""Sends and pulls at the broker's fast port, and what becomes of them where that port cannot serve.

Tests of what holds over gRPC as well use both.
"""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, records_of, running, until
from dejamq import ConsumeFrom, LitePullConsumer, Message, Producer, PushConsumer
from dejamq.net.broker import BrokerLink
from dejamq_broker.app import Broker
from dejamq_broker.doors.fast import listener
from dejamq_lab.cluster.ports import held_block
from dejamq_proto.codes import BrokerUnavailable, Code, ConfigError
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.fast_pb2 import Hello, Welcome
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.serving import acceptor
from dejamq_proto.serving.listening import bound
from dejamq_proto.serving.refusals import MAX_REQUEST_BYTES
from dejamq_proto.wire.frame_stream import MOST_UNREAD
from dejamq_proto.wire.framed import Frame, Framed
from dejamq_proto.wire.messages import PullAnswer, SendRunResult
from producer_site import Site
from relay import Relay

SEND, PULL = "/dejamq.v1.Send/SendStream", "/dejamq.v1.Pull/PullStream"
LARGE = b"x" * 500_000
BOTH = pytest.mark.parametrize("fast", [False, True], ids=["grpc", "frames"])


class Somebody:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq or next(self._numbers))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@asynccontextmanager
async def linked(address: str, *, fast: bool = True) -> AsyncIterator[BrokerLink]:
    link = BrokerLink(address, Somebody(), timeout_ms=3000, fast=fast)
    try:
        yield link
    finally:
        await link.close()


@contextmanager
def silence(broker: Broker) -> Iterator[socket.socket]:
    """Somebody who takes connections and says nothing, where the broker says that its fast port is."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        broker.fast.port = silent.getsockname()[1]
        yield silent


def wanted(queue_offset: int = 0, **more: Any) -> PullRequest:
    fields: dict[str, Any] = {"max_messages": 32, "max_bytes": 1 << 20, "suspend_ms": 5000} | more
    return PullRequest(group="readers", topic="t", queue_offset=queue_offset, **fields)


async def carries(link: BrokerLink) -> None:
    """A run and a pull go through."""
    sent = await link.send_run(a_run("t", [b"one", b"two"]))
    assert sent.code == 0
    answer = await link.pull(wanted(int(sent.queue_offsets[0])))
    assert [record.body for record in records_of(answer)] == [b"one", b"two"]


async def test_runs_and_pulls_take_the_fast_port_and_say_who_sent_them(broker: Broker) -> None:
    async with linked(broker.address) as link:
        await carries(link)
        assert broker.fast.connections == 2
        answer = await link.pull(wanted())
    assert records_of(answer)[0].born_host[0] == "127.0.0.1"
    assert records_of(answer)[0].born_host[1] > 0
    await until(lambda: not broker.fast.connections)


async def test_its_port_is_two_below_the_common_one_or_any_that_is_free(tmp_path: Path) -> None:
    with held_block(2, 0) as port:
        with closing(socket.create_server(("127.0.0.1", port - 2))):
            async with running(tmp_path / "a", listen=f"127.0.0.1:{port}") as broker:
                assert broker.fast.port not in (0, port - 2)
        async with running(tmp_path / "b", listen=f"127.0.0.1:{port}") as broker:
            assert broker.fast.port == port - 2


async def test_a_port_that_somebody_takes_between_bind_and_listen_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[socket.socket] = []

    async def and_somebody_else(host: str, port: int) -> list[socket.socket]:
        held = await bound(host, port)
        if not taken:
            taken.append(socket.create_server(held[0].getsockname()))
        ours.append(held)
        return held

    ours: list[list[socket.socket]] = []
    monkeypatch.setattr("dejamq_broker.doors.fast.listener.bound", and_somebody_else)
    async with running(tmp_path) as broker:
        assert broker.fast.port not in (0, taken[0].getsockname()[1])
        assert [held.fileno() < 0 for some in ours for held in some] == [True, False]
    taken[0].close()


async def test_a_port_of_the_settings_that_is_in_use_is_told(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"fast_port: cannot listen on 127.0.0.1:{port}: .*in use"):
            async with running(tmp_path, fast_port=port):
                pass


async def test_without_one_runs_and_pulls_go_over_grpc(tmp_path: Path) -> None:
    async with running(tmp_path, fast_port=-1) as broker, linked(broker.address) as link:
        await carries(link)
        assert broker.fast.port == 0


async def test_a_link_that_did_not_ask_for_it_uses_grpc(broker: Broker) -> None:
    async with linked(broker.address, fast=False) as link:
        await carries(link)
        assert broker.fast.connections == 0


@pytest.mark.parametrize(("settings", "connections"), [({}, 0), ({"vip_channel_enabled": True}, 3)])
async def test_clients_use_grpc_unless_they_ask_for_the_fast_port(
    tmp_path: Path, settings: dict[str, Any], connections: int
) -> None:
    site = Site(tmp_path)
    await site.namesrv.start()
    broker = await site.start_broker("broker-a")
    got = asyncio.Event()
    consumer = PushConsumer("g", namesrv=site.namesrv.address, consume_from=ConsumeFrom.FIRST_OFFSET, **settings)
    consumer.subscribe("t", lambda message: got.set())
    reader = LitePullConsumer("r", namesrv=site.namesrv.address, consume_from=ConsumeFrom.FIRST_OFFSET, **settings)
    async with Producer("p", namesrv=site.namesrv.address, **settings) as producer:
        await producer.send(Message("t", b"one"))
        reader.subscribe("t")
        async with consumer, reader:
            assert [message.body for message in await reader.poll(timeout_ms=10_000)] == [b"one"]
            await asyncio.wait_for(got.wait(), 10)
            assert broker.fast.connections == connections
    await site.close()


async def test_where_nobody_listens_grpc_serves(broker: Broker) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        broker.fast.port = gone.getsockname()[1]
    async with linked(broker.address) as link:
        await carries(link)
        assert broker.fast.connections == 0


async def test_where_somebody_else_listens_grpc_serves(broker: Broker, tmp_path: Path) -> None:
    async with running(tmp_path / "other") as other, linked(broker.address) as link:
        broker.fast.port = other.fast.port
        await carries(link)
        await until(lambda: not other.fast.connections)


async def test_who_comes_by_a_relay_does_not_pass_it_by(broker: Broker) -> None:
    relay = Relay(broker.address)
    async with linked(await relay.start()) as link:
        await carries(link)
        assert broker.fast.connections == 0
    await relay.close()


async def test_where_nobody_answers_grpc_serves(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejamq.net.fast_port.DIAL_S", 0.05)
    with silence(broker):
        async with linked(broker.address) as link:
            await carries(link)


@BOTH
async def test_a_broker_that_closes_answers_what_it_holds(tmp_path: Path, fast: bool) -> None:
    async with running(tmp_path) as broker, linked(broker.address, fast=fast) as link:
        await carries(link)
        held = link.pull(wanted(2))
        await until(lambda: broker.domain.long_poll.waiting == 1)
        await broker.close()
        assert (await held).code == Code.PULL_NOT_FOUND


@BOTH
async def test_what_had_no_answer_when_the_connection_broke_may_have_been_done(broker: Broker, fast: bool) -> None:
    relay = Relay(broker.address)
    async with linked(broker.address if fast else await relay.start(), fast=fast) as link:
        await carries(link)
        held = link.pull(wanted(2))
        await until(lambda: broker.domain.long_poll.waiting == 1)
        await (broker.fast if fast else relay).close()
        with pytest.raises(BrokerUnavailable) as failed:
            await held
        assert not failed.value.definite


@BOTH
async def test_a_stream_opens_again_after_it_broke(broker: Broker, fast: bool) -> None:
    async with linked(broker.address, fast=fast) as link:
        await carries(link)
        link.break_sends("told to")
        await until(lambda: broker.fast.connections == fast)
        await link.send_run(a_run("t", [b"three"]))
        assert broker.fast.connections == 2 * fast


@BOTH
async def test_runs_that_a_closing_broker_stored_are_answered(tmp_path: Path, fast: bool) -> None:
    async with running(tmp_path) as broker, linked(broker.address, fast=fast) as link:
        await carries(link)
        runs = [link.send_run(a_run("t", [LARGE], seq=seq)) for seq in range(10, 20)]
        await runs[0]
        await broker.close()
        ends = await asyncio.gather(*runs, return_exceptions=True)
    answered = {end.seq for end in ends if isinstance(end, SendRunResult) and not end.code}
    assert 10 in answered
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        stored = (await wire.pull("t", 2, max_messages=100, max_bytes=32 << 20)).max_offset - 2
    assert stored == len(answered)


async def test_a_run_that_was_given_up_while_the_connection_opened_is_not_sent(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq.net.fast_port.DIAL_S", 0.3)
    with silence(broker):
        async with linked(broker.address) as link:
            given_up = link.send_run(a_run("t", [b"given up"], seq=5))
            await asyncio.sleep(0)
            given_up.cancel()
            assert (await link.send_run(a_run("t", [b"kept"], seq=6))).queue_offsets.tolist() == [0]


async def test_to_close_does_not_wait_for_a_connection_that_opens(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq.net.fast_port.DIAL_S", 60)
    with silence(broker) as silent:
        async with linked(broker.address) as link:
            waits = link.send_run(a_run("t", [b"never left"], seq=5))
            with closing((await asyncio.to_thread(silent.accept))[0]):
                async with asyncio.timeout(20):
                    await link.close()
        with pytest.raises(BrokerUnavailable) as failed:
            await waits
        assert failed.value.definite


async def test_a_port_that_ends_each_connection_without_an_answer_is_left_for_grpc(broker: Broker) -> None:
    async def gives_up(requests: Any, context: Any) -> None:
        await anext(requests)

    broker.fast._methods = {method: listener.Method(gives_up) for method in (SEND, PULL)}
    async with linked(broker.address) as link:
        with pytest.raises(BrokerUnavailable):
            await link.send_run(a_run("t", [b"lost"], seq=5))
        await carries(link)


async def test_who_only_echoes_is_not_taken_for_the_broker(broker: Broker) -> None:
    def echo() -> Framed:
        end = Framed()
        end.received = end.write
        return end

    server = await asyncio.get_running_loop().create_server(echo, "127.0.0.1", 0)
    broker.fast.port = server.sockets[0].getsockname()[1]
    async with linked(broker.address) as link:
        await carries(link)
    server.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_a_broker_that_listens_everywhere_does_so_for_both_families(tmp_path: Path) -> None:
    async with running(tmp_path, listen="[::]:0") as broker:
        port = broker.address.rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            async with linked(f"{host}:{port}") as link:
                await carries(link)
                assert broker.fast.connections == 2
            await until(lambda: not broker.fast.connections)


# strangers


class Raw(Framed):
    """Speaks frames without the SDK, and keeps what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.reasons: list[str] = []
        self.received, self.lost = self.frames.append, self.reasons.append


async def dialled(broker: Broker, method: str = "", boot_id: str | None = None) -> Raw:
    """Connected, and with a method greeted."""
    _, raw = await asyncio.get_running_loop().create_connection(Raw, "127.0.0.1", broker.fast.port)
    if method:
        raw.write(Hello(boot_id=broker.boot_id if boot_id is None else boot_id, method=method).SerializeToString())
        await until(lambda: raw.frames)
    return raw


@pytest.mark.parametrize(
    ("method", "boot_id", "code"),
    [
        ("/dejamq.v1.Admin/DeleteTopic", None, Code.REQUEST_CODE_NOT_SUPPORTED),
        (SEND, "another-start", Code.SYSTEM_ERROR),
    ],
)
async def test_who_wants_something_else_is_told_and_sent_away(
    broker: Broker, method: str, boot_id: str | None, code: Code
) -> None:
    raw = await dialled(broker, method, boot_id)
    welcome = Welcome.FromString(bytes(raw.frames[0]))
    assert welcome.code == code
    assert welcome.remark
    await until(lambda: raw.reasons)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2\xff\xff", b"\0\0\1\0"])
async def test_what_is_no_greeting_ends_the_connection(
    broker: Broker, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HELLO_S", 0.2)
    monkeypatch.setattr(acceptor, "SILENT_S", 0.2)
    raw = await dialled(broker)
    raw.transport.write(data)
    await until(lambda: raw.reasons)
    await until(lambda: not broker.fast.connections)
    async with linked(broker.address) as link:
        await carries(link)


async def test_a_greeting_may_not_be_long(broker: Broker) -> None:
    raw = await dialled(broker)
    raw.write(bytes(listener.HELLO_BYTES + 1))
    await until(lambda: raw.reasons)


async def test_a_frame_that_is_no_run_is_refused_and_the_next_one_is_served(broker: Broker) -> None:
    raw = await dialled(broker, SEND)
    raw.write(b"\xff\xff")
    raw.write(a_run("t", [b"good"], seq=7).encode())
    await until(lambda: len(raw.frames) == 3)
    refused, stored = map(SendRunResult.decode, raw.frames[1:])
    assert (refused.seq, refused.code) == (0, Code.MESSAGE_ILLEGAL)
    assert (stored.seq, stored.code) == (7, 0)
    raw.close()


async def test_a_frame_that_is_no_pull_ends_its_connection_after_the_answers_before_it(broker: Broker) -> None:
    raw = await dialled(broker, PULL)
    raw.write(wanted(suspend_ms=0).SerializeToString())
    raw.write(b"\xff\xff")
    await until(lambda: raw.reasons)
    assert PullAnswer.decode(raw.frames[1]).code == Code.TOPIC_NOT_EXIST
    assert len(raw.frames) == 2
    async with linked(broker.address) as link:
        await carries(link)


async def test_who_sends_nothing_more_still_gets_the_answers(broker: Broker) -> None:
    raw = await dialled(broker, SEND)
    raw.write(a_run("t", [b"last"], seq=7).encode())
    raw.transport.write_eof()
    await until(lambda: raw.reasons)
    assert SendRunResult.decode(raw.frames[1]).code == 0


async def test_a_request_larger_than_any_pull_ends_its_connection(broker: Broker) -> None:
    raw = await dialled(broker, PULL)
    raw.write(bytes(MAX_REQUEST_BYTES + 1))
    await until(lambda: raw.reasons)
    assert len(raw.frames) == 1


async def test_who_reads_no_answers_is_neither_answered_into_memory_nor_read_from(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [LARGE]))
    raw = await dialled(broker, PULL)
    raw.transport.pause_reading()
    for _ in range(1000):
        raw.write(wanted().SerializeToString())
    (conversation,) = broker.fast.conversations
    await until(lambda: conversation.full)
    for _ in range(50):
        await asyncio.sleep(0)
    kept = conversation.transport.get_write_buffer_size()
    assert kept < 2 * len(LARGE)
    raw.transport.resume_reading()
    await until(lambda: len(raw.frames) == 1001, 30)
    assert all(len(PullAnswer.decode(frame).sizes) == 1 for frame in raw.frames[1:])
    raw.close()


async def test_what_comes_faster_than_it_is_handled_waits_at_its_sender(broker: Broker) -> None:
    started = asyncio.Event()

    async def reads_none(requests: Any, context: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    broker.fast._methods = {SEND: listener.Method(reads_none)}
    raw = await dialled(broker, SEND)
    await started.wait()
    for _ in range(100):
        raw.write(LARGE)
    (conversation,) = broker.fast.conversations
    await until(lambda: conversation.held)
    assert len(conversation.unread) < 2 * MOST_UNREAD
    await until(lambda: raw.full)
    raw.fail("done")
