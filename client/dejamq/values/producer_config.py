"""Settings of the producer, with RocketMQ's names and defaults."""

from dataclasses import dataclass

from dejamq_proto.codes import SEND_RETRIABLE, Code, ConfigError
from dejamq_proto.config.settings import setting
from dejamq_proto.records.compression import Compression
from dejamq_proto.texts import MOST_32, number_of

from dejamq.values.config import LARGEST_BODY, ClientConfig

RETRIABLE = ";".join(sorted(code.name for code in SEND_RETRIABLE if code != Code.CONNECT_BROKER_EXCEPTION))
COMPRESSIONS = {kind.name.lower(): kind for kind in Compression if kind is not Compression.OLD}


@dataclass(frozen=True)
class ProducerConfig(ClientConfig):
    """Source: RocketMQ ``DefaultMQProducer``, for the fault strategy ``ClientConfig``.

    ``send_msg_timeout_ms`` is the budget of a whole send with all of its tries, as in RocketMQ: a try that
    times out has used it up, which is why a time-out is not tried again, unless
    ``send_msg_max_timeout_per_request_ms`` leaves something of it.
    """

    send_msg_timeout_ms: int = setting(
        3_000, rocketmq="sendMsgTimeout", unit="ms", scale="timeout", help="budget of a send with all its retries"
    )
    send_msg_max_timeout_per_request_ms: int = setting(
        0,
        rocketmq="sendMsgMaxTimeoutPerRequest",
        unit="ms",
        scale="timeout",
        help="longest wait of a try while further tries remain; 0: all of the budget (RocketMQ: -1)",
    )
    retry_times_when_send_failed: int = setting(
        2, rocketmq="retryTimesWhenSendFailed", help="further tries on another broker after a failure (not a time-out)"
    )
    retry_times_when_send_async_failed: int = setting(
        -1, rocketmq="retryTimesWhenSendAsyncFailed",
        help="the same of submit and request; -1: as retry_times_when_send_failed (RocketMQ: 2)",
    )  # fmt: skip
    idempotent: bool = setting(
        False, help="a message that is sent again after an unknown outcome goes to the same broker, which stores it "
        "once: retries make no duplicates",
    )  # fmt: skip
    retry_response_codes: str = setting(
        RETRIABLE, rocketmq="retryResponseCodes", help="a broker's refusals that another broker is tried after"
    )
    retry_another_broker_when_not_store_ok: bool = setting(
        False, rocketmq="retryAnotherBrokerWhenNotStoreOK", help="also when stored less durably than asked"
    )
    max_message_size: int = setting(4 << 20, rocketmq="maxMessageSize", unit="bytes", help="of a body, or a batch")
    compress_msg_body_over_howmuch: int = setting(
        4096, rocketmq="compressMsgBodyOverHowmuch", unit="bytes", help="bodies from this size on are packed"
    )
    compress_level: int = setting(5, rocketmq="compressLevel", help="1 (fast) to 9 (small)")
    compress_type: str = setting("zlib", rocketmq="compressType", help="zlib, lz4 or zstd; consumers read all three")
    default_topic_queue_nums: int = setting(
        4, rocketmq="defaultTopicQueueNums", help="queues of a topic that a send creates"
    )
    max_pending_bytes: int = setting(
        64 << 20, unit="bytes", help="waiting or in flight, 400 more for each send; above it submit refuses"
    )
    max_runs_in_flight: int = setting(2, help="runs under way to one broker; further sends gather meanwhile")
    close_connection_on_timeout: bool = setting(
        False,
        rocketmq="clientCloseSocketIfTimeout",
        help="RocketMQ's default is true: a time-out fails, and retries, everything else on the connection",
    )
    send_latency_enable: bool = setting(
        False, rocketmq="sendLatencyEnable", help="avoid brokers that were slow or failed, for a while"
    )
    start_detector_enable: bool = setting(
        False, rocketmq="startDetectorEnable", help="and probe those that could not be reached"
    )
    detect_timeout_ms: int = setting(200, rocketmq="detectTimeout", unit="ms", scale="timeout", help="of one probe")
    detect_interval_ms: int = setting(
        2_000, rocketmq="detectInterval", unit="ms", scale="interval", help="between two probes of a broker, at least"
    )

    @property
    def retriable(self) -> frozenset[Code]:
        """``retry_response_codes`` as codes. Raises ConfigError for a name or number that is none."""
        return frozenset(_code(text.strip()) for text in self.retry_response_codes.replace(",", ";").split(";") if text)

    @property
    def compression(self) -> Compression:
        """``compress_type`` in any case of letters. Raises ConfigError."""
        try:
            return COMPRESSIONS[self.compress_type.lower()]
        except KeyError:
            raise ConfigError(f"compress_type is zlib, lz4 or zstd, not {self.compress_type!r}") from None

    def validate(self) -> None:
        """As the base, and for what no producer can work with."""
        super().validate()
        if self.max_message_size > LARGEST_BODY:
            raise ConfigError(f"max_message_size is at most {LARGEST_BODY}: a record has to fit one frame")
        for name in (
            "send_msg_timeout_ms", "max_message_size", "max_pending_bytes", "max_runs_in_flight", "detect_timeout_ms",
            "detect_interval_ms", "compress_msg_body_over_howmuch",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        for name in ("retry_times_when_send_failed", "send_msg_max_timeout_per_request_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be below 0")
        if not 1 <= self.compress_level <= 9:
            raise ConfigError(f"compress_level is 1 to 9, not {self.compress_level}")
        if self.start_detector_enable and not self.send_latency_enable:
            raise ConfigError("start_detector_enable does nothing without send_latency_enable; set both or neither")
        _ = self.retriable, self.compression  # raise for a value that cannot be read


def _code(text: str) -> Code:
    try:
        number = number_of(text, MOST_32)
        return Code[text.upper()] if number is None else Code(number)
    except (KeyError, ValueError):
        raise ConfigError(f"retry_response_codes: {text!r} is no response code, e.g. SYSTEM_BUSY or 2") from None


# Settings of producers of transactions, with RocketMQ's names and defaults.


@dataclass(frozen=True)
class TransactionProducerConfig(ProducerConfig):
    """Source: RocketMQ ``TransactionMQProducer``. A check that finds no room is dropped; the broker asks again."""

    check_thread_pool_max_size: int = setting(
        1, rocketmq="checkThreadPoolMaxSize", help="checks that are answered at a time, by threads or in the loop"
    )
    check_request_hold_max: int = setting(2_000, rocketmq="checkRequestHoldMax", help="checks that wait, at most")
    execute_concurrency: int = setting(
        64, help="plain functions of send_in_transaction that run at a time, each in a thread of its own"
    )

    def validate(self) -> None:
        """As the base, and for numbers that let nothing happen."""
        super().validate()
        for name in ("check_thread_pool_max_size", "check_request_hold_max", "execute_concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
