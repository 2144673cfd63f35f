"""The topics: ``config/topics.json`` in RocketMQ's format, and the rule that makes a topic on first use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, InvalidName, PermissionDenied

from dejamq_broker.base import json_file
from dejamq_broker.base.data_version import TableVersion
from dejamq_broker.base.json_file import Int32
from dejamq_broker.base.table_file import TableFile
from dejamq_broker.store.files.paths import is_folder_name

DEFAULT_CLIENT_QUEUES = 4
MAX_QUEUES = 1024
"""Of one topic on one broker. RocketMQ sets no limit; here what is asked about all queues is answered in one step."""
MOST_QUEUES_IN_A_FILE = 65_536
"""A RocketMQ may have made it."""
READ_WRITE = names.PERM_READ | names.PERM_WRITE
SCHEDULE_QUEUES = 18
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"


class TopicConfig(msgspec.Struct, frozen=True, rename="camel"):
    """One topic as topics.json keeps it. ``perm`` adds 4 read, 2 write, 1 inherit (new topics may be made from it)."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, Any] = {}

    def check(self, name: str) -> None:
        """Raise ValueError for a row of a file that no broker has written: its name becomes that of a folder."""
        if name != self.topic_name:
            raise ValueError(f"under {name[:100]!a} is topic {self.topic_name[:100]!a}")
        if not is_folder_name(name):
            raise ValueError(f"a topic cannot have the name {name[:100]!a}")
        if not (min(self.read_queue_nums, self.write_queue_nums) >= 0 and self.queues <= MOST_QUEUES_IN_A_FILE):
            raise ValueError(f"topic {name} has {self.read_queue_nums} and {self.write_queue_nums} queues")

    @property
    def queues(self) -> int:
        """The number of queues for readers and writers together."""
        return max(self.read_queue_nums, self.write_queue_nums)


