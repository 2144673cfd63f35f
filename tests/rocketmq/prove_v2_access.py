"""``python tests/rocketmq/prove_v2_access.py``: refusals of RocketMQ 5's calls beside RocketMQ's own proxy 5.3.3.

Both have access control and the same users. Each call is made without keys, with those of nobody, with a wrong secret,
and by a user without any right. Statuses must be the same.
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDERS = ("tests/rocketmq", "tests/integration", "tests/unit")
sys.path[:0] = [str(Path(__file__).parents[2] / folder) for folder in FOLDERS]

from access_site import ACCOUNTS, SECRETS, WRONG, guarded  # noqa: E402  # found by their folders
from dejamq_lab.machines.rocketmq_proxy import RocketMQProxy, proxy_jars  # noqa: E402
from dejamq_proto.access.call_rights import V2  # noqa: E402
from dejamq_proto.account import Account  # noqa: E402
from dejamq_proto.codes import Code  # noqa: E402
from dejamq_proto.remoting import access_requests  # noqa: E402
from dejamq_proto.remoting.header import Command  # noqa: E402
from dejamq_proto.remoting_client import connect  # noqa: E402
from dejamq_proto.v2 import messages_pb2 as pb  # noqa: E402
from test_access_calls import v2_status  # noqa: E402

WHO = {
    "no keys": None, "nobody's keys": Account("nobody", "any-secret-at-all"), "a wrong secret": WRONG,
    "no right": ACCOUNTS["stranger"],
}  # fmt: skip
UNKNOWN_THERE = {"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"}
"""Calls that RocketMQ 5.3.3 does not have."""
AUTH = "org.apache.rocketmq.auth"
KINDS = ("authentication", "authorization")


def settings(folder: Path, metadata: Sequence[str]) -> dict[str, object]:
    """Of the broker or the proxy, which reads users where the broker has them."""
    root = {"username": "root", "password": SECRETS["root"]}
    return {
        "authConfigPath": str(folder), "authenticationEnabled": "true", "authorizationEnabled": "true",
        "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authenticationMetadataProvider": metadata[0], "authorizationMetadataProvider": metadata[1],
        "initAuthenticationUser": json.dumps(root),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": SECRETS["root"]}),
    }  # fmt: skip


def real(folder: Path) -> RocketMQProxy:
    """Of both servers the broker keeps the users."""
    local = tuple(f"{AUTH}.{kind}.provider.Local{kind.title()}MetadataProvider" for kind in KINDS)
    own = tuple(f"org.apache.rocketmq.proxy.auth.Proxy{kind.title()}MetadataProvider" for kind in KINDS)
    users = folder / "auth"
    return RocketMQProxy(
        proxy_jars(),
        folder / "store",
        folder / "work",
        settings(users, local),
        ["orders"],
        {"billing": {}},
        proxy=settings(users, own) | {"authenticationEnabled": True, "authorizationEnabled": True},
    )


async def add_users(broker: str) -> None:
    client = await connect(broker, lambda _: None, account=ACCOUNTS["root"])
    for name in ("fitting", "stranger"):
        user = {"username": name, "password": SECRETS[name], "userType": "Normal"}
        command = Command(
            code=access_requests.CREATE_USER.code, ext={"username": name}, body=json.dumps(user).encode()
        )  # fmt: skip
        answer = await client.send(command)
        assert answer.code == Code.SUCCESS, answer.remark
    await client.close()


async def statuses(site: Any) -> dict[tuple[str, str], str]:
    return {
        (name, what): pb.Code.Name(await v2_status(site, name, account))  # type: ignore[arg-type]
        for name in V2
        if name not in UNKNOWN_THERE
        for what, account in WHO.items()
    }


class There:
    """What ``v2_status`` needs of a site."""

    def __init__(self, address: str, site: Any) -> None:
        self.address, self.offset, self.message_id = address, site.offset, site.message_id


async def proven(folder: Path) -> int:
    """How many statuses differ."""
    with real(folder / "real") as server:
        lines = (folder / "real" / "work" / "broker.conf").read_text().splitlines()
        port = next(line.partition("=")[2] for line in lines if line.startswith("listenPort="))
        await add_users(f"127.0.0.1:{port}")
        async with guarded(folder / "ours") as site:
            ours, there = await statuses(site), There(server.address, site)
            theirs = await statuses(there)
    different = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
    print(len(ours), "refusals,", *sorted(set(ours.values())), different or "by both", flush=True)
    return len(different)


def main() -> int:
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "real").mkdir()
        (Path(folder) / "ours").mkdir()
        failures = asyncio.run(proven(Path(folder)))
    print(failures, "failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
