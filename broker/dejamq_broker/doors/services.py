"""The doors of a broker: its gRPC services, each made of the parts of the domain that it translates for."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import grpc.aio
from dejamq_proto.access.guard import Guard
from dejamq_proto.admin_pb2_grpc import add_AdminServicer_to_server
from dejamq_proto.client_pb2_grpc import add_ClientServicer_to_server, add_HandoverServicer_to_server
from dejamq_proto.dead_letters_pb2_grpc import add_DeadLettersServicer_to_server
from dejamq_proto.fast_pb2_grpc import add_FastServicer_to_server
from dejamq_proto.pop_pb2_grpc import add_PopServicer_to_server
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.running_pb2_grpc import add_RunningServicer_to_server
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.serving.refusals import MAX_REQUEST_BYTES
from dejamq_proto.serving.remoting import RemotingDoor
from dejamq_proto.serving.server import Server
from dejamq_proto.transaction_pb2_grpc import add_TransactionServicer_to_server
from dejamq_proto.v2 import methods
from dejamq_proto.wire.framed import Frame

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site
from dejamq_broker.base.streams import Streams
from dejamq_broker.domain import Domain, Measures, Members, Paths, Services
from dejamq_broker.doors.fast.listener import FastDoor, Method
from dejamq_broker.doors.remoting.assignments import Assigning
from dejamq_broker.doors.remoting.door import remoting_door
from dejamq_broker.doors.remoting.members import Memberships
from dejamq_broker.doors.remoting.namesrv import KnownQueues
from dejamq_broker.doors.remoting.operators import Changes, Views
from dejamq_broker.doors.remoting.pop import Popping
from dejamq_broker.doors.remoting.pull import Pulling
from dejamq_broker.doors.remoting.queries import Queries
from dejamq_broker.doors.remoting.send import Sending
from dejamq_broker.doors.remoting.session import ClientSession
from dejamq_broker.doors.remoting.upkeep import UpkeepRequests
from dejamq_broker.doors.v1.admin import AdminService
from dejamq_broker.doors.v1.client import ClientService
from dejamq_broker.doors.v1.pop import PopService
from dejamq_broker.doors.v1.pull import PullService
from dejamq_broker.doors.v1.replication import ReplicationService
from dejamq_broker.doors.v1.running import RunningService
from dejamq_broker.doors.v1.send import SendService
from dejamq_broker.doors.v1.small_services import DeadLettersService, HandoverService, TransactionService
from dejamq_broker.doors.v2.door import V2Door
from dejamq_broker.operators.queries import Inspector
from dejamq_broker.paths.commits import Commits
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.replication.slave_progress import HaStatus
from dejamq_broker.store import MessageStore
from dejamq_broker.table_set import Tables
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.writing.fast_failure import FastFailure

SERVICES = (
    "dejamq.v1.Send", "dejamq.v1.Pull", "dejamq.v1.Client", "dejamq.v1.Handover", "dejamq.v1.Admin",
    "dejamq.v1.DeadLetters", "dejamq.v1.Running", "dejamq.v1.Transaction", "dejamq.v1.Replication",
    "dejamq.v1.Fast", "dejamq.v1.Pop", methods.SERVICE,
)  # fmt: skip


class Doors(NamedTuple):
    """The doors beside gRPC's, and the one of gRPC's that has work of its own."""

    fast: FastDoor
    remoting: RemotingDoor[ClientSession]
    v2: V2Door


def add_services(
    public: Server, domain: Domain, *, told: Callable[[], Awaitable[None]],
    replication: Callable[[], dict[str, str]], ha_status: Callable[[], HaStatus], routes: KnownQueues,
) -> Doors:  # fmt: skip
    """Open every door of the broker at this server, which does not listen yet; those beside gRPC's are returned.

    ``told`` waits until name servers know the topics as they are now; an operator is told when they are on disk too.
    ``replication`` and ``ha_status``: how it stands
    with it. ``routes``: what name servers know.
    """
    server, acceptor = public.grpc, public.acceptor

    async def kept() -> None:
        await domain.tables.kept()
        domain.writer.confirm()

    async def kept_and_told() -> None:
        await domain.tables.kept()
        await told()
        domain.writer.confirm()

    fast = _add_paths(
        server, domain.config, domain.site, domain.paths, domain.tables, domain.streams, domain.fast_failure,
        domain.long_poll, domain.services.recalls, acceptor, public.guard,
    )  # fmt: skip
    _add_members(
        server, domain.config, domain.store, domain.tables, domain.members, domain.streams, domain.paths.commits,
        acceptor, public.guard,
    )  # fmt: skip
    pops = PopService(domain.popping.pops, domain.popping.held, domain.streams, longest_hold_ms(domain.config))
    add_PopServicer_to_server(pops, server)
    inspector = Inspector(
        domain.store, domain.tables.offsets, domain.members.clients, domain.site, domain.clock_ms,
        measured=domain.measures.runtime.values, replication=replication,
    )  # fmt: skip
    _add_operators(
        server,
        domain.site,
        domain.tables,
        domain.members,
        domain.services,
        domain.measures,
        inspector,
        told=kept_and_told,
        kept=kept,
    )
    v2 = V2Door(domain, acceptor, told, longest_hold_ms(domain.config), public.guard)
    server.add_generic_rpc_handlers((v2.handler(),))
    remoting = _remoting(domain, inspector, told, kept_and_told, kept, ha_status, routes)
    remoting.guard = public.guard
    return Doors(fast, remoting, v2)


def _remoting(
    domain: Domain, inspector: Inspector, told: Callable[[], Awaitable[None]],
    kept_and_told: Callable[[], Awaitable[None]], kept: Callable[[], Awaitable[None]],
    ha_status: Callable[[], HaStatus], routes: KnownQueues,
) -> RemotingDoor[ClientSession]:  # fmt: skip
    """For RocketMQ's own clients and tools."""
    paths, members, tables, config = domain.paths, domain.members, domain.tables, domain.config
    services = domain.services
    return remoting_door(
        Sending(
            paths.sender, paths.confirmation, paths.transactions, services.recalls, domain.fast_failure, domain.site
        ),
        Pulling(paths.puller, domain.long_poll, longest_hold_ms(config)),
        Popping(domain.popping.pops, domain.popping.held, domain.site.broker_name, longest_hold_ms(config)),
        Memberships(
            members.clients, members.locks, paths.pull_rules.filters, tables.offsets, paths.commits,
            domain.store, domain.site,
        ),
        Queries(inspector, members.commands, members.clients, domain.site),
        Changes(
            domain.site, tables.topics, tables.groups, services.lives, services.moves, services.settings,
            kept_and_told, kept,
        ),
        Views(
            domain.site, domain.store, tables.topics, tables.groups, tables.offsets, tables.progress, members.clients,
            services.moves, services.settings, inspector, domain.measures.stats, domain.clock_ms,
        ),
        UpkeepRequests(
            domain.site, domain.store, services.lives, paths.transactions, inspector, members.clients, ha_status,
        ),
        Assigning(
            members.clients, tables.topics, tables.groups, tables.request_modes, routes, domain.site, config, kept
        ),
        clients=members.clients, commands=members.commands, long_poll=domain.long_poll,
        held=domain.popping.held, topics=tables.topics,
        told=told,
    )  # fmt: skip


