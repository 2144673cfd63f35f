"""``dejamq console`` of a real RocketMQ's recorded runs: its logs, traces and stores, and journals beside them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import stories_owners  # noqa: F401  # its stories register themselves
from console_reader import Seen, get
from dejamq_cli.console.server import serving
from dejamq_cli.console.settings import ConsoleSettings
from dejamq_cli.console.sources import Sources
from dejamq_lab.cluster.waiting import until_async
from stories import write_all

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
RECORDED = Path(__file__).parents[1] / "data" / "rocketmq"
WAIT_S = 240


@asynccontextmanager
async def audited(sources: Sources) -> AsyncIterator[str]:
    """The address of a console that has audited once."""
    async with serving(ConsoleSettings(None, "127.0.0.1:0", sources, refresh_s=0.2)) as address:
        await ended(address)
        yield address


async def ended(address: str) -> None:
    async def told() -> bool:
        state = (await get(address, "/duplicates.json")).json()
        assert state["audit"]["error"] is None, state["audit"]["error"]
        return state["duplicates"] is not None

    assert await until_async(told, WAIT_S)


async def one(address: str, question: str = "") -> dict[str, Any]:
    """The only duplicate that answers the question, with its evidence."""
    (row,) = (await get(address, f"/duplicates.json{question}")).json()["duplicates"]
    told: dict[str, Any] = (await get(address, f"/duplicates/{row['finding_id']}.json")).json()
    return told


async def test_a_folder_of_evidence_is_told_with_the_file_and_line_of_each_step() -> None:
    async with audited(Sources(evidence=[RECORDED / "o1"])) as address:
        counts = (await get(address, "/duplicates.json")).json()["counts"]
        assert {row["cause"]: row["duplicates"] for row in counts} == {"O7": 3, "O1": 1}
        told = await one(address, "?cause=O1")
        lines = {line["event"]: line for line in told["duplicate"]["evidence"]}
        assert lines["PERSIST"]["source"] == "billing-1/rocketmq_client.log:125"
        assert (lines["END"]["source"], lines["END"]["within_us"]) == ("broker-a/logs/broker.log:434", 1_000_000)
        assert all(line["wall_us"] and line["source"] for line in told["duplicate"]["evidence"])
        file, _, number = lines["PQ_OPEN"]["source"].rpartition(":")
        assert "add a new mq" in (RECORDED / "o1" / file).read_text().splitlines()[int(number) - 1]
        owners = [row["process"].partition(":")[0] for row in told["queues"][0]["owners"]]
        assert owners == ["billing-1", "billing-2"]
        page = Seen((await get(address, f"/duplicates/{told['duplicate']['finding_id']}")).text)
        assert page.wrong == []
        for words in ("the highest offset sent, 2 (timer) billing-1/rocketmq_client.log:125",
                      "broker-a/logs/broker.log:434, within 1000 ms", "1st delivery", "2nd delivery"):  # fmt: skip
            assert words in page.text
        first = Seen((await get(address, "/")).text)
        assert first.wrong == []
        assert "billing-1/rocketmq_client.log: log of a Java client" in first.text


async def test_a_store_alone_tells_of_each_stored_copy_where_it_lies_and_when_it_came() -> None:
    store = RECORDED / "p1" / "broker-a" / "store"
    async with audited(Sources(stores=[store])) as address:
        told = await one(address)
        assert (told["duplicate"]["kind"], told["duplicate"]["cause"]) == ("stored twice", None)
        places = [(line["source"], line["wall_us"]) for line in told["duplicate"]["evidence"]]
        times = [told["duplicate"][f"{side}_us"] for side in ("first", "second")]
        assert places == [(f"{store} log offset {at}", us) for at, us in zip((16540, 16783), times, strict=True)]
        assert "no journal of the producer" in told["duplicate"]["missing"]
        for path in ("/", "/duplicates", "/duplicates/compare", f"/duplicates/{told['duplicate']['finding_id']}"):
            answer = await get(address, path)
            assert (answer.status, Seen(answer.text).wrong) == (200, [])


async def test_journals_logs_and_a_store_are_audited_together_and_each_line_names_its_file(tmp_path: Path) -> None:
    write_all(tmp_path, ["o7"])
    run = RECORDED / "l1"
    sources = Sources(
        [tmp_path], stores=[run / "broker-a" / "store"], logs=[run / "billing-1", run / "broker-a" / "logs"]
    )
    async with audited(sources) as address:
        told = (await get(address, "/duplicates.json?asked_for=1")).json()
        causes = {(row["cause"], row["consumer_group"]) for row in told["counts"]}
        assert {("O7", "o7"), ("L1", "billing")} <= causes
        row = next(row for row in told["duplicates"] if row["cause"] == "O7")
        pair = (await get(address, f"/duplicates/{row['finding_id']}.json")).json()
        for line in pair["duplicate"]["evidence"]:
            file, _, number = line["source"].rpartition(":")
            text = (tmp_path / file).read_text().splitlines()[int(number) - 1]
            assert f'"seq":{line["seq"]}' in text
            assert f'"boot_id":"{line["boot_id"]}"' in text


async def test_evidence_that_grows_is_audited_again_and_evidence_that_stays_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    sources = Sources(evidence=[folder])
    before = sources.extent()
    assert sources.extent() == before
    (folder / "rocketmq_client.log").write_text("one line\n")
    grown = sources.extent()
    assert grown != before
    (folder / "rocketmq_client.log").write_text("one line\nand another\n")
    assert sources.extent() != grown


async def test_the_command_takes_evidence_as_the_audit_does_and_says_why_it_cannot() -> None:
    command = [sys.executable, "-m", "dejamq_cli", "console", "--no-cluster", "--listen", "127.0.0.1:0"]
    run = RECORDED / "healthy"
    process = await asyncio.create_subprocess_exec(
        *command, "--logs", str(run / "billing-1"), "--store", str(run / "broker-a" / "store"), "--zone", "billing=-05",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
        address = said.decode().split()[-1]

        async def told() -> bool:
            return bool((await get(address, "/overview.json")).json()["audit"]["error"])

        assert await until_async(told, WAIT_S)
        assert "a time zone is told as" in (await get(address, "/duplicates")).text
    finally:
        process.terminate()
        await process.wait()
