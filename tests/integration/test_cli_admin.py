"""``dejamq topic``, ``broker``, ``cluster``, ``client`` and ``offset`` against real servers."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio
from cli_cluster import consume, dejamq, fill, ignore, make
from cli_runner import NOBODY, Ran, run_beside
from dejamq import Admin
from dejamq_lab import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """Two brokers and two name servers; each test has topics and groups of its own."""
    async with Cluster(brokers=2, namesrvs=2, time_scale=0.1, journal_level="off") as cluster:
        yield cluster


# --- topics


async def test_a_topic_is_made_at_every_broker_shown_and_changed_only_in_what_is_given(cluster: Cluster) -> None:
    made = await dejamq(cluster, "topic", "create", "made", "--queues", "2")
    assert made.picture() == (
        "topic  broker  read_queues  write_queues  perm  order  change\n"
        "made  broker-a  2  2  rw  no  created\n"
        "made  broker-b  2  2  rw  no  created\n"
    )
    changed = await dejamq(cluster, "topic", "create", "made", "--write-queues", "1", "--broker", "broker-b")
    assert changed.picture().splitlines()[1:] == ["made  broker-b  2  1  rw  no  changed"]
    described = await dejamq(cluster, "topic", "describe", "made")
    assert described.picture() == (
        "broker  read_queues  write_queues  perm  order\n"
        "broker-a  2  2  rw  no\n"
        "broker-b  2  1  rw  no\n"
        "\n"
        "broker  queue_id  min_offset  max_offset  messages  last_stored\n"
        "broker-a  0  0  0  0  -\n"
        "broker-a  1  0  0  0  -\n"
        "broker-b  0  0  0  0  -\n"
        "broker-b  1  0  0  0  -\n"
    )
    again = await dejamq(cluster, "topic", "create", "made", "-o", "json")
    assert {row["change"] for row in again.json()} == {"unchanged"}


async def test_what_a_dry_run_of_a_creation_shows_is_not_done(cluster: Cluster) -> None:
    ran = await dejamq(cluster, "topic", "create", "never-made", "--dry-run", "-o", "json")
    assert [(row["broker"], row["write_queues"], row["change"]) for row in ran.json()] == [
        ("broker-a", 8, "created"), ("broker-b", 8, "created"),
    ]  # fmt: skip
    assert "nothing was changed" in ran.one_line()
    missing = await dejamq(cluster, "topic", "describe", "never-made")
    assert (missing.status, missing.output) == (1, "")
    assert "never-made" in missing.one_line()


async def test_topics_are_listed_without_those_of_the_system_unless_all_are_wanted(cluster: Cluster) -> None:
    await dejamq(cluster, "topic", "create", "listed", "--queues", "1")
    own = {row["topic"] for row in (await dejamq(cluster, "topic", "list", "-o", "json")).json()}
    every = {
        row["topic"]: row["kind"] for row in (await dejamq(cluster, "topic", "list", "--all", "-o", "json")).json()
    }
    assert "listed" in own
    assert "TBW102" not in own
    assert (every["listed"], every["TBW102"]) == ("user", "system")


async def test_a_topic_is_deleted_after_saying_so_and_is_gone(cluster: Cluster) -> None:
    await fill(cluster, "doomed", 3)
    asked = await dejamq(cluster, "topic", "delete", "doomed")
    assert asked.status == 2
    assert "deletes doomed with 12 messages at broker-a, broker-b; add --yes" in asked.one_line()
    shown = await dejamq(cluster, "topic", "delete", "doomed", "--dry-run")
    assert shown.picture() == (
        "topic  broker  messages  change\ndoomed  broker-a  6  deleted\ndoomed  broker-b  6  deleted\n"
    )
    assert (await dejamq(cluster, "topic", "describe", "doomed")).status == 0
    assert len((await dejamq(cluster, "topic", "delete", "doomed", "--yes", "-o", "json")).json()) == 2
    assert (await dejamq(cluster, "topic", "route", "doomed")).status == 1
    assert "doomed" in (await dejamq(cluster, "topic", "delete", "doomed", "--yes")).one_line()


async def test_a_route_shows_where_the_queues_are(cluster: Cluster) -> None:
    await dejamq(cluster, "topic", "create", "routed", "--queues", "3", "--broker", "broker-a")
    ran = await dejamq(cluster, "topic", "route", "routed")
    assert ran.picture() == ("broker  addresses  read_queues  write_queues  perm\nbroker-a  0=HOST:PORT  3  3  rw\n")
    (row,) = (await dejamq(cluster, "topic", "route", "routed", "-o", "json")).json()
    assert (row["perm"], row["read_queues"]) == (6, 3)


async def test_name_servers_that_disagree_about_a_route_are_shown_and_are_status_1(cluster: Cluster) -> None:
    await dejamq(cluster, "topic", "create", "disputed", "--queues", "2")
    agreed = await dejamq(cluster, "topic", "route", "disputed", "--diff", "-o", "json")
    assert [row["agree"] for row in agreed.json()] == [True, True]
    first, second = cluster.namesrv.split(";")
    async with Admin(second) as admin:
        await admin.stop_writes("broker-b")
    try:
        ran = await dejamq(cluster, "topic", "route", "disputed", "--diff")
        told = await dejamq(cluster, "topic", "route", "disputed", "--diff", "-o", "json")
    finally:
        async with Admin(second) as admin:
            await admin.start_writes("broker-b")
    assert ran.status == 1
    assert ran.picture() == (
        "broker  HOST:PORT  HOST:PORT  agree\n"
        "broker-a  2 rw 0=HOST:PORT  2 rw 0=HOST:PORT  yes\n"
        "broker-b  2 rw 0=HOST:PORT  2 r 0=HOST:PORT  no\n"
    )
    assert "disagree about disputed" in ran.one_line()
    differing = {row["broker"]: row["said"] for row in map(dict, told.objects()[0]) if not row["agree"]}
    assert [(one["namesrv"], one["route"]["perm"]) for one in differing["broker-b"]] == [(first, 6), (second, 4)]


async def test_a_comparison_without_a_name_server_that_does_not_answer_cannot_tell(cluster: Cluster) -> None:
    await dejamq(cluster, "topic", "create", "half-told", "--queues", "1")
    ran = await run_beside("topic", "route", "half-told", "--diff", "--namesrv", f"{cluster.namesrv};{NOBODY}")
    assert ran.status == 3
    assert f"{NOBODY} does not answer" in ran.one_line()
    assert ran.output.count("yes") == 2
    assert (await dejamq(cluster, "topic", "route", "nowhere", "--diff")).status == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "x", "--perm", "all"), "--perm is rw, r or w"),
        (("create", "x", "--broker", "broker-z"), "there are broker-a, broker-b"),
        (("create", "SCHEDULE_TOPIC_XXXX"), "broker itself"),
        (("create", "a b"), "letters"),
        (("describe", "a b"), "letters"),
        (("delete", "TBW102", "--yes"), "TBW102"),
    ],
)
async def test_bad_use_of_topics_is_one_line_and_changes_nothing(
    cluster: Cluster, arguments: tuple[str, ...], words: str
) -> None:
    before = (await dejamq(cluster, "topic", "list", "--all")).output
    ran = await dejamq(cluster, "topic", *arguments)
    assert ran.status in (1, 2)
    assert words in ran.one_line()
    assert (await dejamq(cluster, "topic", "list", "--all")).output == before


async def test_the_shell_completes_names_of_the_live_cluster(cluster: Cluster) -> None:
    await make(cluster, "completed")
    for words, wanted in (
        ("topic describe compl", ["completed"]),
        ("broker describe broker-", ["broker-a", "broker-b"]),
        ("topic create new --broker broker-b", ["broker-b"]),
    ):
        asked = {"_DEJAMQ_COMPLETE": "complete_bash", "COMP_WORDS": f"dejamq {words}"}
        asked |= {"COMP_CWORD": str(len(words.split())), "DEJAMQ_NAMESRV": cluster.namesrv}
        with mock.patch.dict(os.environ, asked):
            ran = await run_beside()
        assert ran.output.split() == wanted


# --- brokers


async def test_brokers_are_listed_with_what_they_say_of_themselves(cluster: Cluster) -> None:
    ran = await dejamq(cluster, "broker", "list", "-o", "json")
    assert [(row["broker"], row["id"], row["answers"]) for row in ran.json()] == [
        ("broker-a", 0, True), ("broker-b", 0, True),
    ]  # fmt: skip
    assert list(ran.json()[0]) == ["broker", "id", "address", "answers", "version", "put_tps", "get_tps", "disk"]
    described = await dejamq(cluster, "broker", "describe", "broker-b", "-o", "json")
    assert described.json()["brokerName"] == "broker-b"
    assert "brokerName" in (await dejamq(cluster, "broker", "describe", "broker-b")).output
    assert "there are broker-a, broker-b" in (await dejamq(cluster, "broker", "describe", "broker-z")).one_line()


async def test_settings_of_a_broker_are_read_one_or_all(cluster: Cluster) -> None:
    ran = await dejamq(cluster, "broker", "config", "get", "broker-a", "broker_name", "flush_disk_type")
    assert ran.picture() == "broker_name  broker-a\nflush_disk_type  ASYNC_FLUSH\n"
    every = (await dejamq(cluster, "broker", "config", "get", "broker-a", "-o", "json")).json()
    assert every["broker_name"] == "broker-a"
    assert len(every) > 50
    by_rocketmq = await dejamq(
        cluster, "broker", "config", "get", "broker-a", "autoCreateTopicEnable", "mappedFileSizeCommitLog", "-o", "json"
    )
    assert list(by_rocketmq.json()) == ["auto_create_topic_enable", "mapped_file_size_commit_log"]
    assert by_rocketmq.json().items() <= every.items()
    unknown = await dejamq(cluster, "broker", "config", "get", "broker-a", "flush")
    assert unknown.status == 2
    assert "no setting flush" in unknown.one_line()


async def test_a_setting_that_cannot_change_while_the_broker_runs_is_refused_in_words(cluster: Cluster) -> None:
    before = (await dejamq(cluster, "broker", "config", "get", "broker-a")).output
    for pair, words in (
        ("flush_disk_type=SYNC_FLUSH", "read at the start"),
        ("nonsense=1", "nonsense"),
        ("nonsense", "KEY=VALUE"),
    ):
        ran = await dejamq(cluster, "broker", "config", "set", "broker-a", pair)
        assert ran.status in (1, 2)
        assert words in ran.one_line()
    assert (await dejamq(cluster, "broker", "config", "get", "broker-a")).output == before


async def test_writes_of_a_broker_are_stopped_and_started_at_every_name_server(cluster: Cluster) -> None:
    await dejamq(cluster, "topic", "create", "emptied", "--queues", "1")
    planned = await dejamq(cluster, "broker", "stop-writes", "broker-a", "--dry-run", "-o", "json")
    assert [row["write"] for row in planned.json()] == [False, False]

    async def perms() -> list[int]:
        return [row["perm"] for row in (await dejamq(cluster, "topic", "route", "emptied", "-o", "json")).json()]

    assert await perms() == [6, 6]
    stopped = await dejamq(cluster, "broker", "stop-writes", "broker-a", "-o", "json")
    assert {row["namesrv"]: row["routes"] for row in stopped.json()} == {
        row["namesrv"]: row["routes"] for row in planned.json()
    }
    assert await perms() == [4, 6]
    await dejamq(cluster, "broker", "start-writes", "broker-a")
    assert await perms() == [6, 6]
    for command in ("stop-writes", "start-writes"):
        for more in ((), ("--dry-run",)):
            unknown = await dejamq(cluster, "broker", command, "broker-z", *more)
            assert unknown.status == 2
            assert "there are broker-a, broker-b" in unknown.one_line()


# --- the cluster


async def test_the_registered_brokers_of_a_cluster_are_listed(cluster: Cluster) -> None:
    ran = await dejamq(cluster, "cluster", "list")
    assert ran.picture() == (
        "cluster  broker  id  address\nDefaultCluster  broker-a  0  HOST:PORT\nDefaultCluster  broker-b  0  HOST:PORT\n"
    )


async def test_a_healthy_cluster_is_status_0(cluster: Cluster) -> None:
    ran = await dejamq(cluster, "cluster", "health", "--strict")
    assert (ran.status, ran.errors) == (0, "")
    assert ran.picture() == (
        "role  name  id  address  healthy  following\n"
        "namesrv  -  HOST:PORT  yes  -\n"
        "namesrv  -  HOST:PORT  yes  -\n"
        "broker  broker-a  0  HOST:PORT  yes  -\n"
        "broker  broker-b  0  HOST:PORT  yes  -\n"
    )


async def test_a_cluster_with_one_name_server_away_can_be_used_and_that_is_said(cluster: Cluster) -> None:
    where = f"{NOBODY};{cluster.namesrv}"
    ran = await run_beside("cluster", "health", "--namesrv", where, "-o", "json")
    assert [row["healthy"] for row in ran.json()] == [False, True, True, True, True]
    assert NOBODY in ran.one_line()
    assert (await run_beside("cluster", "health", "--namesrv", where, "--strict")).status == 1
    assert (await run_beside("cluster", "health", "--namesrv", NOBODY)).status == 1


async def test_a_server_of_another_kind_is_as_good_as_none_and_the_next_one_is_asked(cluster: Cluster) -> None:
    broker = cluster.broker("broker-a").address
    alone = await run_beside("topic", "list", "--namesrv", broker)
    assert (alone.status, alone.output) == (3, "")
    assert f"no dejamq name server answers at {broker}" in alone.one_line()
    assert (await run_beside("cluster", "list", "--namesrv", f"{broker};{NOBODY};{cluster.namesrv}")).status == 0


# --- clients


async def test_clients_are_listed_once_with_all_their_brokers(cluster: Cluster) -> None:
    await fill(cluster, "watched", 1)
    consumer = cluster.push_consumer("watching", client_id="watcher")
    consumer.subscribe("watched", ignore)
    async with consumer:
        await consumer.wait_assigned()
        ran = await dejamq(cluster, "client", "list", "--group", "watching", "-o", "json")
        table = await dejamq(cluster, "client", "list", "--group", "watching")
    (row,) = ran.json()
    assert (row["role"], row["client_id"], row["brokers"]) == ("consumer", "watcher", ["broker-a", "broker-b"])
    assert (row["clash"], row["clash_addresses"]) == (False, [])
    assert table.output.splitlines()[0].split() == [
        "role", "group", "client_id", "host", "brokers", "version", "last_heartbeat", "clash",
    ]  # fmt: skip


async def test_two_processes_with_one_client_id_are_a_finding(cluster: Cluster) -> None:
    await fill(cluster, "shared", 1)
    twins = [cluster.push_consumer("twins", client_id="twin") for _ in range(2)]
    for twin in twins:
        twin.subscribe("shared", ignore)
    async with twins[0], twins[1]:
        ran = await clashing(cluster)
    assert [row["clash"] for row in ran.objects()[0]] == [True, True]
    assert "twin of twins is the client id of several processes: 127.0.0.1:" in ran.one_line()


async def clashing(cluster: Cluster) -> Ran:
    """A list with a clash; brokers learn of it with the second one's heartbeat."""
    async with asyncio.timeout(20):
        while True:
            ran = await dejamq(cluster, "client", "list", "--group", "twins", "-o", "json")
            if ran.status == 1:
                return ran
            await asyncio.sleep(0.05)