def longest_hold_ms(config: BrokerConfig) -> int | None:
    """How long a pull may be held; None: clients decide."""
    return None if config.long_polling_enable else config.short_polling_time_ms


def _add_paths(
    server: grpc.aio.Server, config: BrokerConfig, site: Site, paths: Paths, tables: Tables, streams: Streams,
    fast_failure: FastFailure, long_poll: LongPoll, recalls: Recalls, acceptor: Acceptor, guard: Guard | None,
) -> FastDoor:  # fmt: skip
    """For producers, consumers and slaves: the services by which messages come and go."""
    sends = SendService(paths.sender, paths.confirmation, recalls, streams, fast_failure, acceptor, guard)
    pulls = PullService(
        paths.puller, paths.pull_rules.filters, long_poll, streams, longest_hold_ms(config), guard, acceptor
    )
    copies = ReplicationService(paths.replication, tables.copied)
    server.add_generic_rpc_handlers((sends.handlers(), pulls.handlers(), copies.handlers()))
    add_TransactionServicer_to_server(TransactionService(paths.transactions, streams), server)
    fast = FastDoor(site, {
        f"/{sends.name}/SendStream": Method(sends.SendStream),
        f"/{pulls.name}/PullStream": Method(pulls.PullStream, _pull_request, MAX_REQUEST_BYTES),
    }, acceptor, guard)  # fmt: skip
    add_FastServicer_to_server(fast, server)
    return fast


def _add_members(
    server: grpc.aio.Server, config: BrokerConfig, store: MessageStore, tables: Tables, members: Members,
    streams: Streams, commits: Commits, acceptor: Acceptor, guard: Guard | None,
) -> None:  # fmt: skip
    """For clients as members of groups."""
    clients = ClientService(
        members.clients, streams, store, tables.topics, commits, tables.offsets, members.locks, acceptor,
        backlog_bytes=config.channel_backlog_bytes, guard=guard,
    )  # fmt: skip
    add_ClientServicer_to_server(clients, server)
    add_HandoverServicer_to_server(HandoverService(members.handovers), server)


def _add_operators(
    server: grpc.aio.Server, site: Site, tables: Tables, members: Members, services: Services, measures: Measures,
    inspector: Inspector, *, told: Callable[[], Awaitable[None]], kept: Callable[[], Awaitable[None]],
) -> None:  # fmt: skip
    """For operators, who look at everything but the ways of messages."""
    admin = AdminService(
        site, tables.topics, tables.groups, members.clients, services.lives, services.moves, services.settings,
        inspector=inspector, told=told, kept=kept,
    )  # fmt: skip
    add_AdminServicer_to_server(admin, server)
    add_DeadLettersServicer_to_server(DeadLettersService(services.dead_letters, site), server)
    running = RunningService(members.commands, inspector, measures.stats, site.broker_name)
    add_RunningServicer_to_server(running, server)


def _pull_request(frame: Frame) -> PullRequest:
    return PullRequest.FromString(bytes(frame))
