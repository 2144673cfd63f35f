"""Requests of RocketMQ's protocols in the name of a user who owns ``mine`` and has no right to anything else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from access_site import ACCOUNTS, CLUSTER, SECRETS, TOPIC, Site, guarded, header_for, v2_headers
from dejamq import Admin
from dejamq_proto.access.model import Action, Rule
from dejamq_proto.account import Account, now_ms
from dejamq_proto.codes import Code
from dejamq_proto.names import reply_topic
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting_client import connect
from dejamq_proto.v2 import methods
from dejamq_proto.wire.calling import dial

ROOT: Any = {"access_key": "root", "secret_key": SECRETS["root"]}
MINE, REPLIES = "mine", reply_topic(CLUSTER)
OWN = (
    Rule("fitting", f"Topic:{MINE}*", (Action.ALL,)), Rule("fitting", "Group:mine*", (Action.ALL,)),
    Rule("fitting", f"Topic:{REPLIES}", (Action.PUB,)),
)  # fmt: skip


@asynccontextmanager
async def owning(directory: Path, **settings: Any) -> AsyncIterator[Site]:
    """``fitting`` has all rights to ``mine``, and none to ``orders``, which has one message."""
    async with guarded(directory, **settings) as found:
        async with Admin(found.address, **ROOT) as admin:
            await admin.create_topic(MINE, queues=1)
        await found.allow(*OWN)
        yield found


async def asked(site: Site, account: Account, code: int, body: bytes = b"", **fields: object) -> Command:
    client = await connect(site.address, lambda _: None, account=account)
    try:
        return await client.send(Command(code=code, ext={k: str(v) for k, v in fields.items()}, body=body))
    finally:
        await client.close()


async def v2_call(site: Site, account: Account, name: str, request: Any) -> Any:
    channel = dial(site.address)
    try:
        method: Any = channel.unary_unary(f"/{methods.SERVICE}/{name}")  # type: ignore[call-arg]
        raw = await method(request.SerializeToString(), metadata=v2_headers(account), timeout=30)
        return methods.UNARY[name][1].FromString(raw)
    finally:
        await channel.close(None)


async def half(site: Site, group: str, key: str, account: str = "root", topic: str = TOPIC) -> Command:
    """A half message; by default somebody else's, of the topic ``orders``."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01{key}\x02"
    fields = header_for(requests.SendMessage, site) | {
        "producerGroup": group, "topic": topic, "properties": properties, "sysFlag": "4", "batch": "false",
        "reconsumeTimes": "0", "bornTimestamp": str(now_ms()),
    }  # fmt: skip
    sent = await asked(site, ACCOUNTS[account], requests.SEND_MESSAGE.code, b"half", **fields)
    assert sent.code == Code.SUCCESS, sent.remark
    return sent


def a_beat(client_id: str, group: str = "") -> bytes:
    producers = [{"groupName": group}] if group else []
    return msgspec.json.encode({"clientID": client_id, "producerDataSet": producers})
