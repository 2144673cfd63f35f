"""Access control at the remoting door: every request code without, with wrong, with other's and with right keys."""

import asyncio
import base64
import hmac
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from access_site import (
    ACCOUNTS,
    GROUP,
    SECRETS,
    TOLD,
    TOPIC,
    WRONG,
    Site,
    body_for,
    counted,
    for_servers,
    guarded,
    header_for,
    rules_for,
)
from dejamq_proto.access.model import Action, Rule, RuleEffect
from dejamq_proto.access.needs import Of
from dejamq_proto.access.remoting_rights import REMOTING
from dejamq_proto.account import Account, now_ms
from dejamq_proto.codes import Code
from dejamq_proto.remoting import pop_requests, requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import REQUESTS
from dejamq_proto.remoting_client import connect


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as found:
        yield found


async def asked(site: Site, account: Account | None, command: Command) -> Command:
    client = await connect(site.address, lambda _: None, account=account)
    try:
        return await client.send(command)
    finally:
        await client.close()


def refused(answer: Command) -> bool:
    return answer.code == Code.NO_PERMISSION and any(words in (answer.remark or "") for words in TOLD)


def made_up(code: int, site: Site) -> Command:
    """A request of this code that names the topic, the group and the message wherever it can name one."""
    needed = REMOTING[code]
    body = b"" if needed.body is None else msgspec.json.encode(body_for(needed.body, site))
    return Command(code=code, ext=header_for(REQUESTS[code].fields, site), body=body)


def test_every_request_of_the_protocol_has_a_right() -> None:
    assert REMOTING.keys() == REQUESTS.keys()
    assert pop_requests.POP_MESSAGE.code in REMOTING


async def test_each_request_is_refused_without_with_wrong_and_with_others_keys(site: Site) -> None:
    open_to: list[str] = []
    for code, needed in REMOTING.items():
        for account in (None, WRONG, ACCOUNTS["stranger"]):
            if account is ACCOUNTS["stranger"] and not needed.needs and not needed.never:
                continue  # it suffices to be a user
            if not refused(await asked(site, account, made_up(code, site))):
                open_to.append(f"{REQUESTS[code].name} to {account}")
    assert not open_to


async def test_each_request_is_served_with_exactly_the_rights_of_the_table(site: Site) -> None:
    shut: list[str] = []
    for code, needed in REMOTING.items():
        await site.allow(*rules_for(needed))
        account = ACCOUNTS["root" if for_servers(needed) else "fitting"]
        answer = await asked(site, account, made_up(code, site))
        if refused(answer) != needed.never:
            shut.append(f"{REQUESTS[code].name}: {answer.remark}")
    assert not shut


async def test_each_right_of_the_table_counts(site: Site) -> None:
    needless: list[str] = []
    for code, needed in REMOTING.items():
        rules = rules_for(needed)
        for rule in rules:
            await site.allow(*(one for one in rules if one is not rule))
            if counted(needed) and not refused(await asked(site, ACCOUNTS["fitting"], made_up(code, site))):
                needless.append(f"{REQUESTS[code].name} without {rule.resource}")
    assert not needless


async def test_a_request_nobody_declared_is_refused_from_users_and_unknown_to_super_users(site: Site) -> None:
    assert refused(await asked(site, ACCOUNTS["fitting"], Command(code=64_000)))
    answer = await asked(site, ACCOUNTS["root"], Command(code=64_000))
    assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED


async def test_a_signed_request_whose_body_was_changed_is_refused(site: Site) -> None:
    command = made_up(requests.HEART_BEAT.code, site)
    ACCOUNTS["root"].sign(command)
    command.body += b" "
    assert refused(await asked(site, None, command))


