"""Tag expressions: ``a || b``, compared by hash. Source: RocketMQ ``FilterAPI``."""

from functools import lru_cache

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.record import java_hash


@lru_cache(maxsize=1024)
def tags_of(expression: str) -> frozenset[int] | None:
    """The hash codes that ``a || b`` selects, None for everything. Only hashes are compared: clients check the text.

    Raises SUBSCRIPTION_PARSE_FAILED for bars without a tag, which could never match.
    """
    if expression.strip() in ("", "*"):
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    if not any(tags):
        raise DejamqError(f"tag expression {expression!r} names no tag", code=Code.SUBSCRIPTION_PARSE_FAILED)
    return frozenset(java_hash(tag) for tag in tags if tag)
