"""Which replica answers what: a consumer's next pull goes where its last answer said.

Source: RocketMQ ``PullMessageProcessor``, ``DefaultPullMessageResultHandler``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import MASTER_ID

from dejamq_broker.pull_rules import PullRules
from dejamq_broker.site import Site

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore


class ReplicaRules:
    """Owned by the event loop; it never waits."""

    def __init__(self, rules: PullRules, store: "MessageStore", site: Site) -> None:
        self._rules, self._store, self._slave = rules, store, not site.master
        self.master_there: Callable[[], bool] = lambda: False
        """Whether this slave's master is there, as far as the slave knows."""

    def admit(self) -> None:
        """Raise SYSTEM_BUSY at a slave that may not be read (RocketMQ: ``rejectRequest``)."""
        if self._slave and not self._rules.config.slave_read_enable:
            text = f"this is a slave of {self._rules.config.broker_name} that may not be read (slave_read_enable)"
            raise DejamqError(text, code=Code.SYSTEM_BUSY)

    def suggest(self, group: str, log_offset: int) -> int:
        """Where to pull next, after an answer that ended with the record at this log offset.

        Who is further behind than what is likely in memory reads from a slave, so that the master reads no old files.
        """
        found = self._rules.groups.get(group) if self._rules.config.slave_read_enable else None
        if found is None:
            return MASTER_ID
        return found.broker_id if self._store.in_memory(log_offset) else found.which_broker_when_consume_slowly

    def code(self, code: Code) -> Code:
        """What a slave answers instead where it found nothing.

        With its master there, that one is to be asked, at once. Without, the request waits here, also one outside this
        slave's queues, which may have less at either end than the master had: a correction would skip messages, or
        deliver them again. (RocketMQ's slave then has itself asked again and again.)
        """
        moved = code is Code.PULL_OFFSET_MOVED
        if not self._slave or not (moved or code is Code.PULL_NOT_FOUND):
            return code
        if moved and self._rules.config.offset_check_in_slave:
            return code
        return Code.PULL_RETRY_IMMEDIATELY if self.master_there() else Code.PULL_NOT_FOUND
