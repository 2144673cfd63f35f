"""Settings: one frozen dataclass a process, read once from file, environment and flags, in that order of strength.

A field is declared once with ``setting``: default, RocketMQ's name, unit, meaning, how it scales with time in tests.
Keys may be spelled our way (``flush_interval_ms``) or RocketMQ's (``flushIntervalCommitLog``).

A class may name more of RocketMQ's keys in two ways. ``ROCKETMQ_CLASSES`` are classes that RocketMQ reads from the same
file, whose other keys have no effect here. ``ROCKETMQ_PARTS`` are keys that are a part of one of our settings, by its
name; ``put_together`` puts their values into the values so far.
"""

import dataclasses
import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dejamq_proto.codes import ConfigError
from dejamq_proto.config import java_properties
from dejamq_proto.config.rocketmq_keys import keys_of

ENV_PREFIX = "DEJAMQ_"
SECRET = re.compile("secret|password|token|credential")
LARGEST, MOST_SHOWN = 1 << 63, 100
Config = TypeVar("Config")


class Minutes(str):
    """RocketMQ's name of a setting that RocketMQ takes in minutes, and we in ms."""


def setting(default: Any, *, rocketmq: str = "", unit: str = "", scale: str = "", help: str = "") -> Any:
    """A dataclass field. ``scale``: ``interval`` shrinks with the time scale, ``timeout`` with its square root."""
    if scale not in ("", "interval", "timeout"):
        raise ValueError(f"scale is 'interval', 'timeout' or '', not {scale!r}")
    return dataclasses.field(
        default=default, metadata={"rocketmq": rocketmq, "unit": unit, "scale": scale, "help": help}
    )


def load(
    cls: type[Config],
    *,
    file: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    unused: Callable[[str], None] = lambda key: None,
) -> Config:
    """Build ``cls`` from a TOML or RocketMQ ``.conf`` file, then DEJAMQ_* variables, then overrides.

    ``unused`` is called with each key that RocketMQ has and that has no effect here. Raises ConfigError for an unknown
    key (naming near ones), two keys of one setting that differ, a value of the wrong type, or what ``validate`` finds.
    """
    values: dict[str, Any] = {}
    names = _spellings(cls)
    if file:
        _take(cls, _read_file(Path(file)), f"in {file}", values, unused)
    for path in names.values():
        text = (os.environ if env is None else env).get(ENV_PREFIX + path.rpartition(".")[2].upper())
        if text is not None:
            values[path] = text
    _take(cls, overrides or {}, "given", values, unused)
    return _validated(_build(cls, values, ""))


def _take(
    cls: type[Any], given: Mapping[str, Any], where: str, values: dict[str, Any], unused: Callable[[str], None]
) -> None:
    """Put the pairs of one source into ``values`` by path."""
    names, parts = _spellings(cls), getattr(cls, "ROCKETMQ_PARTS", {})
    others = keys_of(getattr(cls, "ROCKETMQ_CLASSES", ())) if hasattr(cls, "ROCKETMQ_CLASSES") else frozenset()
    taken: dict[str, tuple[str, Any]] = {}
    for key, value in given.items():
        if key in parts:
            continue
        if key not in names and key in others:
            unused(key)
            continue
        path, value = _field_path({**names, **parts}, key, where), _in_our_unit(names, key, value)
        other, said = taken.setdefault(path, (key, value))
        if said != value and str(said) != str(value):
            both = f"{_brief(masked(other, said))} and {_brief(masked(key, value))}"
            raise ConfigError(f"{other} and {key} are one setting and differ {where}: {both}")
    if told := {key: str(value) for key, value in given.items() if key in parts}:
        for key in told:
            if parts[key] in taken:
                raise ConfigError(f"{taken[parts[key]][0]} and {key} are one setting {where}: give one of them")
        cls.put_together(told, values)
    values |= {path: value for path, (_, value) in taken.items()}


def _build(cls: type[Config], values: Mapping[str, Any], prefix: str) -> Config:
    """An instance from values by path (``store.max_message_size`` for a field of a nested dataclass)."""
    chosen: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(hint):
            chosen[name] = _build(typing.cast(type[Any], hint), values, f"{prefix}{name}.")
        elif prefix + name in values:
            chosen[name] = _convert(name, values[prefix + name], hint)
    return cls(**chosen)


