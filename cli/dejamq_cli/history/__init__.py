"""The life of one message, told from the journals alone: ``dejamq message history``.

``files`` reads lines, ``search`` finds those that speak of the message, ``trace`` is what was found, ``telling`` puts
it in order and ``words`` into words, ``missing`` says what the journals do not say, ``show`` prints it. No Spark: the
lines are read one after the other, twice, and only those that may matter are decoded (``benchmarks/history.py``).
"""
