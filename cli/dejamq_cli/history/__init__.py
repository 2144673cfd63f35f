"""The life of one message, told from the journals alone: ``dejamq message history``.

``files`` reads lines, ``search`` finds the lines about the message, and ``trace`` holds them. ``telling`` puts them in
order and names the evidence that the journals lack. ``words`` makes sentences, and ``show`` prints all of it. Spark is
not used: the lines are read twice, one after the other, and only lines that may matter are decoded
(``benchmarks/history.py``).

One run of the command owns all of it. Enter at ``search``.
"""
