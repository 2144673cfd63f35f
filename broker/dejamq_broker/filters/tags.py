"""Tag expressions: ``a || b``, compared by hash. Source: RocketMQ ``FilterAPI``."""

from functools import lru_cache

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import trimmed
from dejamq_proto.records.record import java_hash

LONGEST_KEPT = 1000
"""Characters: longer expressions are read each time, so that strangers fill no memory with them."""


def tags_of(expression: str) -> frozenset[int] | None:
    """The hash codes that ``a || b`` selects, None for everything. Only hashes are compared: clients check the text.

    Raises SUBSCRIPTION_PARSE_FAILED for bars without a tag, which could never match.
    """
    return (_kept if len(expression) <= LONGEST_KEPT else _tags_of)(expression)


def _tags_of(expression: str) -> frozenset[int] | None:
    if trimmed(expression) in ("", "*"):
        return None
    tags = [trimmed(tag) for tag in expression.split("||")]
    if not any(tags):
        raise DejamqError(f"tag expression {expression!r:.200} names no tag", code=Code.SUBSCRIPTION_PARSE_FAILED)
    return frozenset(java_hash(tag) for tag in tags if tag)


_kept = lru_cache(maxsize=1024)(_tags_of)
