"""From a subscription to a comparison: the one place that knows the kinds of filters."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto.codes import Code, ConfigError, DejamqError

from dejamq_broker.filters.tags import tags_of

if TYPE_CHECKING:
    from dejamq_broker.filters.sql import SqlFilter

Wanted = Callable[[Mapping[str, str]], bool]
"""Whether a message with these properties is wanted."""


class Filter(msgspec.Struct, frozen=True):
    """``tags`` are hash codes to be found in queue entries, None for all; ``wanted`` judges each message itself."""

    tags: frozenset[int] | None = None
    wanted: Wanted | None = None


class FilterFactory:
    """Filters by expression and kind. Source: RocketMQ ``FilterFactory``, ``ExpressionType``."""

    def __init__(self, *, sql: bool) -> None:
        """``sql``: whether this broker filters by SQL92; the parser is made now, and not while pulls wait."""
        self._compile: Callable[[str], SqlFilter] | None = None
        self.filter_by_sql(sql)

    def filter_by_sql(self, enabled: bool) -> None:
        """From now on; filters that were made stay."""
        self._compile = _sql_compiler() if enabled else None

    def of(self, expression: str, kind: str) -> Filter:
        """The filter of a subscription. Raises SUBSCRIPTION_PARSE_FAILED, and SYSTEM_ERROR where SQL92 is off."""
        if kind in ("", "TAG"):
            return Filter(tags_of(expression))
        if kind != "SQL92":
            text = f"no filter is of the type {kind!r:.40}; there are TAG and SQL92"
            raise DejamqError(text, code=Code.SUBSCRIPTION_PARSE_FAILED)
        if self._compile is None:
            text = "this broker does not filter by SQL92: start it with enable_property_filter, or filter by tags"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        return Filter(wanted=self._compile(expression).matches)


def _sql_compiler() -> Callable[[str], "SqlFilter"]:
    """Raises ConfigError where the library is not installed."""
    if importlib.util.find_spec("lark") is None:
        raise ConfigError("SQL92 filters need lark: pip install 'dejamq[broker]', or leave enable_property_filter out")
    from dejamq_broker.filters.sql import compile_sql

    compile_sql("TRUE")
    return compile_sql
