"""Writes docs/settings.md from the config classes: a setting is described in one place, where it is declared.

``python tools/settings_page.py`` writes the page, with ``--check`` it says whether the committed one is today's.
"""

import argparse
import dataclasses
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from dejamq.values.config import ClientConfig, ConsumerConfig, LitePullConfig, SimpleConfig
from dejamq.values.producer_config import ProducerConfig, TransactionProducerConfig
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_namesrv.config import NamesrvConfig

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

INTRODUCTION = """\
# Settings

Made by `make settings` from the classes that declare them; `make check` fails when this page is not theirs.

A value has four sources; a later one wins. They are the file (`--config`: TOML, or RocketMQ's own `broker.conf`), the
environment (`DEJAMQ_` and our name in capitals: `DEJAMQ_NAMESRV`), the command line (`--set KEY=VALUE`), and for a
client a keyword argument. Both spellings are understood everywhere. An unknown key is an error that names near ones.
Units are part of our names; a RocketMQ name takes the number in our unit, except `consumeTimeout`, which is in
minutes. Where a default is not RocketMQ's, the meaning says so.

A `broker.conf` or `namesrv.conf` is read as Java reads it (escapes, long lines, `:` and blanks as separators), in UTF-8
or ISO-8859-1. Keys that RocketMQ 5.3.3 has and that have no effect here are accepted; one line of the log,
`settings_without_effect`, names them. A broker keeps everything below `storePathRootDir`, so `storePathCommitLog` is
one of them. With a `brokerIP1` that is not of the loopback a broker listens on every address, unless it is told where.
"""

ROW = "| `{name}` | {rocketmq} | {default} | {unit} | {help} |"
HEAD = "| our name | RocketMQ's | default | unit | meaning |\n|---|---|---|---|---|"


class Section(msgspec.Struct, frozen=True):
    """One table: the fields of ``config`` without those that an earlier table has from ``told`` with the same words."""

    title: str
    text: str
    config: type[Any]
    told: type[Any] | None = None


SECTIONS = (
    Section("Every client", "Keyword arguments of all clients.", ClientConfig),
    Section("Producer", "And those of every client.", ProducerConfig, ClientConfig),
    Section(
        "Producer of transactions",
        "`TransactionProducer`; and those of a producer.",
        TransactionProducerConfig,
        ProducerConfig,
    ),
    Section("Consumer", "`PushConsumer`; and those of every client.", ConsumerConfig, ClientConfig),
    Section(
        "Lite pull consumer",
        "`LitePullConsumer`; and those of a consumer that are not about handlers.",
        LitePullConfig,
        ConsumerConfig,
    ),
    Section("Simple consumer", "`SimpleConsumer`; and those of every client.", SimpleConfig, ClientConfig),
    Section("Name server", "`dejamq serve namesrv`.", NamesrvConfig),
    Section("Broker", "`dejamq serve broker`; those of its store follow.", BrokerConfig),
    Section("Store of a broker", "Given to the broker like its own.", StoreConfig),
)


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_section(section) for section in SECTIONS)])


def _section(section: Section) -> str:
    told = _rows(section.told) if section.told else []
    rows = [row for row in _rows(section.config) if row not in told]
    return "\n".join([f"## {section.title}\n", f"{section.text}\n", HEAD, *rows, ""])


def _rows(config: type[Any]) -> list[str]:
    parts = getattr(config, "ROCKETMQ_PARTS", {})
    return [_row(field, hint, [key for key in parts if parts[key] == field.name]) for field, hint in _fields(config)]


def _fields(config: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The settings themselves; a nested class has a table of its own."""
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if not dataclasses.is_dataclass(hints[field.name]):
            yield field, hints[field.name]


def _row(field: dataclasses.Field[Any], hint: Any, parts: list[str]) -> str:
    """``parts``: keys of RocketMQ that say a part of the setting."""
    told = field.metadata
    rocketmq = [told["rocketmq"]] if told["rocketmq"] else parts
    return ROW.format(
        name=field.name,
        rocketmq=", ".join(f"`{key}`" for key in rocketmq),
        default=_default(field.default, told["unit"]),
        unit=told["unit"] or _kind(hint),
        help=told["help"].replace("|", "\\|"),
    )


def _default(value: Any, unit: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if unit == "bytes" and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value}` ({value >> 20} MiB)"
    if isinstance(value, str):  # a long list may break between its entries
        return ";<br>".join(f"`{part}`" for part in value.split(";")) if value else "empty"
    return f"`{value}`"


def _kind(hint: Any) -> str:
    """What a value without a unit is."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next(option for option in options if option is not types.NoneType)
    return {int: "number", float: "number", bool: "true, false", str: "text"}[kind]


def main(arguments: list[str] | None = None) -> int:
    """The command; exit status 1 when a checked page is stale or missing."""
    parser = argparse.ArgumentParser(prog="settings_page.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is not today's")
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        print("docs/settings.md is not made of today's settings: run `make settings` and commit it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
