"""Settings of access control, the same for all servers, and the guard that they ask for."""

import ipaddress
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dejamq_proto.access.book import Book
from dejamq_proto.access.guard import Guard, Look
from dejamq_proto.access.http_rights import SHORTEST_TOKEN
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import setting

log = logging.getLogger(__name__)
OF_ROCKETMQ = {"authenticationEnabled": "acl_enable", "authorizationEnabled": "acl_enable"}
"""RocketMQ 5's two switches are one here."""
OWN_FILE = "access.json"


@dataclass(frozen=True, kw_only=True)
class AccessConfig:
    """A part of each server's settings."""

    acl_enable: bool = setting(
        False, rocketmq="aclEnable", help="only users may come in, and they may do what rules allow; see access.md"
    )
    access_file: str | None = setting(
        None, help="users and rules, a file of mode 0600; default access.json in the folder of the server's own files"
    )
    plain_acl_file: str | None = setting(
        None, help="accounts as RocketMQ 4 has them (plain_acl.yml); none: no such file"
    )
    http_token: str = setting(
        "", help="with access control: who gives it over HTTP sees /metrics and may use the control page; see access.md"
    )

    @staticmethod
    def put_access_together(parts: Mapping[str, str], values: dict[str, Any]) -> None:
        """RocketMQ 5's switches into ours: one that is on turns access control on."""
        if any(str(parts.get(name, "")).lower() == "true" for name in OF_ROCKETMQ):
            values["acl_enable"] = True


def guard_of(config: AccessConfig, directory: Path | None, cluster: str, look: Look = lambda *_: "") -> Guard | None:
    """The guard of a server, None without access control. ``directory``: where the server keeps its own files.

    Raises ConfigError for files that cannot be used, and where nobody could come in.
    """
    if not config.acl_enable:
        if config.http_token:
            raise ConfigError("http_token asks nobody without acl_enable=true: set that too, or leave it out")
        return None
    if config.http_token and len(config.http_token) < SHORTEST_TOKEN:
        raise ConfigError(f"http_token needs {SHORTEST_TOKEN} letters at least, for example of: openssl rand -hex 16")
    if config.access_file is None and directory is None:
        raise ConfigError("acl_enable needs access_file: where are the users?")
    file = Path(config.access_file or (directory or Path()) / OWN_FILE).expanduser()
    book = Book(file, None if config.plain_acl_file is None else Path(config.plain_acl_file).expanduser())
    book.load()
    if not book.contents.users and not book.plain.users:
        raise ConfigError(
            f"acl_enable is on and {file} has no user, so nobody could come in; make the first one with: "
            f"dejamq user create NAME --type Super --file {file}"
        )
    return Guard(book, cluster, look, http_token=config.http_token)


def warn_if_open(config: AccessConfig, listen: str) -> None:
    """One line for a server that strangers can reach and that asks nobody who he is."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost"
    if not config.acl_enable and not near:
        log.warning("access_open listen=%s reason=everybody who reaches it may do everything, see acl_enable", listen)
