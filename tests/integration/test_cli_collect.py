"""``dejamq collect`` against our own servers: what it asks, that it changes nothing, and how it goes on."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cli_cluster import consume, dejamq, fill, ignore, make
from cli_runner import NOBODY, Ran, run_beside, run_here
from consumer_cluster import servers
from dejamq import Message
from dejamq_lab import Cluster
from dejamq_lab.cluster.waiting import until
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.remoting import requests as r
from evidence import asked_at, bodies_of, files_of, lines_of
from remoting_wire import a_heartbeat, remoting

TRACES = "traces"
PATIENCE_S = 40


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, namesrvs=2, time_scale=0.1, journal_level="off") as cluster:
        yield cluster


async def snapshot(cluster: Cluster, out: Path, *more: str) -> Ran:
    return await dejamq(
        cluster, "collect", "--out", str(out), "--once", "--trace-topic", TRACES, "--rate", "500", *more
    )


async def say(cluster: Cluster, *texts: str) -> None:
    """Messages of the trace topic, one queue after the other."""
    async with cluster.producer("tracer") as producer:
        for number, text in enumerate(texts):
            queues = await producer.publish_queues(TRACES)
            await producer.send(Message(TRACES, text.encode(), keys=f"k{text}"), queue=queues[number % len(queues)])


def addresses(cluster: Cluster, *brokers: str) -> set[str]:
    return {cluster.broker(name).address for name in brokers}


def command(cluster: Cluster, out: Path, *more: str) -> tuple[str, ...]:
    return (
        "collect", "--namesrv", cluster.namesrv, "--out", str(out), "--trace-topic", TRACES, "--interval", "0.2",
        "--rate", "500", *more,
    )  # fmt: skip


@asynccontextmanager
async def collecting(cluster: Cluster, out: Path, *more: str) -> AsyncIterator[Process]:
    """The command as a process of its own, ended with the block at the latest."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", *command(cluster, out, *more), stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def ended(process: Process, number: signal.Signals) -> tuple[int | None, str, str]:
    process.send_signal(number)
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, output.decode(), errors.decode()


async def seen(condition: Callable[[], bool]) -> None:
    assert await until(condition, PATIENCE_S)


async def test_a_snapshot_has_the_answers_of_every_server(cluster: Cluster, tmp_path: Path) -> None:
    await fill(cluster, "orders", 3)
    await consume(cluster, "billing", "orders", 12)
    consumer = cluster.push_consumer("billing", client_id="billing-1")
    consumer.subscribe("orders", ignore)
    async with consumer:
        summary = (await snapshot(cluster, tmp_path, "-o", "json")).json()
    namesrvs, brokers = set(cluster.namesrv.split(";")), addresses(cluster, "broker-a", "broker-b")
    for kind, asked in {"cluster": namesrvs, "routes": namesrvs, "offsets": brokers, "delay_offsets": brokers}.items():
        assert set(asked_at(tmp_path, kind)) == asked, kind
    assert set(asked_at(tmp_path, "groups")) == set(asked_at(tmp_path, "connections")) == brokers
    for line in lines_of(tmp_path, "offsets"):
        assert line["body"]["offsetTable"]["orders@billing"] == {"0": 3, "1": 3}
        assert line["asked_ms"] <= line["at_ms"]
        assert (line["cluster"], line["broker"][:7], line["broker_id"]) == ("DefaultCluster", "broker-", 0)
    for line in lines_of(tmp_path, "members", group="billing"):
        assert line["body"] == {"consumerIdList": ["billing-1"]}
    assert len(lines_of(tmp_path, "members", group="billing")) == 2
    for line in lines_of(tmp_path, "routes", topic="orders"):
        assert [one["brokerName"] for one in line["body"]["queueDatas"]] == ["broker-a", "broker-b"]
    assert {line["code"] for line in lines_of(tmp_path, "routes", topic=TRACES)} == {17}
    assert summary["answers"] == {kind: asked_at(tmp_path, kind).total() for kind in summary["answers"]}
    assert (summary["rounds"], summary["silent"], summary["evidence"]) == (1, {}, str(tmp_path))
    assert lines_of(tmp_path)[-1]["summary"]["answers"] == summary["answers"]


