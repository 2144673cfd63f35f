"""The broker's named places, each armed once: what would come next does not happen, and all else does."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_wire import Wire, a_run, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_broker.base.streams import MOST_ASKED
from dejamq_broker.store import StoreConfig
from dejamq_proto import failpoints
from dejamq_proto.client_pb2 import Commits, ConsumerListRequest, Heartbeat, QueueCommit
from dejamq_proto.codes import Code
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.failpoints import Failpoints
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import HAS_SUBSCRIPTION, MAY_SUSPEND, PULL_MESSAGE, SEND_MESSAGE_V2
from dejamq_proto.wire.messages import PullAnswer, SendRunResult
from remoting_wire import RemotingClient, a_pull, a_send, remoting

SYNC = StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH")
Arm = Callable[[str], Failpoints]


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Arm these places of this process until the test ends."""

    def armed(text: str) -> Failpoints:
        chosen = Failpoints(text)
        monkeypatch.setattr(failpoints, "ARMED", True)
        monkeypatch.setattr(failpoints, "_armed", chosen)
        return chosen

    return armed


async def test_a_pull_whose_answer_is_dropped_stays_unanswered_and_the_next_one_is_not(
    tmp_path: Path, arm: Arm
) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"a"]))

        async def readable() -> bool:
            return len((await wire.pull("orders")).sizes) == 1

        await until(readable)
        arm("pull.answer=1*drop->off")
        stream = wire.pull_stream()
        lost, other = wire.pull_request("orders", 0), wire.pull_request("orders", 0)
        await stream.write(lost)
        await stream.write(other)
        answer = PullAnswer.decode(await stream.read())
        assert (answer.seq, len(records_of(answer))) == (other.caller.seq, 1)


@pytest.mark.parametrize(("place", "stored"), [("send.request", False), ("send.answer", True)])
async def test_a_run_is_lost_before_or_after_it_is_stored(tmp_path: Path, arm: Arm, place: str, stored: bool) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        arm(f"{place}=1*drop->off")
        stream = wire.send_stream()
        await stream.write(a_run("orders", [b"lost"], seq=1).encode())
        await stream.write(a_run("orders", [b"told"], seq=2).encode())
        answer = SendRunResult.decode(await stream.read())
        assert (answer.seq, answer.code, answer.queue_offsets.tolist()) == (2, 0, [int(stored)])


async def test_a_disk_that_never_confirms_is_told_when_the_wait_is_over_and_the_message_is_there(
    tmp_path: Path, arm: Arm
) -> None:
    async with running(tmp_path, store=SYNC, sync_flush_timeout_ms=20) as broker, Wire(broker.address) as wire:
        arm("send.flush=1*drop->off")
        late = await wire.send(a_run("orders", [b"late"]))
        assert (late.code, late.queue_offsets.tolist()) == (Code.FLUSH_DISK_TIMEOUT, [0])
        assert "did not confirm it" in late.remark

        async def there() -> list[bytes]:
            return [record.body for record in records_of(await wire.pull("orders"))]

        assert await until(there) == [b"late"]


async def test_what_comes_beside_heartbeats_is_lost_where_the_call_would_be(tmp_path: Path, arm: Arm) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        stream = await wire.heartbeat_stream("g")

        async def commit(offset: int) -> None:
            queues = [QueueCommit(topic="t", offset=offset)]
            await stream.write(Heartbeat(commits=Commits(caller=wire.caller(), group="g", queues=queues)))

        async def ask(seq: int) -> None:
            caller = Caller(client_id="tester", boot_id="tester-boot", seq=seq)
            await stream.write(Heartbeat(consumer_list=ConsumerListRequest(caller=caller, group="g")))

        arm("rpc.UpdateOffset.request=1*off->1*drop->1*error->off;rpc.ConsumerList.request=1*drop->off;"
            "rpc.ConsumerList.answer=1*drop->off")  # fmt: skip
        for offset in (1, 0, 0):
            await commit(offset)
        for seq in (101, 102, 103):
            await ask(seq)
        told = [await stream.read() for _ in range(2)]
        assert "failpoint rpc.UpdateOffset.request" in told[0].commit_refused.remark
        assert told[1].consumer_list.seq == 103
        assert await wire.committed("g", "t") == 1


def a_commit(wire: Wire, topic: str, offset: int) -> Heartbeat:
    queues = [QueueCommit(topic=topic, offset=offset)]
    return Heartbeat(commits=Commits(caller=wire.caller(), group="g", queues=queues))


