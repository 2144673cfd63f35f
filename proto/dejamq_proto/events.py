"""The events of the journal: one struct each, the audit's schema is made from them.

Fields with one name have one type everywhere. Identity of a message: ``unique_keys`` (UNIQ_KEY), the place it is stored
(``broker_name``, ``topic``, ``queue_id``, queue offset) and, for one delivery, (``boot_id``, delivery id).
Meaning of each event: docs/journal.md. Source of the set: what it takes to attribute a duplicate with certainty.
"""

import msgspec

SCHEMA_VERSION = 1


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="event", tag=str.upper, gc=False):
    """Base of all events; the tag is the class name in upper case. Fields with one name have one type everywhere."""

    v: int = 0
    role: str = ""
    process: str = ""
    boot_id: str = ""
    seq: int = 0
    wall_us: int = 0
    mono_us: int = 0


class State(Event, tag="STATE"):
    """A step of a process's life: ``started``, ``closing``, ``closed``, ``suspended``, ``resumed``."""

    state: str
    group: str = ""
    client_id: str = ""
    reason: str = ""


class SendTry(Event, tag="SEND_TRY"):
    """A run leaves for a broker. (boot_id, request_seq) meets the broker's APPEND. ``tries`` counts from 1 a call."""

    request_seq: int
    broker_name: str
    address: str
    group: str
    topics: list[str]
    call_ids: list[int]
    tries: list[int]
    unique_keys: list[str]
    business_keys: list[str] = []


class SendResult(Event, tag="SEND_RESULT"):
    """How a run ended: ``outcome`` is ok, not_ok_status, refused, connection_lost, timeout or connect_failed."""

    request_seq: int
    outcome: str
    code: int = 0
    definite: bool = True
    reason: str = ""


class SendEnd(Event, tag="SEND_END"):
    """Calls that ended with an error for the caller."""

    call_ids: list[int]
    unique_keys: list[str]
    code: int
    definite: bool
    reason: str = ""


class Boot(Event, tag="BOOT"):
    """A broker opened its store; ``clean`` is false after a crash. ``address`` is the store host of its records."""

    broker_name: str
    broker_id: int
    address: str
    clean: bool
    log_min: int = 0
    log_max: int = 0


class Append(Event, tag="APPEND"):
    """Records entered the log. ``origin`` is client, sendback, schedule, …; ``origin_refs`` names each one's source."""

    origin: str
    broker_name: str
    topics: list[str]
    queue_ids: list[int]
    queue_index: list[int]
    """For each record, which (topic, queue id) of the two lists before it."""
    queue_offsets: list[int]
    log_offsets: list[int]
    unique_keys: list[str]
    client_id: str = ""
    client_boot_id: str = ""
    request_seq: int = 0
    group: str = ""
    origin_refs: list[str] = []
    reconsume_times: list[int] = []


class OffSet(Event, tag="OFF_SET"):
    """The broker's table of consumer offsets changed. ``by``: oneway, sync, piggyback, admin, load, …"""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    old: int
    new: int
    by: str
    client_id: str = ""
    client_boot_id: str = ""
    request_seq: int = 0


class OffGet(Event, tag="OFF_GET"):
    """The broker told a consumer where to begin. ``why``: table, default_zero, not_found."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    value: int
    why: str
    client_id: str = ""
    client_boot_id: str = ""
    request_seq: int = 0


class OffFlush(Event, tag="OFF_FLUSH"):
    """The offset table was written to its file."""

    broker_name: str
    digest: str
    entries: int


class OffLoad(Event, tag="OFF_LOAD"):
    """The offset table was read at start. ``source``: main, bak, none."""

    broker_name: str
    source: str
    digest: str
    entries: int


class ProgressFlush(Event, tag="PROGRESS_FLUSH"):
    """A broker service wrote its progress: ``service`` schedule, …; ``progress`` is its JSON."""

    broker_name: str
    service: str
    progress: str


class Member(Event, tag="MEMBER"):
    """``change`` is + or -; ``reason``: heartbeat, close, expire, unregister."""

    broker_name: str
    group: str
    client_id: str
    client_boot_id: str
    change: str
    reason: str


class MemberList(Event, tag="MEMBER_LIST"):
    """A broker told a consumer who is in its group: what it then allocated by."""

    broker_name: str
    group: str
    client_id: str
    client_boot_id: str
    members: list[str]
    request_seq: int = 0


class Lock(Event, tag="LOCK"):
    """A member asked a broker for the lock of a queue, or to keep it. ``owner`` had it before, ``age_ms`` old then."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    granted: bool
    owner: str = ""
    age_ms: int = 0
    request_seq: int = 0


class Unlock(Event, tag="UNLOCK"):
    """A lock is given back: at the consumer before it leaves, at the broker when it came.

    ``forced``: a handler of the queue may still run. ``granted`` is false where the lock was another member's or gone.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str = ""
    pq_id: int = 0
    granted: bool = True
    forced: bool = False
    owner: str = ""
    age_ms: int = 0
    request_seq: int = 0


class Claim(Event, tag="CLAIM"):
    """A member with graceful hand-over asked a broker for a queue, or to keep it.

    ``generation`` numbers the claims of a queue upwards, across starts of the broker; ``owner`` held it before,
    ``age_ms`` after it had asked last.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    granted: bool
    generation: int = 0
    owner: str = ""
    age_ms: int = 0
    request_seq: int = 0


class Release(Event, tag="RELEASE"):
    """An owner gave a queue back at a broker, drained, with the offset for the next owner (-1: none was told).

    ``granted`` is false where the claim was another member's by then: nothing was committed.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    granted: bool
    generation: int = 0
    value: int = -1
    request_seq: int = 0


class Pull(Event, tag="PULL"):
    """Records went to a consumer, or its offset was corrected (``code`` 21)."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    request_seq: int
    request_offset: int
    next_offset: int
    count: int
    code: int


class Route(Event, tag="ROUTE"):
    """A name server answered for a topic."""

    topic: str
    client_boot_id: str
    brokers: list[str]
    digest: str


class Broker(Event, tag="BROKER"):
    """A name server's view of a broker changed. ``reason``: register, unregister, channel_closed, expired."""

    broker_name: str
    broker_id: int
    address: str
    change: str
    reason: str


class Assign(Event, tag="ASSIGN"):
    """One round of allocation for one topic. ``queues`` are ``broker_name:queue_id``."""

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

    ``reason``: reassigned, shutdown, illegal, unsubscribed, resubscribed, pull_idle, lock_lost, claim_lost, seek.

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
    poll: a program polled these."""

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
    reconsume_times: list[int] = []
    origin_ids: list[str] = []
    """ORIGIN_MESSAGE_ID of retried messages, '' for others; empty when no message of the run is a retry."""
    business_keys: list[str] = []
    store_hosts: list[str] = []


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


class Gap(Event, tag="GAP"):
    """The process did not run for this long (a watchdog on the loop saw it)."""

    missing_ms: int


class Fault(Event, tag="FAULT"):
    """What a test or demo did to somebody: ``kind`` kill, pause, …"""

    kind: str
    target: str
    phase: str
    target_pid: int = 0


EVENTS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