# --- offsets


async def moves(ran: Ran) -> list[tuple[Any, ...]]:
    return [(row["broker"], row["queue_id"], row["before"], row["after"]) for row in ran.json()]


async def test_offsets_are_shown_and_moved_and_a_dry_run_moves_nothing(cluster: Cluster) -> None:
    await fill(cluster, "moved", 4, queues=1)
    none = await dejamq(cluster, "offset", "get", "mover")
    assert (none.status, none.output) == (1, "mover has committed nothing\n")
    await consume(cluster, "mover", "moved", 8)
    shown = await dejamq(cluster, "offset", "get", "mover", "--topic", "moved")
    assert shown.picture() == (
        "topic  broker  queue_id  committed  min_offset  max_offset  lag\n"
        "moved  broker-a  0  4  0  4  0\n"
        "moved  broker-b  0  4  0  4  0\n"
    )
    planned = await dejamq(cluster, "offset", "reset", "mover", "moved", "--to-offset", "1", "--dry-run", "-o", "json")
    assert await moves(planned) == [("broker-a", 0, 4, 1), ("broker-b", 0, 4, 1)]
    assert (await dejamq(cluster, "offset", "get", "mover", "--topic", "moved")).output == shown.output
    one = await dejamq(
        cluster, "offset", "reset", "mover", "moved", "--to-offset", "1", "--queue", "broker-b:0", "-o", "json"
    )
    assert await moves(one) == [("broker-b", 0, 4, 1)]
    begin = await dejamq(cluster, "offset", "reset", "mover", "moved", "--to-begin")
    assert [line.split()[:7] for line in begin.output.splitlines()[1:]] == [
        ["moved", "broker-a", "0", "4", "0", "4", "0"], ["moved", "broker-b", "0", "1", "0", "1", "0"],
    ]  # fmt: skip
    skipped = await dejamq(cluster, "offset", "skip", "mover", "moved", "-o", "json")
    assert [row["passed_over"] for row in skipped.json()] == [4, 4]
    past = await dejamq(cluster, "offset", "reset", "mover", "moved", "--to-time", "1h ago", "-o", "json")
    assert [row["after"] for row in past.json()] == [0, 0]


