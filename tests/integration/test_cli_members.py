"""``dejamq group`` against real servers and members."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio
from cli_cluster import consume, dejamq, fill, ignore, make
from cli_runner import NOBODY, Ran, run_beside
from dejamq import Admin, MessageQueue, PushConsumer
from dejamq_lab import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """Two brokers; each test has a topic and a group of its own."""
    async with Cluster(brokers=2, time_scale=0.1, journal_level="off") as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def members(cluster: Cluster, group: str, topic: str, *names: str, **settings: Any) -> AsyncIterator[None]:
    """So many, who have shared the topic's queues out."""
    async with contextlib.AsyncExitStack() as stack:
        consumers: list[PushConsumer] = []
        for name in names:
            consumer = cluster.push_consumer(group, client_id=name, **settings)
            consumer.subscribe(topic, ignore)
            consumers.append(await stack.enter_async_context(consumer))
        async with Admin(cluster.namesrv) as admin, asyncio.timeout(20):
            wanted = sum(one.read_queues for one in await admin.topic(topic))
            while sum(len(consumer.assignment) for consumer in consumers) != wanted:
                await asyncio.sleep(0.01)
        yield


async def until(cluster: Cluster, status: int, *arguments: str) -> Ran:
    """The first look that ends so: members share queues out a moment after they come."""
    async with asyncio.timeout(20):
        while (ran := await dejamq(cluster, *arguments)).status != status:
            await asyncio.sleep(0.05)
    return ran


async def test_a_group_is_described_by_its_members_their_queues_and_its_progress(cluster: Cluster) -> None:
    await fill(cluster, "told", 1)
    async with members(cluster, "tellers", "told", "c1", "c2"):
        ran = await until(cluster, 0, "group", "describe", "tellers")
        described = (await dejamq(cluster, "group", "describe", "tellers", "-o", "json")).json()
    lines = ran.picture().splitlines()
    assert lines[:3] == [
        "broker  consume_enable  consume_message_orderly  retry_queue_nums  retry_max_times",
        "broker-a  yes  no  1  16",
        "broker-b  yes  no  1  16",
    ]
    assert [line.split("  ")[:4] for line in lines[5:7]] == [
        ["c1", "127.0.0.1", "broker-a, broker-b", lines[5].split("  ")[3]],
        ["c2", "127.0.0.1", "broker-a, broker-b", lines[6].split("  ")[3]],
    ]
    assert lines[7] == "subscribed: told *"
    assert lines[9] == "topic  broker  queue_id  owners  committed  max_offset  lag"
    owners = {(row["topic"], row["broker"], row["queue_id"]): row["owners"] for row in described["queues"]}
    assert owners == {
        ("%RETRY%tellers", "broker-a", 0): ["c1"], ("%RETRY%tellers", "broker-b", 0): ["c2"],
        ("told", "broker-a", 0): ["c1"], ("told", "broker-a", 1): ["c1"],
        ("told", "broker-b", 0): ["c2"], ("told", "broker-b", 1): ["c2"],
    }  # fmt: skip
    assert list(described) == ["group", "settings", "members", "queues", "findings"]
    assert described["findings"] == []
    assert {member["allocation"] for member in described["members"]} == {"averagely"}


async def test_members_with_one_client_id_leave_queues_to_nobody_and_that_is_status_1(cluster: Cluster) -> None:
    await make(cluster, "doubled")
    twins = [cluster.push_consumer("doubles", client_id="twin") for _ in range(2)]
    for twin in twins:
        twin.subscribe("doubled", ignore)
    async with twins[0], twins[1]:
        await told(cluster, "twin is the client id of several processes", "doubles")
        (described,) = (await dejamq(cluster, "group", "describe", "doubles", "-o", "json")).objects()
    assert "clash" in {finding["kind"] for finding in described["findings"] if finding["harm"]}


async def test_a_queue_that_two_members_chose_for_themselves_has_two_owners(cluster: Cluster) -> None:
    await make(cluster, "chosen", 1)
    queue = MessageQueue("chosen", "broker-a", 0)
    async with (
        cluster.lite_pull_consumer("choosers", client_id="c1") as first,
        cluster.lite_pull_consumer("choosers", client_id="c2") as second,
    ):
        first.assign([queue])
        second.assign([queue])
        await told(cluster, "chosen broker-a:0 is consumed by c1 and c2: its messages come twice", "choosers")


