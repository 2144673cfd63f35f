"""Clients that fit to a cluster: its addresses, its journal, its time scale."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dejamq_proto.codes import ConfigError

from dejamq_lab.cluster.plan import ClusterPlan

if TYPE_CHECKING:
    from dejamq import LitePullConsumer, Producer, PushConsumer, TransactionProducer

Member = TypeVar("Member", "PushConsumer", "LitePullConsumer")


class ClusterClients:
    """The part of ``Cluster`` that makes clients."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._broadcasting: weakref.WeakSet[PushConsumer | LitePullConsumer] = weakref.WeakSet()

    @property
    def namesrv(self) -> str:
        """``host:port;…`` of all name servers, as clients want it; empty before the start."""
        raise NotImplementedError

    def client_settings(self, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of a client: journal, time scale, and what is given. Kinds: those of actors."""
        from dejamq.values.config import FOR_HANDLERS, ConsumerConfig, LitePullConfig, SimpleConfig
        from dejamq.values.producer_config import ProducerConfig

        configs: dict[str, type[Any]] = {
            "producer": ProducerConfig, "push": ConsumerConfig, "lite": LitePullConfig, "pop": SimpleConfig,
            "v2-producer": ProducerConfig, "v2-push": SimpleConfig,
        }  # fmt: skip
        every = self._plan.client(configs[kind], given)
        unfit = FOR_HANDLERS if kind == "lite" else ()
        return {name: value for name, value in every.items() if name in given or name not in unfit}

    def producer(self, group: str, **settings: Any) -> "Producer":
        """A producer with the cluster's addresses, journal and time scale, not started. Keywords are its settings.

        Raises ConfigError before the cluster is started, as do the others.
        """
        from dejamq import Producer

        return Producer(group, namesrv=self._addresses(), **self.client_settings("producer", settings))

    def transaction_producer(self, group: str, *, checker: Any, **settings: Any) -> "TransactionProducer":
        """As ``producer``; keywords are its settings and arguments."""
        from dejamq import TransactionProducer
        from dejamq.values.producer_config import TransactionProducerConfig

        chosen = self._plan.client(TransactionProducerConfig, settings)
        return TransactionProducer(group, checker=checker, namesrv=self._addresses(), **chosen)

    def push_consumer(self, group: str, **settings: Any) -> "PushConsumer":
        """As ``producer``; keywords are its settings and arguments. Members that broadcast at the same time have
        different client ids, as on hosts of their own.
        """
        from dejamq import PushConsumer

        return self._member(PushConsumer, group, self.client_settings("push", settings))

    def lite_pull_consumer(self, group: str, **settings: Any) -> "LitePullConsumer":
        """As ``push_consumer``."""
        from dejamq import LitePullConsumer

        return self._member(LitePullConsumer, group, self.client_settings("lite", settings))

    def _member(self, cls: Callable[..., Member], group: str, settings: dict[str, Any]) -> Member:
        """A broadcasting member takes the first id that no open member of its group has.

        A member that starts after another one closed goes on from that file, as a restarted program does.
        """
        made = cls(group, namesrv=self._addresses(), **settings)
        usual = made.config.client_id
        if usual is None or "client_id" in settings:
            return made
        taken = {one.config.client_id for one in self._broadcasting if one.group == group and not one.closed}
        if usual in taken:
            free = next(name for number in range(2, len(taken) + 2) if (name := f"{usual}-{number}") not in taken)
            made = cls(group, namesrv=self._addresses(), **settings, client_id=free)
        self._broadcasting.add(made)
        return made

    def _addresses(self) -> str:
        if not self.namesrv:
            raise ConfigError("this cluster is not started: use `async with Cluster(…)`, or await start() first")
        return self.namesrv
