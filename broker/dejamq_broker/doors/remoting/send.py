"""Sends, send-backs and ends of transactions: headers and bodies become runs of records, results become answers.

Source: RocketMQ ``SendMessageProcessor``, ``ReplyMessageProcessor``, ``EndTransactionProcessor``.
"""

from collections.abc import Mapping

import numpy as np
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, MessageTooLarge
from dejamq_proto.records.hosts import offset_message_id
from dejamq_proto.records.record import (
    MAX_PROPERTIES_SIZE,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    BadRecord,
    Outgoing,
    decode_properties,
    encode_properties,
    tags_code,
)
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.batches import Element, elements
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import SendMessage
from dejamq_proto.serving.remoting import Answered
from dejamq_proto.wire.messages import SendRun, SendRunResult

from dejamq_broker.base.identity import Site
from dejamq_broker.deferred.retry import GivenBack
from dejamq_broker.deferred.transactions.service import Ending, Transactions
from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.doors.remoting.traceable import TRACEABLE
from dejamq_broker.paths.confirmation import Confirmation
from dejamq_broker.paths.repeats import log_offsets
from dejamq_broker.paths.send import SendOutcome, SendPath
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.writing.fast_failure import FastFailure

STORED = (Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.FLUSH_SLAVE_TIMEOUT)
"""Answers that say where the message is."""
REWRITTEN = (names.PROPERTY_DELAY, names.PROPERTY_TRANSACTION, *names.ASKING_FOR_A_TIME)
"""Messages with one of these are stored in another form than they come in."""
KEPT_FLAGS = SYS_COMPRESSED | SYS_COMPRESSION_MASK
"""Bits of a client's sys flag that a record keeps: transactions are begun by a property, hosts are the broker's."""


class Sending:
    """Owned by the event loop."""

    def __init__(
        self, sender: SendPath, confirmation: Confirmation, transactions: Transactions, recalls: Recalls,
        fast: FastFailure, site: Site,
    ) -> None:  # fmt: skip
        self._sender, self._confirmation, self._transactions = sender, confirmation, transactions
        self._recalls = recalls
        self._fast, self._site = fast, site

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        table = (
            (requests.SEND_MESSAGE, self._send), (requests.SEND_MESSAGE_V2, self._send),
            (requests.SEND_BATCH_MESSAGE, self._send), (requests.SEND_REPLY_MESSAGE, self._send),
            (requests.SEND_REPLY_MESSAGE_V2, self._send), (requests.SEND_BACK, self._send_back),
            (requests.END_TRANSACTION, self._end_transaction), (requests.RECALL_MESSAGE, self._recall),
        )  # fmt: skip
        return {request.code: handler for request, handler in table}

    def _send(self, client: ClientSession, command: Command) -> Answered:
        """One message or a batch. Answered at once, unless disk or slaves have to confirm it."""
        request = SENDS[command.code]
        header = request.read(command)
        self._fast.check_room()
        run = run_of(header, command, self._site.cluster, reply=request in REPLIES)
        run.dedup &= self._sender.knows_repeats
        run.client_id, run.boot_id, run.seq = client.asker(command)
        outcome = self._sender.accept(run, client.born_host)
        if self._confirmation.needed(outcome):
            return self._confirmed(command, header, run, outcome)
        return self._answer(command, header, run, outcome.result)

    async def _confirmed(self, command: Command, header: SendMessage, run: SendRun, outcome: SendOutcome) -> Command:
        self._fast.waiting += 1
        try:
            return self._answer(command, header, run, await self._confirmation.of(outcome))
        finally:
            self._fast.waiting -= 1

    def _answer(self, command: Command, header: SendMessage, run: SendRun, result: SendRunResult) -> Command:
        if result.code not in STORED:
            return answer(command, result.code, result.remark)
        queue_id = int(result.queue_ids[0]) if len(result.queue_ids) else header.queue_id
        places = log_offsets(run.sizes, result).tolist()
        ids = ",".join(offset_message_id(self._site.store_host, at) for at in places)
        key = decode_properties(header.properties.encode()).get(names.PROPERTY_UNIQUE_KEY)
        timed = key and len(run.sizes) == 1 and len(result.timer_out_ms) and int(result.timer_out_ms[0])
        fields = requests.MessageSent(
            msg_id=ids, queue_id=queue_id, queue_offset=int(result.queue_offsets[0]), transaction_id=key,
            recall_handle=self._recalls.handle_of(header.topic, timed, key) if key and timed else None,
            duplicates=",".join(map(str, result.duplicates.tolist())) or None,
        )  # fmt: skip
        return answer(command, result.code, result.remark or None, fields)

    async def _send_back(self, client: ClientSession, command: Command) -> Command:
        header = requests.SEND_BACK.read(command)
        await self._confirmation.send_back(GivenBack(
            group=header.group, log_offset=header.offset, delay_level=header.delay_level,
            max_reconsume_times=header.max_reconsume_times or 0, asker=client.asker(command),
        ))  # fmt: skip
        return answer(command)

    def _recall(self, client: ClientSession, command: Command) -> Command:
        header = requests.RECALL_MESSAGE.read(command)
        message_id = self._recalls.recall(
            header.topic, header.recall_handle, header.producer_group, client.asker(command), client.born_host
        )
        return answer(command, fields=requests.MessageRecalled(msg_id=message_id))

    def _end_transaction(self, client: ClientSession, command: Command) -> Command:
        header = requests.END_TRANSACTION.read(command)
        self._transactions.end(Ending(
            group=header.producer_group, half_queue_offset=header.tran_state_table_offset,
            half_log_offset=header.commit_log_offset, state=header.commit_or_rollback,
            from_check=header.from_transaction_check, asker=client.asker(command),
        ))  # fmt: skip
        return answer(command)


