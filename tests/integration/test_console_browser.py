"""The pages of ``dejamq console`` in a real browser: by keyboard alone, on a phone, in the light and in the dark."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from chromium import Chromium
from cli_cluster import consume, fill, make
from console_reader import get
from dejamq import Admin, ConsumeFrom, DeadLetter, Message, ReceivedMessage
from dejamq_cli.console.server import serving
from dejamq_cli.console.settings import ConsoleSettings
from dejamq_cli.console.sources import Sources
from dejamq_lab import Cluster
from dejamq_lab.cluster.waiting import until_async

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.browser,
]  # fmt: skip
TESTS = Path(__file__).parents[1]
SEEN = (TESTS / "analytics" / "seen.js").read_text(encoding="utf-8")
RECORDED = TESTS / "data" / "rocketmq" / "o1"
WAIT_S = 200
PHONE, DESK = 360, 1280
STOP = """(() => {
  const node = document.activeElement, box = node.getBoundingClientRect(), style = getComputedStyle(node);
  return {at: node === document.body || !window.reachable ? null : window.reachable().indexOf(node),
    address: node.href || "", ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    there: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth};
})()"""


class Pages(NamedTuple):
    """A console with something on each of its pages: address, and path by the page's name."""

    address: str
    paths: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages() -> AsyncIterator[Pages]:
    async with served() as pages:
        yield pages


@asynccontextmanager
async def served() -> AsyncIterator[Pages]:
    async with Cluster(brokers=1, namesrvs=1, time_scale=0.5, journal_level="off") as cluster:
        await fill(cluster, "orders", 3)
        await consume(cluster, "billing", "orders", 2)
        message_id = await dead_letter(cluster)
        settings = ConsoleSettings(
            cluster.namesrv, "127.0.0.1:0", Sources(evidence=[RECORDED]), token="the-token", refresh_s=0.2
        )
        async with serving(settings) as address:
            found: list[dict[str, Any]] = []

            async def ready() -> bool:
                told = (await get(address, "/duplicates.json?cause=O1")).json()
                letters = (await get(address, "/groups/shipping/dead-letters.json")).json()["letters"]
                looked = (await get(address, "/overview.json")).json()["groups"]
                found[:] = told["duplicates"] or []
                return bool(found and letters and looked)

            assert await until_async(ready, WAIT_S)
            yield Pages(address, {
                "overview": "", "duplicates": "duplicates", "pair": f"duplicates/{found[0]['finding_id']}",
                "compare": "duplicates/compare", "causes": "causes", "group": "groups/billing",
                "topic": "topics/orders", "message": f"messages/{message_id}?topic=parcels",
                "dead letters": "groups/shipping/dead-letters",
                "trouble": "nothing/here",
            })  # fmt: skip


