"""``dejamq audit``: the PySpark job, with its own options."""

import importlib.util
import os
import sys

import typer
from dejamq_proto.codes import ConfigError

PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def add_to(app: typer.Typer, *, rich_help_panel: str) -> None:
    app.command("audit", rich_help_panel=rich_help_panel, context_settings=PASS_THROUGH, add_help_option=False)(audit)


def audit(context: typer.Context) -> None:
    """Why was it delivered twice? Reads journals, names the cause of each duplicate; see --help."""
    needs_spark()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "dejamq_analytics", *context.args])


def needs_spark() -> None:
    """Raise ConfigError where the extra is not installed."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"the audit needs {package}: pip install 'dejamq[analytics]'")
