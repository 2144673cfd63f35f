"""``dejamq store``: look into a store directory, ours or a real RocketMQ's, without a broker."""

from pathlib import Path
from typing import Annotated

import typer
from dejamq_broker.store import dump as store_dump

from dejamq_cli.output import Format, Output

app = typer.Typer(help="Look into a store directory, ours or a real RocketMQ's.", no_args_is_help=True)


@app.callback()
def _several_commands() -> None:
    """Keeps ``dump`` a command of its own while it is the only one."""


@app.command()
def dump(
    directory: Annotated[Path, typer.Argument(help="The store: the folder that holds commitlog/.")],
    output: Output = Format.TABLE,
) -> None:
    """List and check every record in log order; reads only. With -o json one object a line, a summary last.

    Exit status 1 when anything is damaged.
    """
    form = "json" if output is Format.JSON else "text"
    raise typer.Exit(store_dump.main([str(directory), "-o", form]))