class TopicTable:
    """All topics by name. At every change ``on_change`` is called, and the file follows: see ``kept``.

    Owned by the event loop. RocketMQ: TopicConfigManager.
    """

    def __init__(self, path: Path, clock_ms: Callable[[], int], on_change: Callable[[], None]) -> None:
        self._path, self._clock_ms, self.on_change = path, clock_ms, on_change
        self._file = TableFile(path)
        self.kept = self._file.kept
        """Awaited before a client is told of a change."""
        self._topics: dict[str, TopicConfig] = {}
        self._own: frozenset[str] = frozenset()
        """Names of its cluster and its own that topics have, beside the ones of every broker."""
        self.perm_mask = READ_WRITE | names.PERM_INHERIT
        self.auto_create = True
        """Whether a first send makes its topic; a template in the file does not decide that by itself."""
        self.version = TableVersion(timestamp=clock_ms())

    def load(self) -> None:
        """Read the file. Raises UnreadableFile."""
        found = json_file.load_table(self._path, "topicConfigTable", TopicConfig)
        if found is not None:
            self._topics, self.version, _ = found

    def __iter__(self) -> Iterator[TopicConfig]:
        yield from self._topics.values()

    def get(self, topic: str) -> TopicConfig | None:
        """The topic as it is, None without one; makes nothing."""
        return self._topics.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """Raises TOPIC_NOT_EXIST."""
        config = self._topics.get(topic)
        if config is None:
            text = f"topic {topic!r} does not exist on this broker; create it, or send a first message to it"
            raise DejamqError(text, code=Code.TOPIC_NOT_EXIST)
        return config

    def ensure_system(self, auto_create_queues: int, cluster: str = "", broker_name: str = "") -> None:
        """Add what the broker itself needs. ``auto_create_queues`` 0 means that topics are not made on first use.

        ``cluster`` names the topic of replies. RocketMQ's tools look for a topic that is called as the cluster, and
        send to one that is called as the broker. A template that is there keeps its number of queues.
        """
        # two at least: a name server takes a single topic of an unknown broker for an increment and refuses it
        wanted = [
            TopicConfig(SELF_TEST_TOPIC, 1, 1),
            TopicConfig(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES, SCHEDULE_QUEUES),
        ]
        own = [TopicConfig(names.reply_topic(cluster), 1, 1)] if cluster else []
        own += [TopicConfig(name, 1, 1, READ_WRITE | names.PERM_INHERIT) for name in (cluster, broker_name) if name]
        self._own = frozenset(config.topic_name for config in own)
        wanted += own
        missing = [config for config in wanted if config.topic_name not in self._topics]
        if missing:
            self._put(missing)
        self.allow_auto_create(auto_create_queues)

    def allow_auto_create(self, queues: int) -> None:
        """Let first sends make topics, with this number of queues at most; 0: not any more.

        A template that is there stays.
        """
        self.auto_create = queues > 0
        if queues and names.AUTO_CREATE_TOPIC not in self._topics:
            self._put([TopicConfig(names.AUTO_CREATE_TOPIC, queues, queues, READ_WRITE | names.PERM_INHERIT)])

    def mask_permissions(self, perm: int) -> None:
        """Permissions that the broker as a whole does not give are taken from each topic's permission in the
        registration with name servers.

        It is all that RocketMQ does with ``brokerPermission`` for ordinary topics: clients obey the route, the broker
        itself does not refuse. Name servers get the new permissions at once, as after any change.
        """
        mask = READ_WRITE | names.PERM_INHERIT if perm & READ_WRITE == READ_WRITE else perm
        if mask == self.perm_mask:
            return
        self.perm_mask = mask
        self.version = self.version.next(self._clock_ms())
        self.on_change()

    def for_sending(self, topic: str, client_queues: int) -> TopicConfig:
        """The topic, made from TBW102 if need be with the smaller of both queue counts. Raises TOPIC_NOT_EXIST.

        RocketMQ: TopicConfigManager.createTopicInSendMessageMethod. A retry topic needs no template and gets
        one queue. Only the broker that a first send reaches makes the topic; clients see the others' route
        entry of TBW102 until then.
        """
        config = self._topics.get(topic)
        if config is not None:
            return config
        if topic.startswith(names.RETRY_PREFIX):
            return self.ensure(topic, 1)
        template = self._topics.get(names.AUTO_CREATE_TOPIC)
        if template is None or not (self.auto_create and template.perm & names.PERM_INHERIT):
            return self.require(topic)
        wanted = client_queues if client_queues > 0 else DEFAULT_CLIENT_QUEUES
        queues = min(wanted, template.write_queue_nums)
        return self.ensure(topic, queues, template.perm & ~names.PERM_INHERIT)

    def ensure(self, topic: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        """The topic, made with this shape if it is not there."""
        config = self._topics.get(topic)
        if config is None:
            config = TopicConfig(topic, queues, queues, perm)
            self._put([config])
        return config

    def ensure_each(self, queues: Mapping[str, int]) -> None:
        """Make those of these topics that are not there, with so many queues each, in one write."""
        missing = [TopicConfig(topic, number, number) for topic, number in queues.items() if topic not in self._topics]
        if missing:
            self._put(missing)

    def update(self, config: TopicConfig) -> None:
        """Create the topic or change its shape. Raises InvalidName, or INVALID_PARAMETER for impossible numbers.

        An unchanged topic is not written again, so that its version stays and name servers are not notified for
        nothing.
        """
        names.check_topic(config.topic_name)
        self._check_own(config.topic_name)
        for queues in (config.read_queue_nums, config.write_queue_nums):
            if not 1 <= queues <= MAX_QUEUES:
                raise InvalidName(f"a topic has 1 to {MAX_QUEUES} queues, not {queues}")
        if not 0 <= config.perm <= READ_WRITE | names.PERM_INHERIT:
            raise InvalidName(f"permission {config.perm} is not a sum of 4 (read), 2 (write) and 1 (inherit)")
        if self._topics.get(config.topic_name) != config:
            self._put([config])

    def change(self, topic: str, **changes: Any) -> TopicConfig:
        """Change these fields of a topic and leave its others. Raises TOPIC_NOT_EXIST, and as ``update``."""
        self.update(msgspec.structs.replace(self.require(topic), **changes))
        return self.require(topic)

    def delete(self, topic: str) -> bool:
        """Forget the topic; False when there was none. Raises InvalidName for one that the broker needs itself.

        Only the table is changed: queues and offsets are others'. Source: RocketMQ
        ``AdminBrokerProcessor.deleteTopic``.
        """
        self._check_own(topic)
        if topic not in self._topics:
            return False
        self._replace({name: config for name, config in self._topics.items() if name != topic})
        return True

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """A name server says that messages of these have an order.

        It is never taken back by its silence. Source: RocketMQ ``TopicConfigManager.updateOrderTopicConfig``.
        """
        known = [self._topics[topic] for topic in topics if topic in self._topics]
        changed = [msgspec.structs.replace(config, order=True) for config in known if not config.order]
        if changed:
            self._put(changed)

    def is_own(self, topic: str) -> bool:
        """Whether the broker keeps the topic for itself."""
        return names.is_system(topic) or topic in self._own

    def _check_own(self, topic: str) -> None:
        if self.is_own(topic):
            raise InvalidName(f"topic {topic!r} belongs to the broker itself, which needs it as it is")

    def _put(self, configs: list[TopicConfig]) -> None:
        self._replace(self._topics | {config.topic_name: config for config in configs})

    def content(self) -> dict[str, Any]:
        """As the file has it."""
        return _content(self._topics, self.version)

    def replace(self, topics: dict[str, TopicConfig], version: TableVersion) -> None:
        """Become a copy of another table, the version included: a slave's, of its master's."""
        self._file.write(lambda: _content(topics, version))
        self._topics, self.version = topics, version
        self.on_change()

    def _replace(self, topics: dict[str, TopicConfig]) -> None:
        """Registrations carry the new version."""
        self.replace(topics, self.version.next(self._clock_ms()))


def _content(topics: dict[str, TopicConfig], version: TableVersion) -> dict[str, Any]:
    table = {name: msgspec.to_builtins(config) for name, config in topics.items()}
    return {"dataVersion": msgspec.to_builtins(version), "topicConfigTable": table}


def check_queue(config: TopicConfig, queue_id: int) -> None:
    """Refuse a queue that neither readers nor writers of the topic have. Raises INVALID_PARAMETER.

    The larger of both counts decides, as in RocketMQ (AbstractSendMessageProcessor.msgCheck). A queue that is being
    taken out of use may still be written by clients with an old route.
    """
    if not 0 <= queue_id < config.queues:
        text = f"queue {queue_id} of topic {config.topic_name!r} does not exist; it has {config.queues} queues"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)


def check_readable(config: TopicConfig, queue_id: int) -> None:
    """The conditions of a pull. Raises PermissionDenied, or INVALID_PARAMETER for the queue id."""
    if not config.perm & names.PERM_READ:
        raise PermissionDenied(f"topic {config.topic_name!r} may not be read (permission {config.perm})")
    if not 0 <= queue_id < config.read_queue_nums:
        text = f"queue {queue_id} of topic {config.topic_name!r} does not exist; {config.read_queue_nums} can be read"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)