async def test_nothing_of_the_cluster_changes(cluster: Cluster, tmp_path: Path) -> None:
    await fill(cluster, "orders", 3)
    await make(cluster, TRACES)
    await say(cluster, "one", "two")
    await consume(cluster, "billing", "orders", 12)

    async def everything() -> list[Any]:
        ways = [("topic", "list"), ("group", "list"), ("client", "list"), ("group", "lag", "billing")]
        ways += [("topic", "describe", TRACES), ("topic", "describe", "orders")]
        return [(await dejamq(cluster, *way, "-o", "json")).output for way in ways]

    before = await everything()
    assert (await snapshot(cluster, tmp_path, "--running-info", "--group", "unknown")).status == 0
    assert (await snapshot(cluster, tmp_path)).status == 0
    assert sorted(bodies_of(tmp_path)) == ["one", "two"]
    assert await everything() == before


async def test_a_trace_message_keeps_what_the_broker_and_the_sender_said_of_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    await make(cluster, TRACES, queues=1)
    text = "Pub\u0001" + "long" * 2_000 + "\u0002"  # packed by its sender
    async with cluster.producer("tracer") as producer:
        await producer.send(Message(TRACES, text.encode(), keys=["id1", "key1"]))
    await snapshot(cluster, tmp_path)
    (line,) = lines_of(tmp_path, "trace")
    assert (line["body"], line["keys"], line["topic"], line["queue_id"], line["queue_offset"]) == (
        text, "id1 key1", TRACES, 0, 0
    )  # fmt: skip
    assert line["born_ms"] <= line["stored_ms"] <= line["at_ms"]
    assert line["born_host"].startswith("127.0.0.1:")
    assert line["store_host"] == line["source"]
    assert "UNIQ_KEY" in line["properties"]
    assert "KEYS" not in line["properties"]


async def test_the_trace_topic_goes_on_where_it_was_read_to(cluster: Cluster, tmp_path: Path) -> None:
    await make(cluster, TRACES)
    texts = [f"t{number}" for number in range(90)]
    for begin in range(0, 90, 30):
        await say(cluster, *texts[begin : begin + 30])
        assert (await snapshot(cluster, tmp_path)).status == 0
    await snapshot(cluster, tmp_path)
    assert sorted(bodies_of(tmp_path)) == sorted(texts)
    assert len(files_of(tmp_path)) == 4
    assert len(lines_of(tmp_path, "session", event="begin")) == 4


async def test_the_trace_topic_may_be_begun_at_its_end_or_at_a_time(cluster: Cluster, tmp_path: Path) -> None:
    await make(cluster, TRACES, queues=1)
    await say(cluster, "before")
    await snapshot(cluster, tmp_path / "end", "--trace-from", "end")
    await snapshot(cluster, tmp_path / "time", "--trace-from", "1h ago")
    await snapshot(cluster, tmp_path / "late", "--trace-from", "now")
    await say(cluster, "after")
    for name in ("end", "time", "late"):
        await snapshot(cluster, tmp_path / name)
    assert [bodies_of(tmp_path / name) for name in ("end", "time", "late")] == [
        ["after"], ["before", "after"], ["after"]
    ]  # fmt: skip


async def test_messages_that_were_removed_before_they_were_read_are_told_as_a_gap(tmp_path: Path) -> None:
    async with servers(tmp_path) as site:
        assert site.broker is not None
        store = site.broker.domain.store
        async with site.producer() as producer:
            queue = (await producer.publish_queues("orders"))[0]
            await producer.send(Message("orders", b"read"), queue=queue)
            ways = ("collect", "--namesrv", site.namesrv.address, "--out", str(tmp_path / "ev"), "--once")
            read = (*ways, "--trace-topic", "orders")
            assert (await asyncio.to_thread(run_here, *read)).status == 0
            for _ in range(100):
                await producer.send(Message("orders", os.urandom(100_000)), queue=queue)
        disk = store.inspect().disk
        store.inspect().retention.safe_end = lambda: store.log_max
        disk.used_percent = lambda folder: 88
        disk.look()
        store.inspect().retention.clean(0)
        low = store.min_offset("orders", queue.queue_id)
        assert low > 1
        ran = await asyncio.to_thread(run_here, *read, "-o", "json")
    (gap,) = lines_of(tmp_path / "ev", "session", event="gap")
    assert (gap["queue_id"], gap["from_offset"], gap["to_offset"]) == (queue.queue_id, 1, low)
    assert [line["queue_offset"] for line in lines_of(tmp_path / "ev", "trace")] == [0, *range(low, 101)]
    assert ran.json()["trace_messages_missed"] == low - 1


