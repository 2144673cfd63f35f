"""Telling brokers how transactions ended: journal, hooks, and the call that nobody waits for."""

import logging

import msgspec
from dejamq_proto.journal.events import Tx
from dejamq_proto.transaction_pb2 import EndTransactionRequest

from dejamq.net.broker import BrokerLink
from dejamq.net.instance import Instance
from dejamq.receiving.received import ReceivedMessage
from dejamq.transactions.hooks import EndTransactionContext, EndTransactionHooks
from dejamq.transactions.states import TransactionVerdict
from dejamq.values.message import Message
from dejamq.values.namespace import unwrap

log = logging.getLogger("dejamq")


class Half(msgspec.Struct, frozen=True):
    """A half message by both of its places at its broker. ``message`` is what the program knows of it."""

    message: Message | ReceivedMessage
    broker_name: str
    queue_offset: int
    log_offset: int
    from_check: bool = False


class TransactionEnds:
    """Owned by the event loop. Source: RocketMQ ``DefaultMQProducerImpl.endTransaction``.

    One call, oneway and never repeated: when it is lost, the broker asks.
    """

    def __init__(self, instance: Instance, group: str, timeout_ms: float, hooks: EndTransactionHooks) -> None:
        self._instance, self._group, self._timeout_ms, self._hooks = instance, group, timeout_ms, hooks

    def tell(self, half: Half, verdict: TransactionVerdict, link: BrokerLink | None = None) -> None:
        """Send it, to the broker that asked or else to the one that has the half message. Never raises.

        The journal's line stands before the call leaves; one that cannot leave has no line.
        """
        if link is None:
            address = self._instance.routes.master_address(half.broker_name)
            link = None if address is None else self._instance.link(address)
        if link is None or self._instance.closed:
            why = "the producer is closed" if link is not None else "no route names its broker"
            log.warning("transaction_end_not_sent message=%s: %s; the broker asks", half.message.message_id, why)
            return
        if verdict.error is not None:
            what = "checker" if half.from_check else "execute"
            log.warning("transaction_unknown message=%s: %s %s", half.message.message_id, what, verdict.reason)
        seq = self._instance.next_seq()
        self._journal(half, verdict, seq)
        outside = unwrap(self._instance.config.namespace, self._group)
        context = EndTransactionContext(outside, half.message, link.address, verdict.state, half.from_check)
        self._hooks.call(context)
        request = EndTransactionRequest(
            caller=self._instance.caller(seq), group=self._group, half_queue_offset=half.queue_offset,
            half_log_offset=half.log_offset, state=verdict.state.value, from_check=half.from_check,
            message_id=half.message.message_id,
        )  # fmt: skip
        link.end_transaction_oneway(request, timeout_ms=self._timeout_ms)

    def _journal(self, half: Half, verdict: TransactionVerdict, seq: int) -> None:
        if not self._instance.journal.on:
            return
        self._instance.journal.write(Tx(
            group=self._group, broker_name=half.broker_name, unique_key=half.message.message_id,
            half_queue_offset=half.queue_offset, half_log_offset=half.log_offset, state=verdict.state.name.lower(),
            from_check=half.from_check, request_seq=seq, reason=verdict.reason,
        ))  # fmt: skip
