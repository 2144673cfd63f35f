"""Access control over HTTP: metrics, the control page and the console, without, with wrong, other's and right keys."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from access_site import ACCOUNTS, GROUP, SECRETS, TOPIC, USERS, WRONG, Site, guarded
from console_reader import Answer, get, post
from dejamq_cli.console.server import serving
from dejamq_cli.console.settings import ConsoleSettings
from dejamq_lab.control.app import app
from dejamq_lab.control.client import Control
from dejamq_lab.control.faults import Health
from dejamq_lab.control.serving import acting_account
from dejamq_lab.control.started import DejamqServer
from dejamq_lab.errors import ClusterFailed
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.access.book import Contents, write_contents
from dejamq_proto.access.changes import updated
from dejamq_proto.access.http_rights import HTTP, Credentials, credentials_of
from dejamq_proto.access.model import Action, Rule
from dejamq_proto.access.settings import AccessConfig, guard_of
from dejamq_proto.account import Account
from dejamq_proto.codes import ConfigError
from starlette.routing import Route

TOKEN = "a-token-of-24-characters"
CLUSTER_RULE = "Cluster:*"
LOOKER = Rule("fitting", CLUSTER_RULE, (Action.GET, Action.LIST))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, metrics_listen="127.0.0.1:0", http_token=TOKEN) as found:
        yield found


def headers(given: Account | str | None) -> dict[str, str]:
    if given is None:
        return {}
    return {"Authorization": given.basic() if isinstance(given, Account) else f"Bearer {given}"}


async def metrics(address: str, given: Account | str | None) -> Answer:
    return await get(f"http://{address}", "/metrics", **headers(given))


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in map(logging.LogRecord.getMessage, caplog.records) if line.startswith("access_refused")]


def only(caplog: pytest.LogCaptureFixture) -> str:
    """The one refusal since the last look."""
    (line,) = refusals(caplog)
    caplog.clear()
    return line


# Metrics.


async def test_metrics_ask_and_each_refusal_is_a_line(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    address = site.broker.watched.metrics_address
    answer = await metrics(address, None)
    assert (answer.status, answer.headers["www-authenticate"][:5]) == (401, "Basic")
    assert "subject=nobody" in only(caplog)
    for wrong in (WRONG, "another-token-of-24-chars"):
        answer = await metrics(address, wrong)
        assert (answer.status, TOPIC in answer.text) == (401, False)
        assert "request=GET:/metrics" in only(caplog)
    answer = await metrics(address, ACCOUNTS["stranger"])
    assert (answer.status, TOPIC in answer.text) == (403, False)
    assert "subject=stranger action=Get resource=Cluster:DefaultCluster" in only(caplog)
    await site.allow(Rule("fitting", "Cluster:DefaultCluster", (Action.GET,)))
    for right in (ACCOUNTS["fitting"], ACCOUNTS["root"], TOKEN):
        assert (await metrics(address, right)).status == 200
    assert refusals(caplog) == []


async def test_a_user_who_is_disabled_sees_no_metrics_any_more(site: Site) -> None:
    await site.allow(LOOKER)
    address, guard = site.broker.watched.metrics_address, site.broker.guard
    assert guard is not None
    assert (await metrics(address, ACCOUNTS["fitting"])).status == 200
    await guard.book.change(updated("fitting", status="disable"))
    assert (await metrics(address, ACCOUNTS["fitting"])).status == 401


async def test_a_name_servers_metrics_ask_too(tmp_path: Path) -> None:
    write_contents(tmp_path / "access.json", Contents(USERS, (LOOKER,)))
    server = NameServer(NamesrvConfig(
        listen="127.0.0.1:0", metrics_listen="127.0.0.1:0", acl_enable=True, access_file=f"{tmp_path}/access.json"
    ))  # fmt: skip
    await server.start()
    told = {name: (await metrics(server.metrics_address, who)).status for name, who in ACCOUNTS.items()}
    nobody = await metrics(server.metrics_address, None)
    await server.close()
    assert (told, nobody.status) == ({"root": 200, "inner": 200, "fitting": 200, "stranger": 403}, 401)


def test_a_token_without_access_control_or_a_short_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="acl_enable"):
        guard_of(AccessConfig(http_token=TOKEN), tmp_path, "c")
    with pytest.raises(ConfigError, match="letters"):
        guard_of(AccessConfig(acl_enable=True, http_token="short"), tmp_path, "c")


@pytest.mark.parametrize("header", [
    "", "Basic", "Basic ???", "Basic Zm9v", "Basic cm9vdDo=", "Basic /////w==", "Bearer ", "Digest x", "Basic\x00",
])  # fmt: skip
def test_what_is_no_credentials_is_none(header: str) -> None:
    assert credentials_of(header) is None


def test_credentials_show_no_secret() -> None:
    assert "secret" not in repr(Credentials("root", "secret"))


# The control page.


class Struck:
    """A server under test that only counts."""

    def __init__(self, directory: Path) -> None:
        self.journal_dir, self.done = directory, list[str]()

    async def strike(self, fault: Any) -> None:
        self.done.append("strike")

    async def clear(self) -> None:
        self.done.append("clear")

    async def advertise(self, address: str) -> None:
        self.done.append(address)

    def standing(self) -> dict[str, str]:
        return {}

    def strikes(self) -> list[Any]:
        return []

    async def health(self) -> Any:
        return Health("SERVING", "running", "", "", "")


async def asked(application: Any, page: str, given: Account | None) -> int:
    """As a web server calls it."""
    method, _, path = page.partition(" ")
    bodies = {"/faults": b'{"fault": "heal"}', "/advertise": b'{"address": "localhost:1"}'}
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": bodies.get(path, b"") if method == "POST" else b""}

    async def send(message: Any) -> None:
        said.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers(given).items()]
    await application({
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": raw,
        "query_string": f"group={GROUP}".encode(), "client": ("127.0.0.1", 1), "scheme": "http", "root_path": "",
    }, receive, send)  # fmt: skip
    return int(said[0]["status"])


def test_every_page_but_health_has_a_right(tmp_path: Path) -> None:
    pages: Any = Struck(tmp_path)
    paths = {route.path for route in app(pages).routes if isinstance(route, Route)}
    assert paths - {"/health"} == {page.partition(" ")[2] for page in HTTP} - {"/metrics"}


async def test_the_control_page_asks_for_each_request_and_refuses_before_anything_is_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "access.json"
    rules = (
        Rule("fitting", "Cluster:c", (Action.GET, Action.UPDATE)), Rule("fitting", f"Group:{GROUP}", (Action.GET,))
    )  # fmt: skip
    write_contents(file, Contents(USERS, rules))
    guard = guard_of(AccessConfig(acl_enable=True, access_file=str(file)), None, "c")
    assert guard is not None
    server: Any = Struck(tmp_path)
    page = app(server, guard)
    for name in HTTP:
        if name == "GET /metrics":
            continue
        told = [await asked(page, name, who) for who in (None, WRONG, ACCOUNTS["stranger"])]
        open_to_users = name == "GET /openapi.json"
        assert told == [401, 401, 200 if open_to_users else 403], name
        assert len(refusals(caplog)) == (2 if open_to_users else 3)
        caplog.clear()
    assert server.done == []
    assert [await asked(page, name, ACCOUNTS["fitting"]) for name in HTTP if name != "GET /metrics"] == [200] * 6
    assert server.done == ["strike", "clear", "localhost:1"]
    assert await asked(page, "GET /health", None) == 200
    assert await asked(app(server), "GET /faults", None) == 200


def test_the_control_page_acts_as_somebody_who_may_do_everything(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    write_contents(file, Contents(USERS[2:] + USERS[:1]))
    guard = guard_of(AccessConfig(acl_enable=True, access_file=str(file)), None, "c")
    assert guard is not None
    assert acting_account(guard) == Account("root", SECRETS["root"])


@pytest.mark.process
def test_a_server_under_test_with_access_control_is_struck_by_who_may(tmp_path: Path) -> None:
    write_contents(tmp_path / "access.json", Contents(USERS, (LOOKER,)))
    settings = {"acl_enable": True, "access_file": tmp_path / "access.json"}
    with DejamqServer(settings, ACCOUNTS["root"]) as server:
        server.answer_lost("send")
        server.advertise("localhost:32771")
        assert [fault["fault"] for fault in server.faults()] == ["answer_lost"]
        for other in (None, WRONG, ACCOUNTS["fitting"]):
            with pytest.raises(ClusterFailed, match=r"no credentials|do not belong together|Update on Cluster"):
                Control(server.url, other).kill()
        assert len(Control(server.url, ACCOUNTS["fitting"]).faults()) == 1


# The console.


@pytest.fixture
async def console(site: Site, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setenv("DEJAMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("DEJAMQ_SECRET_KEY", SECRETS["root"])
    settings = ConsoleSettings(
        site.address, "127.0.0.1:0", refresh_s=0.2, http_token=TOKEN, token="of-changes"
    )  # fmt: skip
    async with serving(settings) as address:
        yield address


PAGES = (
    "/", "/overview.json", f"/topics/{TOPIC}.json", f"/groups/{GROUP}", f"/groups/{GROUP}/dead-letters.json",
    "/duplicates", "/duplicates/compare", "/duplicates/1.json", "/causes", "/events", "/nothing",
)  # fmt: skip


async def test_each_page_of_the_console_asks(site: Site, console: str, caplog: pytest.LogCaptureFixture) -> None:
    pages = (*PAGES, f"/messages/{site.message_id}.json")
    for page in pages:
        for given, status in ((None, 401), (WRONG, 401), (ACCOUNTS["stranger"], 403), ("not-the-token-of-it", 401)):
            caplog.clear()
            answer = await get(console, page, **headers(given))
            assert (answer.status, TOPIC in answer.text, bool(refusals(caplog))) == (status, False, True), page
    changed = await post(console, f"/groups/{GROUP}/replay", {"id": "all", "token": "of-changes"})
    assert changed.status == 401
    assert (await get(console, "/static/console.css")).status == 200


async def test_a_page_shows_what_its_visitor_may_see(site: Site, console: str) -> None:
    mine = headers(ACCOUNTS["fitting"])
    await site.allow(LOOKER)
    assert (await get(console, "/overview.json", **mine)).status == 200
    for page in (f"/topics/{TOPIC}.json", f"/groups/{GROUP}.json", f"/messages/{site.message_id}.json?topic={TOPIC}"):
        assert (await get(console, page, **mine)).status == 403, page
    await site.allow(
        LOOKER, Rule("fitting", f"Topic:{TOPIC}", (Action.SUB,)), Rule("fitting", "Group:TOOLS_CONSUMER", (Action.SUB,))
    )  # fmt: skip
    shown = await get(console, f"/topics/{TOPIC}.json", **mine)
    assert [one["body"] for one in shown.json()["messages"]] == ["body"]
    for right in (ACCOUNTS["root"], TOKEN):
        assert (await get(console, f"/topics/{TOPIC}.json", **headers(right))).status == 200


async def test_a_console_whose_cluster_had_access_control_stays_shut_while_nobody_answers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(ConsoleSettings(site.address, "127.0.0.1:0", refresh_s=60)) as address:
        assert (await get(address, "/")).status == 401
        await asyncio.wait_for(site.broker.close(), 30)
        assert (await get(address, "/")).status == 401
        assert (await get(address, "/", **headers(ACCOUNTS["root"]))).status == 502


async def test_a_token_alone_shuts_a_console_without_access_control() -> None:
    async with serving(ConsoleSettings(None, "127.0.0.1:0", http_token=TOKEN)) as address:
        statuses = [(await get(address, "/causes", **headers(who))).status for who in (None, ACCOUNTS["root"], TOKEN)]
    assert statuses == [401, 401, 200]