def test_the_proof_is_that_of_rocketmqs_clients() -> None:
    """All values in the order of their names, then the body: the secret is the key of SHA-1."""
    command = Command(code=10, ext={"topic": "orders", "a": "1", "queueId": "3"}, body=b"body")
    Account("alice", "secret-key").sign(command)
    content = b"alice" + b"1" + b"3" + b"orders" + b"body"  # AccessKey, a, queueId, topic
    assert command.ext["AccessKey"] == "alice"
    assert command.ext["Signature"] == base64.b64encode(hmac.digest(b"secret-key", content, "sha1")).decode()


PULL: dict[str, Any] = {
    "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "0", "consumerGroup": GROUP,
}  # fmt: skip
OWN = Rule("fitting", f"Group:{GROUP}", (Action.ALL,)), Rule("fitting", "Topic:*", (Action.ALL,))


@pytest.mark.parametrize("topic", [
    "%RETRY%payers", "%DLQ%payers", f"%RETRY%{GROUP}_secrets", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster",
])  # fmt: skip
async def test_no_topic_of_a_group_or_of_the_broker_is_a_way_around(site: Site, topic: str) -> None:
    await site.allow(*OWN, Rule("fitting", "Group:*", (Action.GET,)))
    pull = Command(code=requests.PULL_MESSAGE.code, ext=PULL | {"topic": topic})
    assert refused(await asked(site, ACCOUNTS["fitting"], pull))


async def test_a_group_reads_its_own_retries_and_dead_letters(site: Site) -> None:
    await site.allow(Rule("fitting", f"Group:{GROUP}", (Action.SUB,)))
    for topic in (f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"):
        pull = Command(code=requests.PULL_MESSAGE.code, ext=PULL | {"topic": topic})
        assert not refused(await asked(site, ACCOUNTS["fitting"], pull))


async def test_a_message_of_a_foreign_topic_cannot_be_drawn_into_a_groups_own_retry_topic(site: Site) -> None:
    await site.allow(Rule("fitting", f"Group:{GROUP}", (Action.ALL,)), Rule("fitting", "Topic:mine", (Action.ALL,)))
    back = {"offset": str(site.offset), "group": GROUP, "delayLevel": "1", "originTopic": "mine"}
    assert refused(await asked(site, ACCOUNTS["fitting"], Command(code=requests.SEND_BACK.code, ext=back)))
    view = Command(code=requests.VIEW_MESSAGE.code, ext={"offset": str(site.offset)})
    assert refused(await asked(site, ACCOUNTS["fitting"], view))


async def test_everybody_finds_where_a_new_topic_would_be_and_nothing_else_of_it(site: Site) -> None:
    route = Command(code=requests.GET_ROUTE.code, ext={"topic": "TBW102"})
    assert not refused(await asked(site, ACCOUNTS["stranger"], route))
    for code in (requests.SEND_MESSAGE_V2.code, requests.DELETE_TOPIC_IN_NAMESRV.code):
        command = made_up(code, site)
        ext = {name: "TBW102" if value == TOPIC else value for name, value in command.ext.items()}
        assert refused(await asked(site, ACCOUNTS["stranger"], Command(code=code, ext=ext, body=command.body)))


async def test_a_denial_for_a_topic_holds_where_a_prefix_is_allowed(site: Site) -> None:
    deny = Rule("fitting", f"Topic:{TOPIC}", (Action.PUB,), RuleEffect.DENY)
    await site.allow(Rule("fitting", "Topic:*", (Action.ALL,)), deny)
    assert refused(await asked(site, ACCOUNTS["fitting"], made_up(requests.SEND_MESSAGE_V2.code, site)))


async def test_a_refusal_is_a_line_in_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await asked(site, ACCOUNTS["stranger"], made_up(requests.SEND_MESSAGE.code, site))
    line = next(record.getMessage() for record in caplog.records if record.getMessage().startswith("access_refused"))
    assert line == (
        "access_refused subject=stranger action=Pub resource=Topic:orders source=127.0.0.1 request=SEND_MESSAGE "
        "reason=no rule allows it"
    )


def all_written(directory: Path) -> bytes:
    """But for the file whose purpose it is to hold secrets."""
    return b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file() and file.name != "access.json")