async def test_what_is_held_beside_heartbeats_holds_up_neither_them_nor_what_comes_later(
    tmp_path: Path, arm: Arm
) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        stream = await wire.heartbeat_stream("g")
        arm("rpc.UpdateOffset.request=pause(600000);rpc.ConsumerList.request=1*pause(600000)->off")
        for _ in range(2 * MOST_ASKED):
            await stream.write(a_commit(wire, "t", 1))
        for seq in (101, 102):
            caller = Caller(client_id="tester", boot_id="tester-boot", seq=seq)
            await stream.write(Heartbeat(consumer_list=ConsumerListRequest(caller=caller, group="g")))
        await stream.write(Heartbeat(caller=Caller(client_id="tester", boot_id="tester-boot", seq=103)))
        told = [await stream.read() for _ in range(2)]
        assert {each.consumer_list.seq or each.heartbeat_ack.seq for each in told} == {102, 103}
        stream.cancel()


async def test_what_was_paused_beside_heartbeats_is_done_and_answered_when_the_pause_is_over(
    tmp_path: Path, arm: Arm
) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        stream = await wire.heartbeat_stream("g")
        arm("rpc.UpdateOffset.request=pause(20)")
        await stream.write(a_commit(wire, "t", 1))
        await stream.write(a_commit(wire, "nope", 1))
        await stream.done_writing()
        assert (await stream.read()).commit_refused.code == Code.TOPIC_NOT_EXIST
        assert await wire.committed("g", "t") == 1


async def test_the_answer_to_commits_beside_heartbeats_is_lost_or_an_error_after_they_were_made(
    tmp_path: Path, arm: Arm
) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        stream = await wire.heartbeat_stream("g")
        arm("rpc.UpdateOffset.answer=1*error->off")
        await stream.write(a_commit(wire, "t", 1))
        assert "failpoint rpc.UpdateOffset.answer" in (await stream.read()).commit_refused.remark
        assert await wire.committed("g", "t") == 1


@pytest.mark.parametrize(("place", "stored"), [("request", False), ("answer", True)])
async def test_a_request_of_a_rocketmq_client_is_lost_before_or_after_its_work_is_done(
    tmp_path: Path, arm: Arm, place: str, stored: bool
) -> None:
    async with running(tmp_path) as broker, remoting(broker.address) as client:
        name = f"rpc.SEND_MESSAGE_V2.{place}"
        armed = arm(f"{name}=1*drop->off")
        lost = asyncio.create_task(client.ask(SEND_MESSAGE_V2, b"lost", **a_send()))
        await until(lambda: armed.spent(name))  # then it is this one that is lost
        told = await client.ask(SEND_MESSAGE_V2, b"told", **a_send())
        assert (told.code, told.ext["queueOffset"], lost.done()) == (0, str(int(stored)), False)
        lost.cancel()


HELD = a_pull(queueOffset=1, sysFlag=HAS_SUBSCRIPTION | MAY_SUSPEND, suspendTimeoutMillis=600_000)


async def held_pull(broker: Broker, client: RemotingClient) -> "asyncio.Task[Command]":
    """A pull at the end of its queue, which waits for a message."""
    before = broker.domain.long_poll.waiting
    pull = asyncio.create_task(client.ask(PULL_MESSAGE, **HELD))
    await until(lambda: broker.domain.long_poll.waiting > before)
    return pull


async def test_the_late_answer_to_a_held_pull_of_a_rocketmq_client_is_lost(tmp_path: Path, arm: Arm) -> None:
    async with running(tmp_path) as broker, remoting(broker.address) as client, Wire(broker.address) as wire:
        arm("rpc.PULL_MESSAGE.answer=1*drop->off")
        await wire.send(a_run("t", [b"x"]))
        lost = await held_pull(broker, client)
        told = await held_pull(broker, client)
        await wire.send(a_run("t", [b"x"]))
        assert (await told).ext["nextBeginOffset"] == "2"
        assert not lost.done()
        lost.cancel()


async def test_the_late_answer_to_a_held_pull_of_a_rocketmq_client_is_an_error(tmp_path: Path, arm: Arm) -> None:
    async with running(tmp_path) as broker, remoting(broker.address) as client, Wire(broker.address) as wire:
        arm("rpc.PULL_MESSAGE.answer=1*error->off")
        await wire.send(a_run("t", [b"x"]))
        pull = await held_pull(broker, client)
        await wire.send(a_run("t", [b"x"]))
        told = await pull
        assert (told.code, told.remark) == (Code.SYSTEM_ERROR, "failpoint rpc.PULL_MESSAGE.answer")
