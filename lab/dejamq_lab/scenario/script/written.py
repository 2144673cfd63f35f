"""A scenario as text that ``text.read`` reads: what a program made up can be kept, changed by hand and played again."""

import json
import math
from typing import Any

import msgspec

from dejamq_lab.scenario.script.text import Scenario


def written(scenario: Scenario) -> str:
    """TOML, as in the catalogue: defaults are left out, each step and each actor is a line."""
    told = _told(scenario)
    tables = {name: told.pop(name) for name in ("cluster", "settings", "actors", "expect") if told.get(name)}
    steps = ["steps = [", *(f"    {_value(step)}," for step in told.pop("steps")), "]"]
    lines = [*(f"{name} = {_value(value)}" for name, value in told.items() if value), *steps]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _told(value: Any) -> Any:
    """Tables and lists instead of structs, without what is as it is by default."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        fields = {field.name: getattr(value, field.name) for field in msgspec.structs.fields(value)
                  if getattr(value, field.name) != _default(field)}  # fmt: skip
        return ({str(value.__struct_config__.tag_field): tag} if tag else {}) | _told(fields)
    if isinstance(value, dict):
        return {key: _told(each) for key, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, list | tuple) else value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)  # numbers and basic strings are written alike in both languages


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