async def test_only_the_named_groups_are_asked_about(cluster: Cluster, tmp_path: Path) -> None:
    await fill(cluster, "orders", 1, queues=1)
    for group in ("billing", "shipping"):
        await consume(cluster, group, "orders", 2)
    await snapshot(cluster, tmp_path / "one", "--group", "billing")
    await snapshot(cluster, tmp_path / "all")
    groups = {name: {line["group"] for line in lines_of(tmp_path / name, "connections")} for name in ("one", "all")}
    assert groups == {"one": {"billing"}, "all": {"billing", "shipping"}}


async def test_a_client_is_asked_what_it_does_only_where_that_is_wanted(cluster: Cluster, tmp_path: Path) -> None:
    """Once, though both brokers know it. Bare objects as keys become texts."""
    told = b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:{"commitOffset":3}}}'
    async with remoting(cluster.broker("broker-a").address) as one, remoting(cluster.broker("broker-b").address) as two:
        for member in (one, two):
            assert (await member.ask(r.HEART_BEAT, a_heartbeat("c1", "cg"))).code == 0
            await member.push()

        async def answering(member: Any) -> None:
            while True:
                member.reply(await member.push(), told)

        answers = [asyncio.create_task(answering(member)) for member in (one, two)]
        await snapshot(cluster, tmp_path / "quiet")
        await snapshot(cluster, tmp_path / "asked", "--running-info")
        for task in answers:
            task.cancel()
    assert lines_of(tmp_path / "quiet", "running") == []
    (line,) = lines_of(tmp_path / "asked", "running")
    assert (line["group"], line["client_id"], line["code"]) == ("cg", "c1", 0)
    (key,) = line["body"]["mqTable"]
    assert json.loads(key) == {"brokerName": "broker-a", "queueId": 0, "topic": "t"}


async def test_slaves_are_asked_too_and_the_trace_is_read_from_masters(tmp_path: Path) -> None:
    async with Cluster(slaves=1, time_scale=0.1, journal_level="off") as cluster:
        await make(cluster, TRACES, queues=1)
        await say(cluster, "one")
        await snapshot(cluster, tmp_path)
        master, slave = addresses(cluster, "broker-a"), addresses(cluster, "broker-a-s1")
    assert {line["broker_id"]: line["source"] for line in lines_of(tmp_path, "offsets")} == {
        0: master.pop(), 1: slave.pop()
    }  # fmt: skip
    assert [line["broker_id"] for line in lines_of(tmp_path, "trace")] == [0]


async def test_a_cluster_without_a_trace_topic_is_told(cluster: Cluster, tmp_path: Path) -> None:
    ran = await snapshot(cluster, tmp_path)
    assert (
        ran.one_line()
        == f"dejamq: no name server has a route of {TRACES}; brokers with traceTopicEnable=true have it\n"
    )


def test_nobody_that_answers_is_said_and_cannot_be_told(tmp_path: Path) -> None:
    ran = run_here("collect", "--namesrv", NOBODY, "--out", str(tmp_path), "--once", "-o", "json")
    assert ran.status == 3
    assert ran.errors.splitlines()[0].startswith(f"dejamq: name server {NOBODY} does not answer")
    assert json.loads(ran.output)["silent"].keys() == {NOBODY}
    assert [line["source"] for line in lines_of(tmp_path, "session", event="away")] == [NOBODY]


