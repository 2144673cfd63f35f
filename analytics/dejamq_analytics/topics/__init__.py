"""Topics of RocketMQ and dejamq as a source of Spark, for batches and streams, over RocketMQ's remoting protocol.

``places`` is arithmetic of offsets, ``options`` reads what a program asks for, ``cluster`` asks the servers, and
``queue_reader`` gives the rows of a part of a queue. Spark owns the readers. Enter at ``source``.
"""

from dejamq_analytics.topics.source import RocketMQDataSource

__all__ = ["RocketMQDataSource"]
