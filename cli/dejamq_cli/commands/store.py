"""``dejamq store``: look into a store directory, ours or a real RocketMQ's, without a broker."""

import typer
from dejamq_broker.store import dump as store_dump
from dejamq_broker.store.offline import promotion as store_promotion
from dejamq_broker.store.offline import verify as store_verify

app = typer.Typer(
    help="Look into a store directory, ours or a real RocketMQ's; no broker needed.", no_args_is_help=True
)
PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def dump(context: typer.Context) -> None:
    """List every record, queue entry or setting of a store; see --help."""
    raise typer.Exit(store_dump.main(context.args))


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def verify(context: typer.Context) -> None:
    """Is a store whole? Reads everything, changes nothing; see --help."""
    raise typer.Exit(store_verify.main(context.args))


@app.command("promote-check", context_settings=PASS_THROUGH, add_help_option=False)
def promote_check(context: typer.Context) -> None:
    """What would be lost if a slave were made the master? Changes nothing; see --help."""
    raise typer.Exit(store_promotion.main(context.args))