async def test_a_name_server_without_brokers_is_said_and_cannot_be_told(tmp_path: Path) -> None:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    namesrv = await server.start()
    try:
        ran = await run_beside("collect", "--namesrv", namesrv, "--out", str(tmp_path), "--once")
    finally:
        await server.close()
    assert (ran.status, ran.one_line()) == (3, "dejamq: no name server knows a broker\n")


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--max-size", "much", "--max-size takes a size such as 500MB or 2GB"),
        ("--max-size", "100K", "--max-size is 1MB at least"),
        ("--trace-from", "then", "--trace-from takes a time"),
        ("--trace-topic", "a b", "topic 'a b' may hold only"),
        ("--access-key", "me", "--access-key needs its secret key in the environment variable DEJAMQ_SECRET_KEY"),
        ("--group", "a b", "group 'a b' may hold only"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(tmp_path: Path, option: str, value: str, why: str) -> None:
    ran = run_here("collect", "--namesrv", NOBODY, "--out", str(tmp_path / "new"), option, value)
    assert (ran.status, why in ran.one_line()) == (2, True), ran.errors
    assert not (tmp_path / "new").exists()


@pytest.mark.process
@pytest.mark.timeout(150)
async def test_ctrl_c_ends_it_with_a_summary_and_it_goes_on_when_started_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    await make(cluster, TRACES)
    await say(cluster, "a", "b")
    async with collecting(cluster, tmp_path) as process:
        await seen(lambda: len(bodies_of(tmp_path)) == 2 and len(lines_of(tmp_path, "offsets")) > 6)
        await say(cluster, "c", "d")
        await seen(lambda: len(bodies_of(tmp_path)) == 4)
        status, output, errors = await ended(process, signal.SIGINT)
    assert (status, errors) == (130, "")
    assert "trace_messages         4\n" in output
    assert lines_of(tmp_path)[-1]["why"] == "signal"
    await say(cluster, "e", "f")
    async with collecting(cluster, tmp_path) as process:
        await seen(lambda: len(bodies_of(tmp_path)) == 6)
        assert (await ended(process, signal.SIGTERM))[0] == 130
    assert sorted(bodies_of(tmp_path)) == list("abcdef")


@pytest.mark.process
@pytest.mark.timeout(150)
async def test_a_kill_loses_no_trace_message_and_repeats_none(cluster: Cluster, tmp_path: Path) -> None:
    await make(cluster, TRACES)
    texts = [f"t{number}" for number in range(400)]
    talking = asyncio.create_task(say(cluster, *texts))
    for least in (50, 120, 200):
        async with collecting(cluster, tmp_path) as process:
            await seen(lambda least=least: len(bodies_of(tmp_path)) >= least)  # type: ignore[misc]
            process.kill()
            await process.wait()
    await talking
    assert (await snapshot(cluster, tmp_path)).status == 0
    assert sorted(bodies_of(tmp_path)) == sorted(texts)


@pytest.mark.process
@pytest.mark.timeout(150)
async def test_a_disk_without_room_ends_it_and_with_room_it_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    await make(cluster, TRACES)
    await say(cluster, *(f"t{number}" for number in range(50)))
    words = [sys.executable, "-m", "dejamq_cli", *command(cluster, tmp_path)]
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", 'ulimit -f 20; exec "$@"', "bash", *words, stdout=PIPE, stderr=PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 1
    assert errors.decode() == f"dejamq: {tmp_path}/evidence-000001.jsonl: File too large\n"
    assert (await snapshot(cluster, tmp_path)).status == 0
    assert sorted(bodies_of(tmp_path)) == sorted(f"t{number}" for number in range(50))


@pytest.mark.process
@pytest.mark.timeout(150)
async def test_a_broker_that_goes_away_is_told_and_asked_again_when_it_is_back(tmp_path: Path) -> None:
    async with Cluster(brokers=2, time_scale=0.1, journal_level="off", processes=True) as cluster:
        await make(cluster, TRACES, queues=1)
        await say(cluster, "a", "b")
        gone = cluster.broker("broker-b").address
        async with collecting(cluster, tmp_path) as process:
            await seen(lambda: len(bodies_of(tmp_path)) == 2 and asked_at(tmp_path, "offsets")[gone] > 1)
            cluster.broker("broker-b").kill()
            await seen(lambda: bool(lines_of(tmp_path, "session", event="away", source=gone)))
            others = asked_at(tmp_path, "offsets").total()
            await seen(lambda: asked_at(tmp_path, "offsets").total() > others + 2)
            connected = len(lines_of(tmp_path, "session", event="connected", source=gone))
            cluster.broker("broker-b").restart()
            await seen(lambda: len(lines_of(tmp_path, "session", event="connected", source=gone)) > connected)
            await say(cluster, "c", "d")
            await seen(lambda: len(bodies_of(tmp_path)) == 4)
            status, _, errors = await ended(process, signal.SIGINT)
    assert status == 130
    assert sorted(bodies_of(tmp_path)) == ["a", "b", "c", "d"]
    assert f"broker-b {gone} does not answer" in errors
    assert f"broker-b {gone} answers again" in errors


@pytest.mark.process
@pytest.mark.timeout(150)
async def test_a_broker_that_hangs_is_left_out_of_a_snapshot_and_named(tmp_path: Path) -> None:
    async with Cluster(brokers=2, time_scale=0.1, journal_level="off", processes=True) as cluster:
        await fill(cluster, "orders", 1)
        cluster.broker("broker-b").pause()
        try:
            ran = await snapshot(cluster, tmp_path, "-o", "json")
        finally:
            cluster.broker("broker-b").resume()
        hung = cluster.broker("broker-b").address
    assert ran.status == 3
    assert json.loads(ran.output)["silent"].keys() == {hung}
    assert set(asked_at(tmp_path, "offsets")) == addresses(cluster, "broker-a")