async def test_progress_of_a_topic_that_is_not_there_names_the_topic(cluster: Cluster) -> None:
    async with Admin(cluster.namesrv) as admin:
        await admin.create_group("seeker")
    commands = (("offset", "get", "seeker"), ("group", "lag", "seeker"), ("group", "lag"))
    for command in commands:
        ran = await dejamq(cluster, *command, "--topic", "nosuch")
        assert (ran.status, ran.output) == (1, "")
        assert "no broker has a topic 'nosuch'" in ran.one_line()
    await make(cluster, "sought", 1)
    for command in commands:
        assert "committed" in (await dejamq(cluster, *command, "--topic", "sought")).output


async def test_a_skip_that_one_broker_would_not_do_is_done_by_none_and_names_it(cluster: Cluster) -> None:
    await fill(cluster, "halved", 2, queues=1)
    async with Admin(cluster.namesrv) as admin:
        await admin.update_group("halfway", brokers=["broker-a"])
    for command in (("skip", "halfway", "halved"), ("reset", "halfway", "halved", "--to-begin")):
        for dry in ((), ("--dry-run",)):
            ran = await dejamq(cluster, "offset", *command, *dry)
            assert (ran.status, ran.output) == (1, "")
            assert "'halfway' is not known to broker-b, where topic 'halved' is" in ran.one_line()
    assert (await dejamq(cluster, "offset", "get", "halfway")).status == 1


