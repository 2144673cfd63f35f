"""The settings of a console."""

import importlib.util
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from dejamq_proto.access.http_rights import SHORTEST_TOKEN
from dejamq_proto.codes import ConfigError
from dejamq_proto.texts import number_of

from dejamq_cli.console.sources import Sources

LISTEN = "127.0.0.1:8088"
REFRESH_S = 5.0
TOKEN_VARIABLE = "DEJAMQ_CONSOLE_TOKEN"
WARNING = (
    "everybody who reaches {listen} can read all messages, unless the cluster has access control or "
    f"{TOKEN_VARIABLE} is set"
)
NEEDED = ("starlette", "jinja2", "uvicorn")


@dataclass(frozen=True)
class ConsoleSettings:
    """``namesrv`` None: no cluster is looked at. ``token`` None: nothing can be changed.

    ``http_token``: who gives it sees what the console's keys see; empty: nobody does.
    ``names``: host names besides localhost and addresses by which browsers may call it. ``refresh_s``: at least so much
    time is between two looks at the cluster, and between two audits.
    """

    namesrv: str | None
    listen: str = LISTEN
    sources: Sources = field(default_factory=Sources)
    token: str | None = field(default=None, repr=False)
    http_token: str = field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE, ""), repr=False)
    names: Sequence[str] = ()
    refresh_s: float = REFRESH_S
    audit_rest: float = 4.0
    """After an audit it rests so many times as long as that took: it takes a fifth of a processor at most."""

    def __post_init__(self) -> None:
        if self.http_token and len(self.http_token) < SHORTEST_TOKEN:
            raise ConfigError(f"{TOKEN_VARIABLE} needs {SHORTEST_TOKEN} letters at least")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port. Raises ConfigError."""
        host, _, port = self.listen.rpartition(":")
        number = number_of(port, 65535)
        if not host or number is None:
            raise ConfigError(f"{self.listen!r} is not HOST:PORT")
        return host.strip("[]"), number

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it."""
        host = self.address[0]
        return host != "localhost" and not (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_needs() -> None:
    """Raise ConfigError where the extra is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the console needs {', '.join(missing)}: pip install 'dejamq[console]'")


def is_address(host: str) -> bool:
    """Whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