def values_of(config: Any) -> dict[str, Any]:
    """Every setting of an instance by our name, with the settings of nested dataclasses."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        found |= values_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def changed(config: Config, values: Mapping[str, Any]) -> Config:
    """The same settings but for these, by our names; texts are read as in a file. Raises ConfigError."""
    hints = typing.get_type_hints(type(config))
    converted = {name: _convert(name, value, hints[name]) for name, value in values.items()}
    return _validated(dataclasses.replace(config, **converted))  # type: ignore[type-var]


def spellings(cls: type[Config]) -> dict[str, str]:
    """Every spelling of every setting, ours and RocketMQ's, with our name; a nested setting's name has its path."""
    return _spellings(cls)


def shown(config: Any) -> dict[str, str]:
    """Every setting that has a value as text, by our name; a value that looks like a secret is not shown."""
    return {name: str(masked(name, value)) for name, value in values_of(config).items() if value is not None}


def masked(name: str, value: Any) -> Any:
    """The value as others may see it: of a setting whose name tells of a secret, only whether there is one."""
    return "***" if value and SECRET.search(name.lower()) else value


def listen_by_parts(parts: Mapping[str, str], values: dict[str, Any], default: str) -> None:
    """Put RocketMQ's ``listenPort`` and ``bindAddress`` into ``listen``."""
    if "listenPort" in parts or "bindAddress" in parts:
        host, _, port = str(values.get("listen", default)).rpartition(":")
        values["listen"] = f"{bracketed(parts.get('bindAddress') or host)}:{parts.get('listenPort') or port}"


def bracketed(host: str) -> str:
    """As it stands before ``:PORT``."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def scaled(config: Config, factor: float) -> Config:
    """The same settings with time shrunk: intervals times the factor, RPC time-outs times its square root."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value, kind = getattr(config, field.name), field.metadata.get("scale", "")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = scaled(value, factor)
        elif kind and value:
            new = value * (factor if kind == "interval" else factor**0.5)
            changes[field.name] = max(1, round(new)) if isinstance(value, int) else new
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def _validated(config: Config) -> Config:
    validate = getattr(config, "validate", None)
    if validate is not None:
        validate()
    return config


def _spellings(cls: Any, prefix: str = "") -> dict[str, str]:
    """Every spelling of every setting with its path, with the settings of nested dataclasses."""
    names: dict[str, str] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            names |= _spellings(hints[field.name], f"{prefix}{field.name}.")
            continue
        names[field.name] = prefix + field.name
        if field.metadata.get("rocketmq"):
            names[field.metadata["rocketmq"]] = prefix + field.name
    return names


def _field_path(names: Mapping[str, str], key: str, where: str) -> str:
    if key in names:
        return names[key]
    near = difflib.get_close_matches(key, names, n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise ConfigError(f"unknown setting {key!r} {where}{hint}")


def _in_our_unit(names: Mapping[str, str], key: str, value: Any) -> Any:
    """A value that is no number stays as it is, for ``_convert`` to refuse."""
    if not any(isinstance(name, Minutes) and name == key for name in names):
        return value
    try:
        return round(float(value) * 60_000)
    except (TypeError, ValueError, OverflowError):
        return value


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from None
    try:
        return tomllib.loads(data.decode("utf-8-sig")) if path.suffix == ".toml" else java_properties.read(data)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not TOML: tables or lists lie too deep in one another") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.object[error.start :][:16]!r}; save it as UTF-8") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _convert(name: str, value: Any, hint: Any) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in options:
        return None
    kind = next((option for option in options if option is not types.NoneType), str)
    try:
        return _as_kind(value, kind)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"setting {name}: {_brief(masked(name, value))} is not {_article(kind)}") from None


def _brief(value: Any) -> str:
    """A value as Python writes it, cut where it is long."""
    text = repr(value) if not isinstance(value, int) or abs(value) < LARGEST else "a number beyond 64 bits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _as_kind(value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}.get(value.lower()) or _false(value)
    if kind in (int, float):
        if isinstance(value, bool):  # an int to Python, but nobody means 1 by true
            raise TypeError
        return _number(value, kind)
    if kind is str:
        if isinstance(value, list | tuple):
            return ";".join(map(str, value))
        if not isinstance(value, str):
            raise TypeError
    elif isinstance(kind, type) and not isinstance(value, kind):
        raise TypeError
    return value


def _number(value: Any, kind: Any) -> int | float:
    """In plain digits, finite, and as large as 64 bits hold: what Java reads, and what clocks and files can count."""
    if isinstance(value, str) and not (value.isascii() and "_" not in value):
        raise ValueError
    number: int | float = float(value) if kind is float else int(value)
    if kind is int and isinstance(value, float) and number != value:
        raise ValueError
    if not -LARGEST <= number < LARGEST:  # neither is NaN
        raise ValueError
    return number


def _false(text: str) -> bool:
    if text.lower() not in ("false", "0"):
        raise ValueError
    return False


def _article(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(kind, f"a {kind}")