async def test_offsets_are_cloned_into_a_group_that_brokers_know(cluster: Cluster) -> None:
    await fill(cluster, "cloned", 2, queues=1)
    await consume(cluster, "original", "cloned", 4)
    unknown = await dejamq(cluster, "offset", "clone", "original", "copy", "cloned")
    assert unknown.status == 1
    assert "copy" in unknown.one_line()
    async with Admin(cluster.namesrv) as admin:
        await admin.create_group("copy")
    planned = await dejamq(cluster, "offset", "clone", "original", "copy", "cloned", "--dry-run", "-o", "json")
    assert await moves(planned) == [("broker-a", 0, None, 2), ("broker-b", 0, None, 2)]
    assert (await dejamq(cluster, "offset", "get", "copy")).status == 1
    await dejamq(cluster, "offset", "clone", "original", "copy", "cloned")
    copied = (await dejamq(cluster, "offset", "get", "copy", "-o", "json")).json()
    assert [row["committed"] for row in copied] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reset", "g", "t"), "one of --to-time"),
        (("reset", "g", "t", "--to-begin", "--to-end"), "one of --to-time"),
        (("reset", "g", "t", "--to-time", "yesterday"), "--to-time takes a time"),
        (("reset", "g", "t", "--to-offset", "-1"), "--to-offset"),
        (("reset", "g", "t", "--to-begin", "--queue", "broker-a"), "BROKER:ID"),
        (("reset", "g", "nowhere", "--to-begin"), "nowhere"),
        (("get", "a b"), "letters"),
        (("clone", "g", "h", "nowhere"), "nowhere"),
        (("skip", "g", "nowhere"), "nowhere"),
    ],
)
async def test_bad_use_of_offsets_is_one_line(cluster: Cluster, arguments: tuple[str, ...], words: str) -> None:
    ran = await dejamq(cluster, "offset", *arguments)
    assert ran.status in (1, 2)
    assert words in ran.one_line()
