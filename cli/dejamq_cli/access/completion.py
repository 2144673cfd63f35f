"""Names that the shell completes: asked of the live cluster, quickly or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import typer
from dejamq import Admin
from dejamq_proto.codes import DejamqError

from dejamq_cli.terminal.output import DEFAULT_NAMESRV

TIMEOUT_MS = 600
"""For everything: a person waits with a finger on the key."""

Names = Callable[[Admin], Awaitable[Iterable[str]]]


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so."""
    return _beginning(ctx, incomplete, Admin.topics)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin so."""

    async def names(admin: Admin) -> list[str]:
        return [one.group for one in await admin.groups()]

    return _beginning(ctx, incomplete, names)


def broker_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Brokers that begin so."""

    async def names(admin: Admin) -> list[str]:
        return [one.broker_name for one in await admin.brokers()]

    return _beginning(ctx, incomplete, names)


def _beginning(ctx: typer.Context, incomplete: str, names: Names) -> list[str]:
    """Nothing at all when the cluster does not answer in time: a completion has no place for an error."""

    async def ask() -> Iterable[str]:
        namesrv = ctx.params.get("namesrv") or DEFAULT_NAMESRV
        async with asyncio.timeout(TIMEOUT_MS / 1000), Admin(namesrv, mq_client_api_timeout_ms=TIMEOUT_MS) as admin:
            return await names(admin)

    try:
        found = asyncio.run(ask())
    except (DejamqError, OSError):  # a time-out is an OSError
        return []
    return sorted({name for name in found if name.startswith(incomplete)})


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=topic_names, show_default=False)
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.", autocompletion=group_names)]
Broker = Annotated[str, typer.Argument(metavar="NAME", help="Name of the broker.", autocompletion=broker_names)]
Brokers = Annotated[
    list[str] | None,
    typer.Option("--broker", metavar="NAME", help="Only at this broker; repeatable.", autocompletion=broker_names),
]