async def test_owners_of_a_member_that_does_not_answer_are_unknown_and_that_is_status_3(cluster: Cluster) -> None:
    await make(cluster, "unheard", 1)
    async with members(cluster, "silent", "unheard", "c1"):
        with mock.patch("dejamq_cli.groups.view.ANSWER_TIMEOUT_S", 0):
            ran = await dejamq(cluster, "group", "describe", "silent")
            (described,) = (await dejamq(cluster, "group", "describe", "silent", "-o", "json")).objects()
    assert ran.status == 3
    assert "c1 does not say what it consumes: no answer within 0 s" in ran.one_line()
    assert [(one["queues"], one["silence"]) for one in described["members"]] == [(None, "no answer within 0 s")]
    assert not any(finding["harm"] for finding in described["findings"])


async def told(cluster: Cluster, text: str, group: str) -> None:
    """Until the description of the group says so."""
    async with asyncio.timeout(20):
        while text not in (ran := await dejamq(cluster, "group", "describe", group)).errors:
            await asyncio.sleep(0.05)
    assert ran.status == 1


async def test_a_group_that_nobody_knows_is_status_1_in_every_command(cluster: Cluster) -> None:
    for command in ("describe", "lag", "pause", "resume", "delete"):
        ran = await dejamq(cluster, "group", command, "nobodys")
        assert ran.status == 1
        assert "no broker knows a group 'nobodys'" in ran.one_line()
    async with Admin(cluster.namesrv) as admin:
        await admin.create_group("idlers")
    idle = await dejamq(cluster, "group", "lag", "idlers")
    assert (idle.status, idle.output) == (0, "idlers has committed nothing\n")
    assert (await dejamq(cluster, "group", "lag", "a b")).status == 2


async def test_a_group_is_made_and_changed_in_what_is_given(cluster: Cluster) -> None:
    async def create(*options: str) -> list[tuple[Any, ...]]:
        rows = (await dejamq(cluster, "group", "create", "made", *options, "-o", "json")).json()
        return [tuple(row.values())[1:] for row in rows]

    assert await create("--dry-run") == [("broker-a", 16, 1, "created"), ("broker-b", 16, 1, "created")]
    assert await create("--retry-queues", "2", "--broker", "broker-b") == [("broker-b", 16, 2, "created")]
    assert await create("--retry-max-times", "0") == [("broker-a", 0, 1, "created"), ("broker-b", 0, 2, "changed")]
    assert {row[-1] for row in await create("--retry-max-times", "0")} == {"unchanged"}
    async with Admin(cluster.namesrv) as admin:
        kept = [(one.retry_max_times, one.retry_queue_nums) for one in await admin.groups() if one.group == "made"]
    assert kept == [(0, 1), (0, 2)]
    nowhere = await dejamq(cluster, "group", "create", "made", "--broker", "broker-x")
    assert (nowhere.status, "no broker is named broker-x" in nowhere.one_line()) == (2, True)


async def test_lag_is_told_by_queue_for_a_group_and_by_topic_for_all(cluster: Cluster) -> None:
    await fill(cluster, "lagging", 2, queues=1)
    await consume(cluster, "laggards", "lagging", 4)
    async with Admin(cluster.namesrv) as admin:
        await admin.reset_offsets("laggards", "lagging", to_offset=1)
    ran = await dejamq(cluster, "group", "lag", "laggards", "--topic", "lagging")
    assert ran.picture() == (
        "topic  broker  queue_id  committed  max_offset  lag\n"
        "lagging  broker-a  0  1  2  1\n"
        "lagging  broker-b  0  1  2  1\n"
        "\n"
        "lag 2\n"
    )
    every = (await dejamq(cluster, "group", "lag", "-o", "json")).json()
    assert {"group": "laggards", "topic": "lagging", "queues": 2, "lag": 2} in every


async def test_a_queue_of_which_nothing_is_committed_is_shown_without_a_lag_not_with_minus_one(
    cluster: Cluster,
) -> None:
    await make(cluster, "untouched", 1)
    async with members(cluster, "waiting", "untouched", "c1"):
        rows = (await dejamq(cluster, "group", "lag", "waiting", "--topic", "untouched", "-o", "json")).json()
    assert [row["broker"] for row in rows] == ["broker-a", "broker-b"]
    assert all(row["lag"] in (0, None) for row in rows)


