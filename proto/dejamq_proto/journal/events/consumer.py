"""Lines of a consumer on queues it owned, and on messages it was given, handled, committed and sent back."""

from dejamq_proto.journal.events.base import Event


class Assign(Event, tag="ASSIGN"):
    """One round of allocation for one topic. ``queues`` are ``broker_name:queue_id``.

    Rounds with one ``route_digest`` shared out the same queues; ``broker_name`` told who the members are.
    """

    group: str
    topic: str
    client_id: str
    round: int
    namesrv: str
    route_digest: str
    broker_name: str
    members: list[str]
    strategy: str
    queues: list[str]


class PqOpen(Event, tag="PQ_OPEN"):
    """A process queue begins. ``pq_id`` is unique in the process.

    ``source``: broker, first, last, timestamp; of lite pull also seek, illegal; of a broadcasting member local,
    local_first, local_last, …
    """

    pq_id: int
    group: str
    topic: str
    broker_name: str
    queue_id: int
    client_id: str
    start_offset: int
    source: str
    generation: int = 0
    """Of the claim it was opened with; 0 without graceful hand-over."""


class PqDrop(Event, tag="PQ_DROP"):
    """It ends.

    ``reason``: reassigned, shutdown, illegal, reset, unsubscribed, resubscribed, pull_idle, lock_lost, claim_lost,
    seek.

    ``in_flight`` handlers still run.
    """

    pq_id: int
    group: str
    topic: str
    broker_name: str
    queue_id: int
    reason: str
    mem_off: int
    in_flight: int


class Handout(Event, tag="HANDOUT"):
    """A run reached the process queue, not yet a handler."""

    pq_id: int
    group: str
    topic: str
    broker_name: str
    queue_id: int
    first_offset: int
    last_offset: int
    count: int


class Deliver(Event, tag="DELIVER"):
    """A handler was entered with these messages. ``kind``: first, local_retry, suspend_retry, direct;
    poll: a program polled these. A direct one is of no process queue: its ``pq_id`` is 0.
    """

    pq_id: int
    group: str
    topic: str
    broker_name: str
    queue_id: int
    client_id: str
    delivery_ids: list[int]
    queue_offsets: list[int]
    log_offsets: list[int]
    unique_keys: list[str]
    kind: str = "first"
    batch_id: int = 0
    """Not 0: a handler of lists got them, or a poll, all at once, or, with ``batch_sizes``, the first of them."""
    batch_sizes: list[int] = []
    """Messages of each batch, where the line tells of several; their ids count on from ``batch_id``."""
    reconsume_times: list[int] = []
    origin_ids: list[str] = []
    """ORIGIN_MESSAGE_ID of retried messages, '' for others; empty when no message of the run is a retry."""
    business_keys: list[str] = []
    store_hosts: list[str] = []
    """``address:port`` of the broker that stored each; a single one counts for all."""

    def store_host(self, index: int) -> str:
        """Of one message; empty where the line does not say."""
        if len(self.store_hosts) == 1:
            return self.store_hosts[0]
        return self.store_hosts[index] if self.store_hosts else ""


class Result(Event, tag="RESULT"):
    """Handlers ended. ``status``: success, reconsume, exception, timeout, wrong_value, cancelled; in order also
    suspend, rollback, and uncommitted for what a later COMMIT or ROLLBACK decides.

    ``mem_off`` is the low-water mark of the process queue after this result was applied; when ``pq_dropped`` the result
    was thrown away.
    """

    pq_id: int
    group: str
    topic: str
    broker_name: str
    queue_id: int
    delivery_ids: list[int]
    queue_offsets: list[int]
    status: str
    mem_off: int
    pq_dropped: bool = False
    reason: str = ""


class Persist(Event, tag="PERSIST"):
    """An offset leaves for a broker, or for a broadcasting member's file (without ``request_seq``).

    ``reason``: timer, piggyback, drop, shutdown, illegal, release; lite: a program of lite pull said so.
    """

    pq_id: int
    group: str
    topic: str
    broker_name: str
    queue_id: int
    value: int
    reason: str
    request_seq: int = 0
    outcome: str = "sent"


class Sendback(Event, tag="SENDBACK"):
    """A failed message asks for its retry. ``path``: rpc, fallback, local; ``outcome``: ok, failed, indefinite.

    ``reason`` says why not; ``expired`` for a message that was given back while its handler still ran. In a
    broadcasting group nothing is asked: path none, outcome dropped.
    """

    delivery_ids: list[int]
    group: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offsets: list[int]
    unique_keys: list[str]
    path: str
    outcome: str
    request_seq: int = 0
    reason: str = ""
