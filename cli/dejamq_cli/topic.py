"""``dejamq topic``: make topics, list them, show where they are."""

import asyncio
from typing import Annotated, Any

import typer
from dejamq_lab import rpc_control
from dejamq_lab.rpc_control import BrokerInfo
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.names import check_sendable

from dejamq_cli.addresses import ask_any
from dejamq_cli.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows

app = typer.Typer(help="Topics: create, list, route.", no_args_is_help=True)
Topic = Annotated[str, typer.Argument(help="Name of the topic.")]


@app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option(min=1, help="Queues at each broker.")] = 8,
    broker: Annotated[list[str] | None, typer.Option(help="Only at this broker; repeatable. Default: all.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Create the topic, or change its queues, at every broker."""
    check_sendable(topic)
    rows = asyncio.run(_create(namesrv, topic, queues, broker or []))
    show_rows(rows, output, empty="no broker is registered")


@app.command("list")
def list_(namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """All topics that a live broker has."""
    names = asyncio.run(ask_any(namesrv, rpc_control.topics))
    show_rows([{"topic": name} for name in names], output, empty="no topics")


@app.command()
def route(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """Where the topic's queues are. Exit status 1 when nobody has the topic."""
    queues, brokers = asyncio.run(ask_any(namesrv, lambda address: rpc_control.route(address, topic)))
    addresses = {broker.broker_name: [f"{i}={a}" for i, a in broker.addresses.items()] for broker in brokers}
    rows: list[dict[str, Any]] = [
        {
            "broker": queue.broker_name,
            "addresses": addresses.get(queue.broker_name, []),
            "read_queues": queue.read_queue_nums,
            "write_queues": queue.write_queue_nums,
            "perm": queue.perm,
        }
        for queue in queues
    ]
    show_rows(rows, output, empty="no route")


async def _create(namesrv: str, topic: str, queues: int, wanted: list[str]) -> list[dict[str, Any]]:
    brokers: list[BrokerInfo] = await ask_any(namesrv, rpc_control.brokers)
    known = {broker.broker_name: broker.master for broker in brokers}
    if unknown := sorted(set(wanted) - known.keys()):
        raise ConfigError(f"no broker named {', '.join(unknown)}; there are {', '.join(known) or 'none'}")
    masters = {name: master for name, master in known.items() if master and (not wanted or name in wanted)}
    if not masters:
        raise DejamqError("no broker with a master is registered; start one with: dejamq serve broker")
    for master in masters.values():
        await rpc_control.create_topic(master, topic, queues)
    return [{"topic": topic, "broker": name, "queues": queues} for name in masters]