async def test_no_secret_is_in_any_file_that_a_server_writes_or_in_its_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with guarded(tmp_path) as site:
            told: list[Command] = []
            for code in REMOTING:
                if not REMOTING[code].never:
                    told.append(await asked(site, ACCOUNTS["root"], made_up(code, site)))
                await asked(site, WRONG, made_up(code, site))
    written = await asyncio.to_thread(all_written, tmp_path)
    said = caplog.text + "".join(f"{answer.remark}{answer.ext}{answer.body!r}" for answer in told)
    for secret in (*SECRETS.values(), WRONG.secret_key):
        assert secret.encode() not in written
        assert secret not in said


def test_needs_of_all_kinds_are_in_the_table() -> None:
    used = {need.of for needed in REMOTING.values() for need in needed.needs}
    assert used == set(Of) - {Of.ORIGIN}


HALF = "TRAN_MSG\x01true\x02PGROUP\x01makers\x02UNIQ_KEY\x01C00002020B523FDD08A68B1995EE0003\x02"
ASKED_TIMES = 4
"""Each of two members of the group would be asked in one of them but for the rarest chance."""


async def test_only_a_producer_who_may_send_to_the_topic_is_asked_about_its_transactions(tmp_path: Path) -> None:
    """The question carries the whole half message."""
    quick = {"transaction_timeout_ms": 50, "transaction_check_interval_ms": 50, "transaction_check_max": 100}
    async with guarded(tmp_path, **quick) as site:
        await site.allow(Rule("fitting", f"Topic:{TOPIC}", (Action.PUB,)))
        told: dict[str, asyncio.Queue[Command]] = {name: asyncio.Queue() for name in ("fitting", "stranger")}
        clients = {
            name: await connect(site.address, queue.put_nowait, account=ACCOUNTS[name])
            for name, queue in told.items()
        }  # fmt: skip
        for name, client in clients.items():
            beat = msgspec.json.encode({"clientID": name, "producerDataSet": [{"groupName": "makers"}]})
            assert (await client.send(Command(code=requests.HEART_BEAT.code, body=beat))).code == Code.SUCCESS
        half = header_for(requests.SendMessage, site) | {
            "producerGroup": "makers", "properties": HALF, "sysFlag": "4", "batch": "false", "reconsumeTimes": "0",
            "bornTimestamp": str(now_ms()),
        }  # fmt: skip
        sent = await clients["fitting"].send(Command(code=requests.SEND_MESSAGE.code, ext=half, body=b"half"))
        assert sent.code == Code.SUCCESS, sent.remark
        async with asyncio.timeout(30):
            for _ in range(ASKED_TIMES):
                assert (await told["fitting"].get()).code == requests.CHECK_TRANSACTION_STATE.code
        assert told["stranger"].empty()
        for client in clients.values():
            await client.close()


async def test_a_foreign_transaction_cannot_be_ended(site: Site) -> None:
    half = header_for(requests.SendMessage, site) | {
        "producerGroup": "makers", "properties": HALF, "sysFlag": "4", "batch": "false", "reconsumeTimes": "0",
        "bornTimestamp": str(now_ms()),
    }  # fmt: skip
    sent = await asked(site, ACCOUNTS["root"], Command(code=requests.SEND_MESSAGE.code, ext=half, body=b"half"))
    assert sent.code == Code.SUCCESS, sent.remark
    end = {
        "producerGroup": "makers", "tranStateTableOffset": sent.ext["queueOffset"], "commitOrRollback": "8",
        "commitLogOffset": str(int(sent.ext["msgId"][-16:], 16)),
    }  # fmt: skip
    command = Command(code=requests.END_TRANSACTION.code, ext=end)
    assert refused(await asked(site, ACCOUNTS["stranger"], command))
    await site.allow(Rule("fitting", f"Topic:{TOPIC}", (Action.PUB,)))
    assert not refused(await asked(site, ACCOUNTS["fitting"], command))