async def test_a_group_is_paused_and_resumed_at_every_broker(cluster: Cluster) -> None:
    async with Admin(cluster.namesrv) as admin:
        await admin.create_group("paused")
    assert (await dejamq(cluster, "group", "pause", "paused", "--dry-run")).picture() == (
        "group  broker  before  after\npaused  broker-a  consumes  paused\npaused  broker-b  consumes  paused\n"
    )

    async def enabled() -> set[Any]:
        rows = (await dejamq(cluster, "group", "list", "-o", "json")).json()
        return {row["consume_enable"] for row in rows if row["group"] == "paused"}

    assert await enabled() == {True}
    await dejamq(cluster, "group", "pause", "paused")
    assert await enabled() == {False}
    described = await dejamq(cluster, "group", "describe", "paused")
    assert described.status == 0
    assert "dejamq group resume paused" in described.one_line()
    await dejamq(cluster, "group", "resume", "paused")
    assert await enabled() == {True}


async def test_groups_are_listed_with_their_members_and_built_in_ones_only_on_demand(cluster: Cluster) -> None:
    await make(cluster, "listed")
    async with members(cluster, "listers", "listed", "c1", "c2"):
        rows = (await dejamq(cluster, "group", "list", "-o", "json")).json()
    (row,) = [row for row in rows if row["group"] == "listers"]
    assert row == {
        "group": "listers", "members": 2, "model": "CLUSTERING", "consume_enable": True, "retry_max_times": 16,
        "brokers": ["broker-a", "broker-b"],
    }  # fmt: skip
    assert not any(row["group"].startswith("TOOLS") for row in rows)


async def test_a_group_is_deleted_only_without_members_and_after_saying_so(cluster: Cluster) -> None:
    await fill(cluster, "ended", 1)
    async with members(cluster, "ending", "ended", "c1"):
        busy = await dejamq(cluster, "group", "delete", "ending", "--yes")
        assert busy.status == 1
        assert "has members; stop them first: c1" in busy.one_line()
    await until(cluster, 0, "group", "delete", "ending", "--dry-run")
    asked = await dejamq(cluster, "group", "delete", "ending")
    assert asked.status == 2
    assert "its offsets, its retries and its dead letters; add --yes" in asked.one_line()
    deleted = (await dejamq(cluster, "group", "delete", "ending", "--yes", "-o", "json")).json()
    assert [(row["broker"], row["offsets"]) for row in deleted] == [("broker-a", "deleted"), ("broker-b", "deleted")]
    assert (await dejamq(cluster, "group", "describe", "ending")).status == 1
    assert (await dejamq(cluster, "offset", "get", "ending")).status == 1


async def test_a_plan_of_a_live_group_takes_its_members_queues_and_strategy(cluster: Cluster) -> None:
    await make(cluster, "planned")
    async with members(cluster, "planners", "planned", "c1", "c2", allocation="averagely_by_circle"):
        ran = await dejamq(cluster, "group", "plan", "planners")
        more = await dejamq(cluster, "group", "plan", "planners", "--members", "c1,c2", "--members", "c1,c2,c3")
        told = (await dejamq(cluster, "group", "plan", "planners", "--strategy", "averagely", "-o", "json")).json()
    assert ran.picture() == (
        "member  queues  which\n"
        "c1  2  planned broker-a:0 broker-b:0\n"
        "c2  2  planned broker-a:1 broker-b:1\n"
        "\n"
        "every queue has one owner\n"
    )
    assert more.status == 1
    assert "averagely_by_circle" in more.output
    assert told["views"][0]["shares"][0] == {"member": "c1", "queues": ["planned broker-a:0", "planned broker-a:1"]}
    nobody = await dejamq(cluster, "group", "plan", "planners-of-nothing")
    assert nobody.status == 1
    assert "--members" in nobody.one_line()


async def test_without_a_cluster_every_command_is_one_line_and_cannot_tell() -> None:
    for arguments in (
        ("group", "list"), ("group", "describe", "g"), ("group", "lag"), ("group", "pause", "g"),
        ("group", "plan", "g"),
        ("group", "delete", "g", "--yes"), ("offset", "get", "g"), ("offset", "reset", "g", "t", "--to-end"),
        ("offset", "clone", "g", "h", "t"), ("offset", "skip", "g", "t"), ("topic", "create", "t"),
        ("topic", "describe", "t"), ("topic", "delete", "t", "--yes"), ("topic", "route", "t"),
        ("topic", "route", "t", "--diff"), ("broker", "list"), ("broker", "describe", "b"),
        ("broker", "config", "get", "b"), ("broker", "config", "set", "b", "k=v"), ("broker", "stop-writes", "b"),
        ("client", "list"), ("cluster", "list"),
    ):  # fmt: skip
        ran = await run_beside(*arguments, "--namesrv", NOBODY)
        assert (ran.status, ran.output) == (3, ""), arguments
        assert NOBODY in ran.one_line()
