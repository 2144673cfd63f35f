"""``dejamq broker``: what brokers say of themselves, their settings, and whether they get messages."""

import asyncio
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq.admin.links import BrokerInfo
from dejamq_lab.cluster import rpc_control
from dejamq_lab.cluster.plan import broker_settings
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.names import MASTER_ID

from dejamq_cli.access.admin_session import ask, asked_half, finish
from dejamq_cli.access.completion import Broker
from dejamq_cli.access.watch import Watch, show_or_watch
from dejamq_cli.terminal.dry_run import DryRun, say_dry_run
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_fields, show_rows

app = typer.Typer(help="Brokers: what they do, their settings, taking one out of use.", no_args_is_help=True)
config = typer.Typer(help="Settings of a running broker.", no_args_is_help=True)
app.add_typer(config, name="config")

SHOWN = ("version", "put_tps", "get_tps", "disk")
BRIEF = ("broker", "id", "address", "answers")


@app.command("list", epilog=examples("dejamq broker list", "dejamq broker list --watch"))
def list_(watch: Watch = None, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """All registered brokers, and what each master says of itself: messages in and out a second, disk use.

    A master that does not answer is shown so, and makes the exit status 3.
    """

    def show(rows: list[dict[str, Any]], output: Format) -> None:
        show_rows(rows, output, empty="no broker is registered", brief=BRIEF)

    finish(show_or_watch(lambda: asked_half(namesrv, _list), show, output, watch))


@app.command(epilog=examples("dejamq broker describe broker-a"))
def describe(name: Broker, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """Everything that the master says of itself, by RocketMQ's names. Sizes are bytes, times milliseconds."""
    values = ask(namesrv, lambda admin: admin.runtime_info(name))
    show_fields(dict(sorted(values.items())), output)


@config.command(
    "get", epilog=examples("dejamq broker config get broker-a", "dejamq broker config get broker-a flush_disk_type")
)
def config_get(
    name: Broker,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY …", help="Only these, in our spelling or RocketMQ's.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """The settings in force, by our names; docs/settings.md has what they mean and RocketMQ's names."""
    settings = ask(namesrv, lambda admin: admin.settings(name))
    wanted = {_own_name(key): key for key in keys or sorted(settings)}
    if unknown := sorted(wanted[key] for key in wanted.keys() - settings.keys()):
        raise ConfigError(f"{name} has no setting {', '.join(unknown)}, or it has no value")
    show_fields({key: settings[key] for key in wanted}, output)


@config.command("set", epilog=examples("dejamq broker config set broker-a auto_create_topic_enable=false"))
def config_set(
    name: Broker,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE …", help="In our spelling or RocketMQ's.")],
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Change settings of the running broker, as far as they can change; others are refused with the reason.

    They hold until the broker ends: what is to stay belongs into its configuration file too.
    """
    wanted = dict(_pair(text) for text in pairs)

    async def change(admin: Admin) -> list[dict[str, Any]]:
        before = await admin.settings(name)
        given = {_own_name(key): value for key, value in wanted.items()}
        after = given if dry_run else await admin.update_settings(name, wanted)
        changed = {key for key in after if after[key] != before.get(key)} | (given.keys() & after.keys())
        return [{"setting": key, "before": before.get(key), "after": after[key]} for key in sorted(changed)]

    show_rows(ask(namesrv, change), output, empty="nothing was changed")
    if dry_run:
        say_dry_run()


@app.command("stop-writes", epilog=examples("dejamq broker stop-writes broker-a --dry-run"))
def stop_writes(
    name: Broker, dry_run: DryRun = False, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE
) -> None:
    """Let no producer choose this broker any more; consumers finish what it has. To empty it before it is stopped.

    It holds until start-writes, or until the broker registers a change of its topics or starts again. Producers follow
    when they read the route again, within 30 s. The broker itself refuses nobody.
    """
    _writes(name, False, dry_run, namesrv, output)


@app.command("start-writes", epilog=examples("dejamq broker start-writes broker-a"))
def start_writes(
    name: Broker, dry_run: DryRun = False, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE
) -> None:
    """Let producers choose this broker again; as in RocketMQ also for topics that were for reading only."""
    _writes(name, True, dry_run, namesrv, output)


def _writes(name: str, on: bool, dry_run: bool, namesrv: str, output: Format) -> None:
    async def change(admin: Admin) -> list[dict[str, Any]]:
        if dry_run:
            return await _routes_through(admin, name, on)
        told = await (admin.start_writes(name) if on else admin.stop_writes(name))
        return [{"namesrv": address, "routes": routes, "write": on} for address, routes in told.items()]

    show_rows(ask(namesrv, change), output, empty="no name server")
    if dry_run:
        say_dry_run()


async def _routes_through(admin: Admin, name: str, on: bool) -> list[dict[str, Any]]:
    """The routes that a change would reach. Raises ConfigError for a broker that nobody knows."""
    if name not in (known := {broker.broker_name for broker in await admin.brokers()}):
        raise ConfigError(f"no broker is named {name}; there are {', '.join(sorted(known)) or 'none'}")
    routes: dict[str, int] = {}
    for answers in await asyncio.gather(*map(admin.routes, await admin.topics())):
        for address, told in answers.items():
            through = not isinstance(told, DejamqError) and any(one.broker_name == name for one in told)
            routes[address] = routes.get(address, 0) + through
    return [{"namesrv": address, "routes": count, "write": on} for address, count in routes.items()]


async def _list(admin: Admin) -> list[dict[str, Any]]:
    brokers = await admin.brokers()
    told = await asyncio.gather(*(_values(admin, broker) for broker in brokers))
    places = [
        (broker.broker_name, broker_id, address, values if broker_id == MASTER_ID else None)
        for broker, values in zip(brokers, told, strict=True)
        for broker_id, address in sorted(broker.addresses.items())
    ]
    return list(await asyncio.gather(*(_row(*place) for place in places)))


async def _row(name: str, broker_id: int, address: str, values: dict[str, str] | None) -> dict[str, Any]:
    """A slave is asked only whether it serves."""
    answers = values is not None if broker_id == MASTER_ID else await rpc_control.healthy(address)
    return {"broker": name, "id": broker_id, "address": address, "answers": answers} | _shown(values or {})


async def _values(admin: Admin, broker: BrokerInfo) -> dict[str, str] | None:
    """None of a master that does not answer, or is not there."""
    try:
        return await admin.runtime_info(broker.broker_name)
    except (ConnectionError, TimeoutError):
        return None


def _shown(values: dict[str, str]) -> dict[str, Any]:
    """Rates are told of the last ten seconds, minute and ten minutes: the first of them."""
    disk = values.get("commitLogDiskRatio")
    return {
        "version": values.get("brokerVersionDesc", "").rpartition(" ")[2] or None,
        "put_tps": _first_number(values.get("putTps")),
        "get_tps": _first_number(values.get("getTransferredTps")),
        "disk": None if disk is None else float(disk),
    }


def _first_number(text: str | None) -> float | None:
    return float(text.split()[0]) if text else None


def _own_name(key: str) -> str:
    """RocketMQ's spelling in ours: ``flushDiskType`` is ``flush_disk_type``. Other texts stay as they are."""
    return broker_settings().get(key, key)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"a setting is given as KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()
