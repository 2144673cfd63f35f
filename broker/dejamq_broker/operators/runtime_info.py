"""A broker's measurements of itself, under RocketMQ's names (``GET_BROKER_RUNTIME_INFO``).

Source: RocketMQ ``AdminBrokerProcessor.prepareRuntimeInfo``, ``StoreStatsService.getRuntimeInfo``. Times are ms with
their fractions, as an append takes far less than one. There are no thread pools here: the numbers for the queue of
sends count the runs that wait for their turn or for the disk.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dejamq_proto.names import SCHEDULE_TOPIC
from dejamq_proto.records.record import BadRecord, decode
from dejamq_proto.serving.logs import version

from dejamq_broker.base.counts import Counts
from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.operators.store_rates import StoreRates, distribution

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore
    from dejamq_broker.timer.service import TimerService

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class RuntimeInfo:
    """Asked by operators; changes nothing. Belongs to the event loop."""

    def __init__(
        self, store: "MessageStore", directory: Path, counts: Counts, rates: StoreRates, clock_ms: Callable[[], int],
        *, progress: DelayProgress, levels: int, timer: "TimerService",
        sends: Callable[[], tuple[int, int]],
    ) -> None:  # fmt: skip
        """``sends``: runs of messages that wait or are not answered, and how many may."""
        self._timer = timer
        self._store, self._directory, self._counts, self._rates = store, directory, counts, rates
        self._progress, self._levels, self.sends = progress, levels, sends
        self._clock_ms, self.started_ms = clock_ms, clock_ms()
        self.active = True
        """False when the broker has begun to close."""

    def values(self) -> dict[str, str]:
        """Everything as text. Rates are of the last ten seconds, minute and ten minutes."""
        told = self._of_broker() | self._of_puts() | self._of_gets() | self._of_disk() | self._of_delays()
        told |= self._of_timer()
        return {name: str(value) for name, value in told.items()}

    def earliest_ms(self) -> int:
        """When the first message that is still there was stored; -1 without one, or when it cannot be read."""
        store = self._store
        try:
            raw = store.record_at(store.log_min)
            return -1 if raw is None else decode(raw, check_crc=False).store_timestamp_ms
        except BadRecord:
            return -1

    def _of_broker(self) -> dict[str, object]:
        yesterday, today, now = self._rates.mornings()
        return {
            "brokerActive": str(self.active).lower(), "brokerVersionDesc": f"dejamq {version()}",
            "runtime": _duration(self._clock_ms() - self.started_ms),
            "startAcceptSendRequestTimeStamp": self.started_ms, "earliestMessageTimeStamp": self.earliest_ms(),
            "msgPutTotalYesterdayMorning": yesterday.put, "msgPutTotalTodayMorning": today.put,
            "msgPutTotalTodayNow": now.put, "msgGetTotalYesterdayMorning": yesterday.got,
            "msgGetTotalTodayMorning": today.got, "msgGetTotalTodayNow": now.got, "residentBytes": resident_bytes(),
        }  # fmt: skip

    def _of_puts(self) -> dict[str, object]:
        """``pageCacheLockTimeMills`` is the longest append of the last minute. RocketMQ gives the time that the lock is
        held at this moment; that would always be 0 for the loop that appends and answers.
        """
        puts, rates = self._counts.puts, self._rates
        waiting, capacity = self.sends()
        return {
            "sendThreadPoolQueueSize": waiting, "sendThreadPoolQueueCapacity": capacity,
            "putMessageTimesTotal": puts.messages, "putMessageFailedTimes": puts.failed,
            "putMessageSizeTotal": puts.bytes,
            "putMessageAverageSize": f"{puts.bytes / puts.messages if puts.messages else 0.0:.1f}",
            "putMessageEntireTimeMax": puts.longest_us / 1000, "putMessageDistributeTime": distribution(puts.by_time),
            "putTps": rates.put_tps(), "putLatency99": rates.put_latency_ms(0.99),
            "putLatency999": rates.put_latency_ms(0.999), "pageCacheLockTimeMills": rates.longest_put_lately_ms(),
        }  # fmt: skip

    def _of_gets(self) -> dict[str, object]:
        gets, rates = self._counts.gets, self._rates
        return {
            "getMessageTimesTotalFound": gets.found, "getMessageTimesTotalMiss": gets.missed,
            "getMessageTransferredMsgCount": gets.messages, "getMessageEntireTimeMax": gets.longest_us / 1000,
            "getFoundTps": rates.found_tps(), "getMissTps": rates.miss_tps(), "getTotalTps": rates.total_tps(),
            "getTransferredTps": rates.transferred_tps(),
        }  # fmt: skip

    def _of_disk(self) -> dict[str, object]:
        """Appended bytes can be read at once, so nothing waits to be committed; it only waits for the disk."""
        store, space = self._store, os.statvfs(self._directory)
        total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        return {
            "commitLogDirCapacity": f"Total : {size_text(total)}, Free : {size_text(free)}.",
            "remainHowManyDataToCommit": 0, "remainHowManyDataToFlush": store.log_max - store.flushed,
        }  # fmt: skip

    def _of_timer(self) -> dict[str, object]:
        """Seconds of slots that are over and not handled, messages that are not in the wheel yet, all that wait."""
        timed = self._timer
        return {
            "timerReadBehind": timed.behind_ms // 1000, "timerOffsetBehind": timed.messages_behind,
            "timerCongestNum": timed.waiting,
        }  # fmt: skip

    def _of_delays(self) -> dict[str, object]:
        return {
            f"scheduleMessageOffset_{level}": f"{self._progress.get(level)},{end}"
            for level in range(1, self._levels + 1)
            if (end := self._store.max_offset(SCHEDULE_TOPIC, level - 1))
        }


def resident_bytes() -> int:
    """Memory of this process that is its own or of files it looks at, as the kernel counts it; 0 where it does not."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def size_text(size: float) -> str:
    """Bytes for people: ``1.5 GiB``."""
    for unit in UNITS[:-1]:
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
