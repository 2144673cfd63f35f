"""The pages of ``dejamq console`` about duplicates, over HTTP, of journals whose truth is known."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import stories_owners  # noqa: F401  # its stories register themselves
import stories_producers  # noqa: F401
from console_reader import HOSTILE, Seen, get
from dejamq_cli.console.server import serving
from dejamq_cli.console.settings import ConsoleSettings
from dejamq_cli.console.sources import Sources
from dejamq_lab.cluster.waiting import until_async
from journals import History
from pages import browser
from stories import owner_that_did_6, successor, write_all

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300), pytest.mark.slow]
WAIT_S = 240
PAGE = Path(__file__).parents[2] / "docs" / "console.md"


def write_stored_twice(directory: Path) -> None:
    """Two tries of one call, and nobody who takes the message."""
    history = History(directory, "twice")
    broker, producer = history.broker(), history.producer()
    for number, outcome in ((1, "connection_lost"), (2, "ok")):
        producer.send("twice-key", number, call=1, try_no=number)
        broker.append("twice-key", number, producer, request=number)
        producer.send_result(number, outcome, definite=outcome == "ok")
    history.end()


def write_hostile(directory: Path) -> None:
    """A group, clients, a fault and keys whose names are attacks."""
    history = History(directory, "hostile")
    history.group = HOSTILE[0]
    broker = history.broker()
    consumer = history.consumer(HOSTILE[1], boot_id="hostile1")
    queue = consumer.open_queue(6)
    for place, text in enumerate(HOSTILE):
        consumer.handle(queue, 6 + place, 6, key=text, business_keys=[text])
    consumer.fault(consumer, HOSTILE[4])
    consumer.kill()
    heir = history.consumer(HOSTILE[5], boot_id="hostile2")
    broker.offset_get(heir, 6)
    again = heir.open_queue(6)
    for place, text in enumerate(HOSTILE):
        heir.handle(again, 6 + place, 7 + place, key=text, business_keys=[text])
    heir.close()
    history.end()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Path]]:
    """A console that has audited a few stories, and their folder."""
    directory = tmp_path_factory.mktemp("journals")
    write_all(directory, ["o1", "o7", "p1"])
    write_stored_twice(directory)
    write_hostile(directory)
    async with serving(
        ConsoleSettings(None, "127.0.0.1:0", Sources([directory]), refresh_s=0.2, audit_rest=0)
    ) as address:

        async def audited() -> bool:
            return (await get(address, "/duplicates.json")).json()["duplicates"] is not None

        assert await until_async(audited, WAIT_S)
        yield address, directory


async def test_duplicates_are_listed_by_cause_and_group(console: tuple[str, Path]) -> None:
    address, _ = console
    told = (await get(address, "/duplicates.json")).json()
    counts = {(row["cause"], row["consumer_group"]): row["duplicates"] for row in told["counts"]}
    assert counts["O1", "o1"] == 1
    assert counts["O7", "o7"] >= 1
    assert counts["P1", "p1"] == 1
    assert sum(counts.values()) == told["number"] == told["verdict"]["duplicates"]
    page = Seen((await get(address, "/duplicates")).text)
    assert page.wrong == []
    assert "the consumer ended before its offset left" in page.text


async def test_the_list_is_narrowed_by_cause_group_and_time(console: tuple[str, Path]) -> None:
    address, _ = console
    (only,) = (await get(address, "/duplicates.json?group=o1")).json()["duplicates"]
    assert only["cause"] == "O1"
    assert (await get(address, "/duplicates.json?group=o1&cause=O7")).json()["number"] == 0
    assert (await get(address, "/duplicates.json?group=o1&to=2001-01-01T00:00:00Z")).json()["number"] == 0
    unread = await get(address, "/duplicates?from=yesterday")
    assert (unread.status, "from takes a time" in unread.text) == (400, True)


async def test_a_pair_is_told_as_a_time_line_with_owners_offsets_and_evidence(console: tuple[str, Path]) -> None:
    address, _ = console
    (row,) = (await get(address, "/duplicates.json?group=o1")).json()["duplicates"]
    told = (await get(address, f"/duplicates/{row['finding_id']}", Accept="application/json")).json()
    assert (told["duplicate"]["first"]["process"], told["duplicate"]["second"]["process"]) == ("o1-c1", "o1-c2")
    assert [one["process"] for one in told["queues"][0]["owners"]] == ["o1-c1", "o1-c2"]
    assert all(line["wall_us"] for line in told["duplicate"]["evidence"])
    assert told["cause"]["title"] == "the consumer ended before its offset left"
    page = Seen((await get(address, f"/duplicates/{row['finding_id']}")).text)
    assert page.wrong == []
    for words in ("o1-c1 got it from orders queue 0", "1st delivery", "2nd delivery", "this message, 6", "Step by step",
                  "Persist more often", "O1 in the catalogue of causes"):  # fmt: skip
        assert words in page.text


async def test_a_message_that_was_stored_twice_is_told_too(console: tuple[str, Path]) -> None:
    address, _ = console
    told = (await get(address, "/duplicates.json?message=twice-key")).json()["duplicates"]
    (row,) = [one for one in told if one["kind"] == "stored twice"]
    page = Seen((await get(address, f"/duplicates/{row['finding_id']}")).text)
    assert page.wrong == []
    assert "stored it again" in page.text


async def test_nothing_of_what_journals_say_becomes_html_script_or_control_characters(
    console: tuple[str, Path],
) -> None:
    address, _ = console
    told = (await get(address, "/duplicates.json?limit=100")).json()["duplicates"]
    hostile = [row for row in told if row["consumer_group"] == HOSTILE[0]]
    assert {row["message_id"] for row in hostile} == set(HOSTILE)
    pages = ["/", "/duplicates", "/duplicates/compare", *(f"/duplicates/{row['finding_id']}" for row in hostile)]
    for path in pages:
        assert (path, Seen((await get(address, path)).text).wrong) == (path, [])
    shown = Seen((await get(address, "/duplicates?limit=100")).text).text
    assert "<script>alert(1)</script>" in shown
    assert "\\x1b[31mred\\x1b[0m\\x07" in shown
    assert "\\u202egnp.exe" in shown
    assert "{{7*7}}{% raw %}" in shown


async def test_hostile_questions_are_shown_as_text(console: tuple[str, Path]) -> None:
    address, _ = console
    for path in ("/duplicates?group=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&cause=%1b%5b31m",
                 "/duplicates/%3Cscript%3E", "/nothing/%3Cimg%20src=x%3E",
                 "/groups/%3Cscript%3E", "//evil.example/x", "/messages/%3Cscript%3E%00"):  # fmt: skip
        assert Seen((await get(address, path)).text).wrong == []


async def test_a_group_shows_who_had_which_queue_and_what_was_committed(console: tuple[str, Path]) -> None:
    address, _ = console
    told = (await get(address, "/groups/o7.json")).json()["recorded"]
    assert {row["process"] for row in told["owners"]} == {"o7-c1", "o7-c2"}
    assert "O7" in {row["cause"] for row in told["counts"]}
    page = Seen((await get(address, "/groups/o7")).text)
    assert page.wrong == []
    assert "Who had which queue" in page.text
    assert "Committed against delivered" in page.text


async def test_two_times_are_compared_by_cause_and_group(console: tuple[str, Path]) -> None:
    address, _ = console
    span = (await get(address, "/duplicates.json")).json()
    whole = "a_from=2001-01-01&a_to=2001-01-02&b_from=2001-01-02&b_to=2100-01-01"
    rows = (await get(address, f"/duplicates/compare.json?{whole}")).json()["rows"]
    assert sum(row["b"] for row in rows) == span["number"]
    assert {row["a"] for row in rows} == {0}
    (one,) = [row for row in rows if (row["cause"], row["consumer_group"]) == ("O1", "o1")]
    assert (one["difference"], one["b_per_1000"]) == (1, 500.0)
    assert Seen((await get(address, f"/duplicates/compare?{whole}")).text).wrong == []


async def test_the_catalogue_has_every_cause_with_what_to_change(console: tuple[str, Path]) -> None:
    address, _ = console
    rows = (await get(address, "/causes.json")).json()["causes"]
    assert {"O1", "O7", "P1", "R1", "L1"} <= {row["id"] for row in rows}
    page = (await get(address, "/causes")).text
    assert 'id="O7"' in page
    assert Seen(page).wrong == []


async def test_the_life_of_a_message_is_told_from_the_journals(console: tuple[str, Path]) -> None:
    address, _ = console
    (row,) = (await get(address, "/duplicates.json?group=o1")).json()["duplicates"]
    page = await get(address, f"/messages/{row['message_id']}")
    assert page.status == 404  # ids of the SDK are in capitals, and so is what is asked for


async def test_each_address_of_the_documentation_answers_what_it_says(console: tuple[str, Path]) -> None:
    address, _ = console
    (row,) = (await get(address, "/duplicates.json?group=o1")).json()["duplicates"]
    told = re.findall(r"^\| `(/[^`]*)` \|.*\| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    for path, keys in told:
        answer = await get(address, path.replace("/ID", f"/{row['finding_id']}").replace("GROUP", "o1") + ".json")
        assert (path, answer.status) == (path, 200)
        assert set(re.findall(r"`(\w+)`", keys)) <= answer.json().keys()
    assert len(told) == 6


async def test_every_link_of_the_pages_leads_somewhere(console: tuple[str, Path]) -> None:
    address, _ = console
    seen, waiting = set[str](), ["/"]
    while waiting:
        path = waiting.pop().partition("#")[0]
        kind = re.sub(r"[0-9a-f]{32}|\?.*", "…", path)
        # no cluster is looked at, and a group of such a name cannot be
        if not path or kind in seen or path.startswith(("/messages/", "/topics/", "/groups/%3C")):
            continue
        seen.add(kind)
        answer = await get(address, path)
        assert (path, answer.status) == (path, 200)
        if "text/html" in answer.headers["content-type"]:
            waiting += Seen(answer.text).links
    assert len(seen) > 10


@pytest.mark.browser
async def test_a_browser_shows_a_pair_in_the_dark_and_refuses_nothing(
    console: tuple[str, Path], tmp_path: Path
) -> None:
    address, _ = console
    (row,) = (await get(address, "/duplicates.json?group=o1")).json()["duplicates"]
    picture = tmp_path / "pair.png"
    process = await asyncio.create_subprocess_exec(
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--window-size=390,1600",
        "--blink-settings=preferredColorScheme=0", f"--screenshot={picture}",
        f"{address}duplicates/{row['finding_id']}", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 200)
    assert [line for line in said.decode().splitlines() if "CONSOLE" in line] == []
    assert len(picture.read_bytes()) > 20_000


# the last of the file: the others count what there is
async def test_a_duplicate_that_happens_is_told_to_pages_that_are_open(console: tuple[str, Path]) -> None:
    address, directory = console
    before = (await get(address, "/duplicates.json")).json()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
    try:
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"retry: 2000")
        history = History(directory, "late")
        broker = history.broker()
        owner_that_did_6(history)[0].kill()
        successor(history, broker)
        history.end()
        async with asyncio.timeout(WAIT_S):
            await reader.readuntil(b"event: audit")
    finally:
        writer.close()
    after = (await get(address, "/duplicates.json")).json()
    assert after["number"] == before["number"] + 1
    assert after["audit"]["age_s"] < before["audit"]["age_s"] + WAIT_S
