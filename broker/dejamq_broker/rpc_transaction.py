"""The Transaction service: how transactions end. It translates; ``Transactions`` decides."""

from typing import Any

import grpc.aio
from dejamq_proto import transaction_pb2 as pb
from dejamq_proto.transaction_pb2_grpc import TransactionServicer

from dejamq_broker.rpc_values import asker_of
from dejamq_broker.streams import Streams
from dejamq_broker.transactions import Ending, Transactions

Context = grpc.aio.ServicerContext[Any, Any]


class TransactionService(TransactionServicer):
    """RPC of producers of transactions; they send it oneway and read no answer."""

    def __init__(self, transactions: Transactions, streams: Streams) -> None:
        self._transactions, self._streams = transactions, streams

    async def EndTransaction(self, request: pb.EndTransactionRequest, _: Context) -> pb.EndTransactionResponse:
        """Refused with the codes of ``Transactions.end``."""
        with self._streams.running():
            self._transactions.end(Ending(
                group=request.group, half_queue_offset=request.half_queue_offset,
                half_log_offset=request.half_log_offset, state=request.state, from_check=request.from_check,
                asker=asker_of(request.caller),
            ))  # fmt: skip
        return pb.EndTransactionResponse()