REPLIES = (requests.SEND_REPLY_MESSAGE, requests.SEND_REPLY_MESSAGE_V2)
SENDS = {
    each.code: each for each in (requests.SEND_MESSAGE, requests.SEND_MESSAGE_V2, requests.SEND_BATCH_MESSAGE, *REPLIES)
}


def run_of(header: SendMessage, command: Command, cluster: str, *, reply: bool) -> SendRun:
    """The run that a request asks to store, its sender not filled in. Raises MESSAGE_ILLEGAL.

    C++ sends batches with the number of a single message, so the flag decides. Each message gets what RocketMQ gives
    it: the name of the cluster, which replies are addressed by, and the word that consumers may trace it.
    """
    batch = header.batch or command.code == requests.SEND_BATCH_MESSAGE.code
    if batch and header.topic.startswith(names.RETRY_PREFIX):
        raise DejamqError("batch message may not be sent to a retry topic", code=Code.MESSAGE_ILLEGAL)
    if batch and not command.body:
        raise DejamqError("the batch holds no message", code=Code.MESSAGE_ILLEGAL)
    texts = header.properties.encode()
    messages = elements(command.body) if batch else [Element(header.flag, command.body, texts)]
    properties = [decode_properties(each.properties) for each in messages]
    more = {names.PROPERTY_CLUSTER: cluster, **TRACEABLE}
    if header.max_reconsume_times is not None and header.topic.startswith(names.RETRY_PREFIX):
        more[names.PROPERTY_MAX_RECONSUME_TIMES] = str(header.max_reconsume_times)
    records = [_record(header, each, more, known) for each, known in zip(messages, properties, strict=True)]
    whole = decode_properties(texts) if batch else properties[0]
    return SendRun(
        group=header.producer_group, queues=[(header.topic, header.queue_id)],
        sizes=np.array(list(map(len, records)), "<u4"),
        tags_codes=np.array([tags_code(each.get(names.PROPERTY_TAGS)) for each in properties], "<i4"),
        no_wait_store=whole.get(names.PROPERTY_WAIT) == "false",
        rewrite=any(name in each for each in properties for name in REWRITTEN),
        dedup=any(name in each for each in properties for name in names.DEDUP_PROPERTIES),
        reply=reply, default_queue_nums=header.default_topic_queue_nums, records=(b"".join(records),),
    )  # fmt: skip


def _record(header: SendMessage, message: Element, more: Mapping[str, str], known: Mapping[str, str]) -> bytes:
    """``more`` are the properties that it gets unless it has them. 4.x clients leave out the last separator."""
    properties = message.properties
    if names.PROPERTY_POP_CK in known:  # of the pop that its sender got it from: it would hide that of the next pop
        properties = encode_properties({name: known[name] for name in known if name != names.PROPERTY_POP_CK})
    end = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
    properties += end + encode_properties({name: value for name, value in more.items() if name not in known})
    if len(properties) > MAX_PROPERTIES_SIZE:
        text = (
            "the message is illegal, maybe msg body or properties length not matched. msg properties length limit "
            f"{MAX_PROPERTIES_SIZE} bytes"
        )
        raise MessageTooLarge(text)
    try:
        form = Outgoing.to(
            header.topic, sys_flag=header.sys_flag & KEPT_FLAGS, flag=message.flag,
            reconsume_times=header.reconsume_times or 0,
        )  # fmt: skip
    except BadRecord as error:
        raise MessageTooLarge(str(error)) from None
    return form.encode(header.queue_id, header.born_timestamp, message.body, properties)
