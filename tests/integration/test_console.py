"""The pages of ``dejamq console`` about a cluster, over HTTP: what is there, who may ask, and who may change it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cli_cluster import fill, make
from cli_runner import run_beside
from console_reader import HOSTILE, Seen, get, post
from dejamq import ConsumeFrom, DeadLetter, Message, ReceivedMessage
from dejamq_cli.console.guard import POLICY
from dejamq_cli.console.server import serving
from dejamq_cli.console.settings import ConsoleSettings
from dejamq_lab import Cluster
from dejamq_lab.cluster.waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(200)]
TOKEN = "the-token"
WAIT_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1, namesrvs=1, time_scale=0.5, journal_level="off") as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(cluster: Cluster) -> AsyncIterator[str]:
    """A console that only reads."""
    settings = ConsoleSettings(cluster.namesrv, "127.0.0.1:0", names=["console.example"], refresh_s=0.1)
    async with serving(settings) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def changeable(cluster: Cluster) -> AsyncIterator[str]:
    """A console that may change something."""
    async with serving(ConsoleSettings(cluster.namesrv, "127.0.0.1:0", token=TOKEN, refresh_s=0.1)) as address:
        yield address


def printable(text: str) -> str:
    return "".join(one for one in text if one.isprintable() and one not in "| ")


async def test_the_overview_shows_brokers_topics_and_groups(cluster: Cluster, address: str) -> None:
    await fill(cluster, "seen", 3)
    consumer = cluster.push_consumer("readers", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("seen", ignore)
    async with consumer:
        last: list[Any] = []

        async def there() -> bool:
            told = (await get(address, "/overview.json")).json()
            brokers = [(row["broker"], row["answers"]) for row in told["brokers"]]
            members = [row["members"] for row in told["groups"] if row["group"] == "readers"]
            topics = [(row["kind"], row["groups"]) for row in told["topics"] if row["topic"] == "seen"]
            last[:] = [brokers, members, topics]
            return last == [[("broker-a", True)], [1], [("user", ["readers"])]]

        assert await until_async(there, WAIT_S), last
    page = Seen((await get(address, "/")).text)
    assert page.wrong == []
    assert "broker-a" in page.text


async def test_messages_are_found_by_key_id_and_time(cluster: Cluster, address: str) -> None:
    await make(cluster, "found")
    async with cluster.producer("shop") as producer:
        results = [await producer.send(Message("found", b"%d" % n, keys=f"key-{n}")) for n in range(5)]
    newest = (await get(address, "/topics/found.json")).json()
    assert {row["body"] for row in newest["messages"]} == {"0", "1", "2", "3", "4"}
    assert sum(row["messages"] for row in newest["queues"]) == 5

    async def indexed() -> bool:
        told = (await get(address, "/topics/found.json?key=key-3")).json()
        return [row["body"] for row in told["messages"]] == ["3"]

    assert await until_async(indexed, WAIT_S)
    (by_id,) = (await get(address, f"/topics/found.json?id={results[2].message_id}")).json()["messages"]
    assert by_id["keys"] == ["key-2"]
    born = sorted(row["store_timestamp_ms"] for row in newest["messages"])
    later = (await get(address, f"/topics/found.json?from={born[-1] + 1}")).json()["messages"]
    earlier = (await get(address, f"/topics/found.json?to={born[-1] + 1}")).json()["messages"]
    assert (len(later), len(earlier)) == (0, 5)
    one = await get(address, f"/messages/{results[1].message_id}?topic=found")
    assert "key-1" in Seen(one.text).text


async def test_nothing_of_a_message_becomes_html_script_or_control_characters(cluster: Cluster, address: str) -> None:
    await make(cluster, "hostile")
    async with cluster.producer("shop") as producer:
        for text in HOSTILE:
            name = printable(text)
            message = Message("hostile", text.encode(), tags=name, keys=[name], properties={f"x{name[:9]}": name})
            await producer.send(message)
        await producer.send(Message("hostile", bytes(range(256))))
    told = (await get(address, "/topics/hostile.json")).json()["messages"]
    assert {row.get("body") for row in told} == {*HOSTILE, None}
    listed = Seen((await get(address, "/topics/hostile")).text)
    assert listed.wrong == []
    assert "\\x1b[31mred\\x1b[0m\\x07" in listed.text
    for row in told:
        page = await get(address, f"/messages/{row['message_id']}?topic=hostile")
        assert (page.status, Seen(page.text).wrong) == (200, [])
    assert "00000040  40 41 42" in Seen(page.text).text or "{{7*7}}" in listed.text


async def test_a_group_shows_its_queues_members_and_findings(cluster: Cluster, address: str) -> None:
    await make(cluster, "grouped")
    consumer = cluster.push_consumer("workers")
    consumer.subscribe("grouped", ignore)
    async with consumer:
        await consumer.wait_assigned(30_000)

        async def owned() -> bool:
            now = (await get(address, "/groups/workers.json")).json()["now"]
            return bool(now) and all(row["owners"] for row in now["queues"]) and len(now["queues"]) >= 2

        assert await until_async(owned, WAIT_S)
        page = Seen((await get(address, "/groups/workers")).text)
    assert page.wrong == []
    assert "members" in page.text
    assert (await get(address, "/groups/nobody-knows")).status == 404


async def ignore(message: ReceivedMessage) -> None: ...


async def dead_letter(cluster: Cluster, group: str, topic: str) -> list[ReceivedMessage]:
    """One message that the group has given up; what its handler got."""
    await make(cluster, topic)
    got: list[ReceivedMessage] = []

    async def refuse(message: ReceivedMessage) -> None:
        got.append(message)
        raise DeadLetter("<b>never</b>")

    consumer = cluster.push_consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(topic, refuse)
    async with consumer, cluster.producer("shop") as producer:
        await producer.send(Message(topic, b"<i>bad</i>"))
        assert await until_async(lambda: _true(bool(got)), WAIT_S)
    return got


async def _true(value: bool) -> bool:
    return value


async def letters_of(address: str, group: str) -> list[Any]:
    found: list[Any] = []

    async def there() -> bool:
        found[:] = (await get(address, f"/groups/{group}/dead-letters.json")).json()["letters"]
        return bool(found)

    assert await until_async(there, WAIT_S)
    return found


async def test_a_dead_letter_is_sent_again_by_who_has_the_token(cluster: Cluster, changeable: str) -> None:
    await dead_letter(cluster, "giving-up", "given-up")
    (letter,) = await letters_of(changeable, "giving-up")
    page = Seen((await get(changeable, "/groups/giving-up/dead-letters")).text)
    assert page.wrong == []
    assert "<b>never</b>" in page.text
    stored = (await get(changeable, "/topics/%25DLQ%25giving-up")).text
    assert 'href="/topics/%25DLQ%25giving-up.json"' in stored
    fields = {"id": letter["offset_message_id"], "token": TOKEN}
    done = await post(changeable, "/groups/giving-up/replay", fields)
    assert (done.status, done.headers["location"].partition("?")[0]) == (303, "/groups/giving-up/dead-letters")
    again = await post(changeable, "/groups/giving-up/replay.json", {"id": "all"}, X_Dejamq_Token=TOKEN)
    assert again.json() == {"group": "giving-up", "replayed": 0, "replayed_before": 1}


async def test_without_the_token_or_from_another_site_nothing_is_changed(cluster: Cluster, changeable: str) -> None:
    await dead_letter(cluster, "kept", "kept-topic")
    (letter,) = await letters_of(changeable, "kept")
    path, chosen = "/groups/kept/replay", {"id": letter["offset_message_id"]}
    own = changeable.rstrip("/")
    refused = [
        await post(changeable, path, chosen),
        await post(changeable, path, chosen | {"token": "another"}),
        await post(changeable, path, chosen | {"token": TOKEN}, Origin="http://evil.example"),
        await post(changeable, path, chosen | {"token": TOKEN}, Origin="null"),
        await post(changeable, path, chosen | {"token": TOKEN}, Sec_Fetch_Site="cross-site"),
    ]
    assert [answer.status for answer in refused] == [403] * 5
    plain = await post(changeable, path, chosen | {"token": TOKEN}, Content_Type="text/plain")
    assert plain.status == 415
    assert (await get(changeable, path)).status == 405
    right = await post(changeable, f"{path}.json", chosen | {"token": TOKEN}, Origin=own, Sec_Fetch_Site="same-origin")
    assert right.json()["replayed"] == 1


async def test_a_console_that_only_reads_refuses_every_change(address: str) -> None:
    refused = await post(address, "/groups/any/replay", {"id": "all", "token": ""}, X_Dejamq_Token="")
    assert (refused.status, "--allow-changes" in refused.text) == (403, True)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("127.0.0.1.evil.example:80", 421),
        ("localhost", 200), ("LOCALHOST:8088", 200), ("127.0.0.1:1", 200), ("[::1]:8088", 200), ("192.0.2.7", 200),
        ("console.example:8088", 200),
    ],
)  # fmt: skip
async def test_a_name_that_leads_here_by_rebinding_is_refused(address: str, host: str, status: int) -> None:
    assert (await get(address, "/causes.json", Host=host)).status == status


async def test_every_answer_says_what_a_browser_may_do(address: str) -> None:
    for path in ("/", "/causes", "/nothing", "/static/console.css", "/overview.json", "/duplicates/x"):
        headers = (await get(address, path)).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY
    assert "'none'" in POLICY.partition(";")[0]


async def test_a_page_is_json_where_its_address_or_the_program_says_so(address: str) -> None:
    html = await get(address, "/causes", Accept="text/html,application/xhtml+xml,*/*")
    by_path = await get(address, "/causes.json", Accept="text/html")
    by_header = await get(address, "/causes", Accept="application/json")
    assert html.headers["content-type"].startswith("text/html")
    assert by_path.json() == by_header.json()
    missing = await get(address, "/nothing.json")
    assert (missing.status, missing.json()["status"]) == (404, 404)


async def test_pages_that_are_open_hear_of_each_look_at_the_cluster(address: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
    try:
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(WAIT_S):
            await reader.readuntil(b"event: cluster")
    finally:
        writer.close()


async def test_a_cluster_that_does_not_answer_is_said_on_the_page() -> None:
    async with serving(ConsoleSettings("127.0.0.1:1", "127.0.0.1:0", refresh_s=0.1)) as address:

        async def said() -> bool:
            return "no dejamq name server answers at 127.0.0.1:1" in (await get(address, "/")).text

        assert await until_async(said, WAIT_S)
        assert (await get(address, "/topics/any")).status == 502


async def test_without_journals_the_pages_of_duplicates_say_so(address: str) -> None:
    page = await get(address, "/duplicates")
    assert "No journal was given" in page.text
    assert (await get(address, "/duplicates/0123")).status == 404


async def test_bad_use_of_the_command_is_one_line() -> None:
    assert "nothing to show without --journal" in (await run_beside("console", "--no-cluster")).one_line()
    wrong = await run_beside("console", "--listen", "nowhere", "--namesrv", "127.0.0.1:1")
    assert (wrong.status, "is not HOST:PORT" in wrong.one_line()) == (2, True)


def journals_in(directory: str) -> list[Path]:
    return list(Path(directory).glob("*.jsonl"))


async def test_a_server_for_programs_under_test_has_pages_and_ends_with_them() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", "dev", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            first, second = await process.stdout.readline(), await process.stdout.readline()
        assert first.startswith(b"ready dev 127.0.0.1:")
        found = re.fullmatch(r"ready console (http://\S+); export DEJAMQ_JOURNAL_DIR=(\S+)\n", second.decode())
        assert found, second

        async def seen() -> bool:
            return len((await get(found[1], "/overview.json")).json()["brokers"]) == 1

        assert await until_async(seen, WAIT_S)
        assert journals_in(found[2])
    finally:
        process.terminate()
        status = await asyncio.wait_for(process.wait(), WAIT_S)
    assert (status, journals_in(found[2])) == (0, [])
