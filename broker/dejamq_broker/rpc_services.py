"""The doors of a broker: its gRPC services, each made of the parts of the domain that it translates for."""

from typing import TYPE_CHECKING

import grpc.aio
from dejamq_proto.admin_pb2_grpc import add_AdminServicer_to_server
from dejamq_proto.client_pb2_grpc import add_ClientServicer_to_server, add_HandoverServicer_to_server
from dejamq_proto.dead_letters_pb2_grpc import add_DeadLettersServicer_to_server
from dejamq_proto.fast_pb2_grpc import add_FastServicer_to_server
from dejamq_proto.framed import Frame
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.refusals import MAX_REQUEST_BYTES
from dejamq_proto.running_pb2_grpc import add_RunningServicer_to_server
from dejamq_proto.transaction_pb2_grpc import add_TransactionServicer_to_server

from dejamq_broker.inspect import Inspector
from dejamq_broker.rpc_admin import AdminService
from dejamq_broker.rpc_client import ClientService
from dejamq_broker.rpc_dead_letters import DeadLettersService
from dejamq_broker.rpc_fast import FastDoor, Method
from dejamq_broker.rpc_ha import ReplicationService
from dejamq_broker.rpc_handover import HandoverService
from dejamq_broker.rpc_pull import PullService
from dejamq_broker.rpc_running import RunningService
from dejamq_broker.rpc_send import SendService
from dejamq_broker.rpc_transaction import TransactionService

if TYPE_CHECKING:
    from dejamq_broker.domain import Domain

SERVICES = (
    "dejamq.v1.Send", "dejamq.v1.Pull", "dejamq.v1.Client", "dejamq.v1.Handover", "dejamq.v1.Admin",
    "dejamq.v1.DeadLetters", "dejamq.v1.Running", "dejamq.v1.Transaction", "dejamq.v1.Replication",
    "dejamq.v1.Fast",
)  # fmt: skip


def add_services(server: grpc.aio.Server, domain: "Domain") -> FastDoor:
    """Open every door of the broker at this server, which does not listen yet; the one beside it is returned."""
    config, streams = domain.config, domain.streams
    sends = SendService(domain.sender, domain.retries, streams, domain.fast_failure, config.sync_flush_timeout_ms)
    longest_hold_ms = None if config.long_polling_enable else config.short_polling_time_ms
    domain.long_poll.most = config.max_held_pulls
    pulls = PullService(domain.puller, domain.pull_rules.filters, domain.long_poll, streams, longest_hold_ms)
    copies = ReplicationService(domain.replication, domain.tables)
    server.add_generic_rpc_handlers((sends.handlers(), pulls.handlers(), copies.handlers()))
    clients = ClientService(
        domain.clients, streams, domain.store, domain.topics, domain.groups, domain.offsets, domain.locks,
        backlog_bytes=config.channel_backlog_bytes,
    )  # fmt: skip
    add_ClientServicer_to_server(clients, server)
    add_HandoverServicer_to_server(HandoverService(domain.handovers), server)
    inspector = Inspector(domain.store, domain.offsets, domain.clients, domain.site, domain.clock_ms)
    inspector.more = lambda: domain.ha_info()
    add_AdminServicer_to_server(AdminService(domain, inspector), server)
    add_DeadLettersServicer_to_server(DeadLettersService(domain.dead_letters, domain.site), server)
    inspector.measured = domain.runtime.values
    running = RunningService(domain.commands, inspector, domain.stats, config.broker_name)
    add_RunningServicer_to_server(running, server)
    add_TransactionServicer_to_server(TransactionService(domain.transactions, streams), server)
    fast = FastDoor(domain.site, {
        f"/{sends.name}/SendStream": Method(sends.SendStream),
        f"/{pulls.name}/PullStream": Method(pulls.PullStream, _pull_request, MAX_REQUEST_BYTES),
    })  # fmt: skip
    add_FastServicer_to_server(fast, server)
    return fast


def _pull_request(frame: Frame) -> PullRequest:
    return PullRequest.FromString(bytes(frame))
