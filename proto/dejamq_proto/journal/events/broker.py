"""Lines of a broker on records that it stored and handed out, and on offsets, members, locks and claims."""

from dejamq_proto.journal.events.base import Event


class Boot(Event, tag="BOOT"):
    """A broker opened its store; ``clean`` is false after a crash. ``address`` is the store host of its records.

    ``delay_levels_ms`` are the delays of levels 1, 2, … as this start has them.
    """

    broker_name: str
    broker_id: int
    address: str
    clean: bool
    log_min: int = 0
    log_max: int = 0
    delay_levels_ms: list[int] = []


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


class Repeat(Event, tag="REPEAT"):
    """Messages were sent again, and nothing of them was stored, because their ids are known (DEDUP_ID, DEDUP_BY).

    ``unique_keys`` are those of the messages that came. The first ones are ``first_unique_keys``, in these queues and
    at these places. ``queue_index`` says which of ``topics`` each was sent to.
    """

    broker_name: str
    topics: list[str]
    queue_ids: list[int]
    queue_index: list[int]
    queue_offsets: list[int]
    log_offsets: list[int]
    unique_keys: list[str]
    first_unique_keys: list[str]
    client_id: str = ""
    client_boot_id: str = ""
    request_seq: int = 0
    group: str = ""


class OffSet(Event, tag="OFF_SET"):
    """The broker's table of consumer offsets changed.

    ``by``: oneway, sync, piggyback, release; reset, clone, delete (``new`` -1) when an operator did it; slave-sync when
    a slave took its master's.
    """

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


class OffIgnored(Event, tag="OFF_IGNORED"):
    """A client's commit changed nothing. ``why``: reset (one is pending), lower (this broker refuses those), released.

    ``old`` is what the table has and keeps, -1 for nothing.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    old: int
    value: int
    by: str
    why: str
    client_id: str = ""
    client_boot_id: str = ""
    request_seq: int = 0


class OffGet(Event, tag="OFF_GET"):
    """The broker's answer to a consumer on where to begin. ``why``: table, reset, default_zero, not_found."""

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
    """The offset table was read at start. ``source``: main, bak, none.

    A broadcasting member reads its own: then ``broker_name`` is '' and ``file`` says where it is.
    """

    broker_name: str
    source: str
    digest: str
    entries: int
    file: str = ""


class ProgressFlush(Event, tag="PROGRESS_FLUSH"):
    """A broker service wrote its progress: ``service`` schedule, …; ``progress`` is its JSON."""

    broker_name: str
    service: str
    progress: str


class ProgressLoad(Event, tag="PROGRESS_LOAD"):
    """It read that progress when it started. ``source``: main, bak, none."""

    broker_name: str
    service: str
    source: str
    progress: str


class MemberEvent(Event, tag="MEMBER"):
    """``change`` is + or -; ``reason``: heartbeat, close, expire, unregister."""

    broker_name: str
    group: str
    client_id: str
    client_boot_id: str
    change: str
    reason: str


class ClientClash(Event, tag="CLIENT_CLASH"):
    """One client id is used by several processes, or connections that do not say whose they are, in one group.

    ``member_role`` is producer or consumer; one line when it begins.
    """

    broker_name: str
    group: str
    client_id: str
    member_role: str
    boot_ids: list[str]
    addresses: list[str]


class MemberList(Event, tag="MEMBER_LIST"):
    """A broker told a consumer the members of its group: it then allocated by them."""

    broker_name: str
    group: str
    client_id: str
    client_boot_id: str
    members: list[str]
    request_seq: int = 0


class Lock(Event, tag="LOCK"):
    """A member asked a broker for the lock of a queue, or to keep it. ``owner`` had it before, ``age_ms`` old then.

    Another member gets the granted queue at the earliest after ``life_ms``.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    client_id: str
    client_boot_id: str
    granted: bool
    owner: str = ""
    age_ms: int = 0
    life_ms: int = 0
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


class ClaimEvent(Event, tag="CLAIM"):
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


class ReleaseEvent(Event, tag="RELEASE"):
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
