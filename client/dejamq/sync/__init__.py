"""dejamq.sync: the clients of dejamq for scripts, notebooks and WSGI programs. The same names, and every call waits.

Messages, errors and answers of handlers are those of ``dejamq``. All clients of a process share one thread with an
event loop. Start them after a fork, in a worker and not in its master: in a child of a process that uses dejamq.sync
every call raises ForkedProcess.
"""

from dejamq.sync.admin import Admin
from dejamq.sync.inbox import Inbox
from dejamq.sync.lite_pull import LitePullConsumer
from dejamq.sync.producer import Producer
from dejamq.sync.push_consumer import PushConsumer
from dejamq.sync.runner import run

__all__ = ["Admin", "Inbox", "LitePullConsumer", "Producer", "PushConsumer", "run"]
