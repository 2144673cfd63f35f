"""Filters of a consumer on a topic: tag expressions and SQL92 expressions. Pure: text in, a decision out.

``filters.sql`` is not imported here: its parser takes a tenth of a second, and most brokers see no such filter.

The pull path owns what it read of each subscription. Enter at ``chosen``.
"""

from dejamq_broker.filters.tags import tags_of

__all__ = ["tags_of"]
