"""Settings of transactions, with RocketMQ's names and defaults; part of ``BrokerConfig``."""

from dataclasses import dataclass

from dejamq_proto.settings import setting


@dataclass(frozen=True)
class TransactionSettings:
    """Source: RocketMQ ``BrokerConfig``. The last two close what RocketMQ leaves open; see docs/transactions.md."""

    transaction_timeout_ms: int = setting(
        6_000, rocketmq="transactionTimeOut", unit="ms", scale="interval",
        help="a transaction that is not ended so long after its message was made is asked about",
    )  # fmt: skip
    transaction_check_interval_ms: int = setting(
        30_000, rocketmq="transactionCheckInterval", unit="ms", scale="interval",
        help="between rounds that ask producers how their transactions ended",
    )  # fmt: skip
    transaction_check_max: int = setting(
        15, rocketmq="transactionCheckMax", unit="times",
        help="so often a transaction is asked about; then its message goes to TRANS_CHECK_MAX_TIME_TOPIC",
    )  # fmt: skip
    transaction_round_max_ms: int = setting(
        60_000, unit="ms", scale="interval", help="a round ends after so long and is continued by the next; fixed in "
        "RocketMQ",
    )  # fmt: skip
    transaction_op_msg_max_size: int = setting(
        4096, rocketmq="transactionOpMsgMaxSize", unit="bytes", help="of marks that are gathered in one op message"
    )
    transaction_op_batch_interval_ms: int = setting(
        3_000, rocketmq="transactionOpBatchInterval", unit="ms", scale="interval",
        help="so long marks of ended transactions are gathered; a crash loses them, and commits twice (cause P8)",
    )  # fmt: skip
    reject_transaction_message: bool = setting(
        False, rocketmq="rejectTransactionMessage", help="refuse messages of transactions with NO_PERMISSION"
    )
    transaction_finish_once: bool = setting(
        False,
        help="a transaction ends once: what ends it again is refused, so that nothing is committed twice by a late "
        "commit or by two checks (cause P7). Costs some memory for each transaction that has not ended; a start reads "
        "their messages",
    )  # fmt: skip
    transaction_op_with_commit: bool = setting(
        False,
        help="the mark of an ended transaction is stored right behind its message, and a start after a crash adds the "
        "one that may be missing: nothing is committed twice because a mark was lost (cause P8). Costs one record more "
        "for each transaction",
    )  # fmt: skip
