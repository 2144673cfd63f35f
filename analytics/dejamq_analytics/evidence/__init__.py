"""Evidence from clusters that know nothing of dejamq: RocketMQ's logs, trace topic, offset files, polled answers.

Each reader makes ``Mark`` objects of one kind of file. ``clients``, ``sends`` and ``brokers`` make journal events of
the marks of one process, each with its file and line. Then the audit goes on as with journals.
Enter at ``translate``.
"""
