"""Plans of clusters: a configuration for every server and client, with settings and time scale applied."""

import dataclasses
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dejamq.values.config import ConsumerConfig
from dejamq.values.producer_config import ProducerConfig
from dejamq_broker.base.config import ASYNC_MASTER, BrokerConfig
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import load, scaled, spellings
from dejamq_proto.journal.writer import Level
from dejamq_proto.names import MASTER_ID, check_topic

Config = TypeVar("Config")
LOG_FILE_SETTINGS = frozenset({"mapped_file_size_commit_log", "mappedFileSizeCommitLog"})
FAST_FAILURE_SETTINGS = frozenset({"broker_fast_failure_enable", "brokerFastFailureEnable"})
LOG_FILE_BYTES = 64 << 20
"""RocketMQ's 1 GiB, made twice by every broker, is too much for a test that stores a few messages."""
LOOPBACK = "127.0.0.1"
ALL = (NamesrvConfig, BrokerConfig, ProducerConfig, ConsumerConfig)


@dataclass(frozen=True)
class ClusterPlan:
    """Values only: nothing here starts anything. ``settings`` go to every server and client that has the setting."""

    directory: Path
    brokers: int = 1
    namesrvs: int = 1
    time_scale: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    journal_level: str = "forensic"
    slaves: int = 0
    """Of each broker."""
    host: str = LOOPBACK
    """Where servers listen; another address of 127.0.0.0/8 for each of several clusters keeps their ports apart."""

    def check(self) -> None:
        """Raise ConfigError for a cluster that cannot be."""
        if self.slaves < 0:
            raise ConfigError(f"slaves must be 0 or more, not {self.slaves}")
        if not 1 <= self.brokers <= len(string.ascii_lowercase) or self.namesrvs < 1:
            raise ConfigError("a cluster has 1 to 26 brokers and at least 1 name server")
        if self.time_scale <= 0:
            raise ConfigError(f"time_scale must be more than 0, not {self.time_scale}")
        if self.journal_level not in tuple(Level):
            raise ConfigError(f"journal_level is {', '.join(Level)}, not {self.journal_level!r}")
        self._check_topics()
        known = {name for config in ALL for name in spellings(config)}
        if unknown := sorted(set(self.settings) - known):
            raise ConfigError(f"no server or client has the setting {', '.join(map(repr, unknown))}")

    def _check_topics(self) -> None:
        """Before a broker is asked to make them. Also raises InvalidName."""
        topics: Any = self.topics  # whatever a program gave
        if not isinstance(topics, Mapping):
            example = "{'orders': 4}"
            raise ConfigError(f"topics are given with their queues at each broker, as {example}, not {topics!r}")
        for topic, queues in topics.items():
            check_topic(topic)
            if type(queues) is not int or queues < 1:
                raise ConfigError(f"topic {topic!r} has 1 queue or more at each broker, not {queues!r}")

    @property
    def journal_dir(self) -> Path:
        return self.directory / "journal"

    def namesrv_names(self) -> list[str]:
        return [f"namesrv-{number}" for number in range(self.namesrvs)]

    def broker_names(self) -> list[str]:
        return [f"broker-{letter}" for letter in string.ascii_lowercase[: self.brokers]]

    def slave_names(self) -> list[str]:
        """``broker-a-s1`` is slave 1 of ``broker-a``."""
        return [f"{name}-s{number}" for name in self.broker_names() for number in range(1, self.slaves + 1)]

    @property
    def failover(self) -> bool:
        """Whether replicas change their roles by themselves."""
        return self._config(BrokerConfig).failover_enable

    def namesrv(self, name: str, listen: str = "") -> NamesrvConfig:
        """``listen``: a free port of the host by default."""
        listen = listen or f"{self.host}:0"
        return self._config(NamesrvConfig, name=name, listen=listen, directory=str(self.directory / name))

    def broker(self, name: str, namesrv: str, listen: str = "") -> BrokerConfig:
        """Of a master, or of a slave by its name here. ``listen`` as above."""
        listen = listen or f"{self.host}:0"
        store = str(self.directory / name / "store")
        broker_name, broker_id = replica_of(name)
        config = self._config(
            BrokerConfig, broker_name=broker_name, broker_id=broker_id, listen=listen, namesrv=namesrv,
            store_directory=store,
        )  # fmt: skip
        if broker_id and not config.failover_enable:
            config = dataclasses.replace(config, broker_role=ASYNC_MASTER)  # whatever its master is
        own: dict[str, Any] = {}
        if LOG_FILE_SETTINGS.isdisjoint(self.settings):
            own["mapped_file_size_commit_log"] = LOG_FILE_BYTES
        if "disk_check_enable" not in self.settings:
            own["disk_check_enable"] = False  # a test means the same on a machine whose disk is nearly full
        if FAST_FAILURE_SETTINGS.isdisjoint(self.settings):
            # as above: on a machine that is busy with something else nothing is refused for coming late
            config = dataclasses.replace(config, broker_fast_failure_enable=False)
        return dataclasses.replace(config, store=dataclasses.replace(config.store, **own))

    def client(self, cls: type[Config], given: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of a client: scaled settings, then what its caller gives, which is not scaled.

        All of them are given, so that the environment has no say.
        """
        config = self._config(cls)
        every = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}  # type: ignore[arg-type]
        if "local_offset_store_dir" in every and every["local_offset_store_dir"] is None:
            every["local_offset_store_dir"] = str(
                self.directory / "offsets"
            )  # not in the home of the user who runs tests
        return {name: value for name, value in every.items() if name != "namesrv" and value is not None} | dict(given)

    def _config(self, cls: type[Config], **own: Any) -> Config:
        """The environment has no say: a test means what it says wherever it runs."""
        names = spellings(cls)
        chosen = {key: value for key, value in self.settings.items() if key in names}
        config = scaled(load(cls, env={}, overrides=chosen), self.time_scale)
        journal = {"journal_dir": str(self.journal_dir), "journal_level": self.journal_level}
        return dataclasses.replace(config, **journal, **own)  # type: ignore[type-var]  # all of them are dataclasses


def replica_of(name: str) -> tuple[str, int]:
    """Broker name and id of a broker by its name in the lab."""
    broker_name, mark, number = name.rpartition("-s")
    return (broker_name, int(number)) if mark and number.isdecimal() else (name, MASTER_ID)


def server_name(config: NamesrvConfig | BrokerConfig) -> str:
    """The lab's name for this server and for its folder."""
    if isinstance(config, NamesrvConfig):
        return config.name
    return f"{config.broker_name}-s{config.broker_id}" if config.broker_id else config.broker_name


def differing(config: Any) -> Iterator[tuple[str, Any]]:
    """The settings that are not at their default; settings of nested configurations keep their own names."""
    default = type(config)()
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from differing(value)
        elif value != getattr(default, item.name):
            yield item.name, value


def as_flags(config: Any) -> Sequence[str]:
    """``--set KEY=VALUE`` for everything that is not at its default."""
    pairs = ((key, str(value).lower() if isinstance(value, bool) else value) for key, value in differing(config))
    return [part for key, value in pairs for part in ("--set", f"{key}={value}")]


def broker_settings() -> dict[str, str]:
    """Every spelling of every setting of brokers, and our name of it."""
    return {spelling: path.rpartition(".")[2] for spelling, path in spellings(BrokerConfig).items()}