async def dead_letter(cluster: Cluster) -> str:
    """The id of a message that the group shipping has given up."""
    await make(cluster, "parcels")

    async def refuse(message: ReceivedMessage) -> None:
        raise DeadLetter("no such address, and a reason that is longer than a phone is wide: " + "x" * 80)

    consumer = cluster.push_consumer("shipping", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("parcels", refuse)
    async with consumer, cluster.producer("shop") as producer:
        body = b"a body without a space: " + b"0123456789" * 40
        result = await producer.send(
            Message("parcels", body, keys=["k" * 60], properties={"a-long-name" * 4: "v" * 90})
        )
        async with Admin(cluster.namesrv) as admin, asyncio.timeout(WAIT_S):
            while not [one async for one in admin.dead_letters("shipping")]:
                await asyncio.sleep(0.02)
    return str(result.message_id)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def seen(browser: Chromium, address: str, **look: Any) -> dict[str, Any]:
    browser.look(**look)
    browser.open(address)
    told: dict[str, Any] = browser.run(SEEN)
    return told


async def test_every_page_is_readable_in_the_light_and_in_the_dark(pages: Pages, browser: Chromium) -> None:
    """Contrast of at least 4.5 to 1 (WCAG 2, 1.4.3)."""
    for name, path in pages.paths.items():
        for scheme in ("light", "dark"):
            told = await asyncio.to_thread(partial(seen, browser, pages.address + path, width=DESK, scheme=scheme))
            assert (name, scheme, told["pale"]) == (name, scheme, [])
            assert (name, told["language"], told["headings"][0]) == (name, "en", 1)
    assert [line for line in browser.said if "404" not in line] == []


async def test_no_page_is_wider_than_a_phone(pages: Pages, browser: Chromium) -> None:
    for name, path in pages.paths.items():
        told = await asyncio.to_thread(partial(seen, browser, pages.address + path, width=PHONE))
        assert (name, told["wide"]) == (name, 0)


def walked(browser: Chromium, address: str, width: int) -> None:
    """Tab goes to everything that can be used, in the order of the page, visibly, and out at its end."""
    told = seen(browser, address, width=width)
    assert told["nameless"] == []
    stops = []
    for _ in range(told["stops"]):
        browser.press("Tab")
        stop = browser.run(STOP)
        assert stop["ring"], (address, stop)
        assert stop["there"], (address, stop)
        stops.append(stop["at"])
    assert stops == [*range(told["stops"])], address
    browser.press("Tab")
    assert browser.run(STOP)["at"] in (None, 0), f"{address}: the keyboard is caught"


@pytest.mark.parametrize("width", [PHONE, DESK])
async def test_the_keyboard_reaches_everything_on_every_page(pages: Pages, browser: Chromium, width: int) -> None:
    for path in pages.paths.values():
        await asyncio.to_thread(walked, browser, pages.address + path, width)


NEWS = """new Promise(come => {
  const source = new EventSource("/events");
  let left = 3;
  source.addEventListener("cluster", () => { left -= 1; if (!left) { source.close(); come(true); } });
})"""
SHOWN = """new Promise(come => {
  const look = () => document.querySelector("#live[data-old]") ? setTimeout(look, 10) : come(true);
  look();
})"""


def at_the_keyboard(browser: Chromium, address: str) -> None:
    seen(browser, address, width=DESK)
    browser.run("document.querySelector('#live a').focus(), document.getElementById('live').dataset.old = 'yes'")
    assert browser.run(NEWS)
    assert browser.run("document.getElementById('live').contains(document.activeElement)")
    assert browser.run("document.getElementById('live').dataset.old") == "yes"
    browser.run("document.activeElement.blur()")
    assert browser.run(SHOWN)


async def test_news_wait_while_the_keyboard_is_in_what_they_would_replace(pages: Pages, browser: Chromium) -> None:
    await asyncio.to_thread(at_the_keyboard, browser, pages.address)


def tab_to(browser: Chromium, part: str) -> None:
    """Until a link that leads there has the focus."""
    for _ in range(200):
        browser.press("Tab")
        if part in browser.run(STOP)["address"]:
            return
    raise AssertionError(f"no link to {part}")


def journey(browser: Chromium, pages: Pages) -> None:
    seen(browser, pages.address, width=DESK)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run(STOP)["there"]
    browser.press("Enter")
    browser.press("Tab")
    assert browser.run("document.getElementById('main').contains(document.activeElement)")
    browser.open(pages.address)
    for part in ("/duplicates", pages.paths["pair"], "/causes#O1"):
        tab_to(browser, part)
        there = browser.run("window.left = true, document.activeElement.href")
        browser.press("Enter")
        assert browser.arrived(there)
    browser.open(f"{pages.address}duplicates")
    browser.run("document.getElementById('f-cause').focus()")
    browser.type("O7")
    browser.run("window.left = true")
    browser.press("Enter")
    assert browser.arrived(f"{pages.address}duplicates?cause=O7")


async def test_a_duplicate_is_found_and_understood_without_a_mouse(pages: Pages, browser: Chromium) -> None:
    await asyncio.to_thread(journey, browser, pages)
