"""``dejamq user``: who may come into a cluster with access control."""

import getpass
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq_proto.access.book import change_file
from dejamq_proto.access.changes import Change, created, deleted, updated
from dejamq_proto.codes import ConfigError

from dejamq_cli.access.admin_session import Question, ask
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows, tell

app = typer.Typer(help="Users of a cluster with access control: who may come in.", no_args_is_help=True)
SECRET = "DEJAMQ_NEW_SECRET"


class Type(StrEnum):
    SUPER = "Super"
    NORMAL = "Normal"
    INNER = "Inner"


class UserState(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The access key.")]
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Change this file of a server instead of asking servers that run."),
]


def change(file: Path | None, of_file: Change, namesrv: str, of_cluster: Question[None]) -> None:
    """In this file, or at every server of the cluster. Raises DejamqError."""
    if file is None:
        ask(namesrv, of_cluster)
    else:
        change_file(file, of_file)  # a server that runs with it takes the change within seconds


def _secret(name: str, prompt: Callable[[str], str] = getpass.getpass) -> str:
    """From the environment, the terminal or standard input: everybody on a machine sees the arguments of a command."""
    if secret := os.environ.get(SECRET):
        return secret
    secret = prompt(f"secret of {name}: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not secret.strip():
        raise ConfigError(f"no secret came: give it in {SECRET}, or as a line on standard input")
    return secret.strip()


@app.command(epilog=examples(
    "DEJAMQ_NEW_SECRET=$(openssl rand -hex 16) dejamq user create root --type Super --file store/config/access.json",
    "dejamq user create shop",
))  # fmt: skip
def create(
    name: Name,
    type: Annotated[Type, typer.Option("--type", help="What the user may do at all.")] = Type.NORMAL,
    file: File = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Make a user at every server. Its secret is asked for, or comes by DEJAMQ_NEW_SECRET.

    Super may do everything. Normal may do what rules allow (dejamq acl). Inner is how servers know one another.
    """
    secret = _secret(name)
    change(file, created(name, secret, type), namesrv, lambda admin: admin.create_user(name, secret, type=type))
    tell(f"user {name} made")


@app.command(epilog=examples("dejamq user update shop --status disable", "dejamq user update shop --new-secret"))
def update(
    name: Name,
    type: Annotated[Type | None, typer.Option("--type", help="Another kind of user.")] = None,
    status: Annotated[UserState | None, typer.Option("--status", help="A disabled user is refused.")] = None,
    new_secret: Annotated[bool, typer.Option("--new-secret", help="Ask for another secret.")] = False,
    file: File = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Change a user at every server. Connections of the user that are open are refused from then on."""
    if not (type or status or new_secret):
        raise ConfigError("nothing to change: give --type, --status or --new-secret")
    secret = _secret(name) if new_secret else ""
    kind, state = type or "", status or ""
    change(
        file, updated(name, secret, kind, state), namesrv,
        lambda admin: admin.update_user(name, secret=secret, type=kind, status=state),
    )  # fmt: skip
    tell(f"user {name} changed")


@app.command(epilog=examples("dejamq user delete shop"))
def delete(name: Name, file: File = None, namesrv: Namesrv = DEFAULT_NAMESRV) -> None:
    """Delete a user and its rules at every server. The last super user stays."""
    change(file, deleted(name), namesrv, lambda admin: admin.delete_user(name))
    tell(f"user {name} deleted")


@app.command("list", epilog=examples("dejamq user list", "dejamq user list shop -o json"))
def list_(
    part: Annotated[str, typer.Argument(metavar="[PART]", help="Part of the name.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """All users of each server, never with a secret."""

    async def look(admin: Admin) -> list[dict[str, Any]]:
        found = await admin.users(part)
        return [
            {"user": user.name, "type": user.type, "status": user.status, "server": server, "file": user.file or "own"}
            for server, users in sorted(found.items())
            for user in users
        ]

    show_rows(ask(namesrv, look), output, empty="no users")
