"""Which brokers to avoid for a while, by how slow they were and how they failed: pure, the time is an argument.

Source: RocketMQ ``MQFaultStrategy``, ``LatencyFaultToleranceImpl``. All times are milliseconds of one clock that never
goes back.
"""

import msgspec

SLOW_MS = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
AVOIDED_MS = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
ISOLATION_MS = 10_000  # counted for a failure, however fast it came: avoided for 10 s


class BrokerLatency(msgspec.Struct):
    """The results of the last sends to a broker."""

    latency_ms: float = 0
    available_from_ms: float = 0
    reachable: bool = True
    probe_from_ms: float = 0


class FaultTable:
    """Brokers by name; one that was never heard of is well. Owned by the event loop.

    *Available* is a matter of time: a slow or failed broker is avoided for as long as the table says. *Reachable*
    is a matter of fact: false after a failure, until a send or a probe gets through.
    """

    def __init__(self) -> None:
        self._faults: dict[str, BrokerLatency] = {}

    def update(
        self, broker_name: str, latency_ms: float, *, now_ms: float, isolated: bool = False, reachable: bool = True
    ) -> None:
        """A try ended after ``latency_ms``. The time until which a broker is avoided only ever grows."""
        fault = self._faults.setdefault(broker_name, BrokerLatency())
        fault.latency_ms, fault.reachable = latency_ms, reachable
        avoided_ms = avoided_for(ISOLATION_MS if isolated else latency_ms)
        if avoided_ms and now_ms + avoided_ms > fault.available_from_ms:
            fault.available_from_ms = now_ms + avoided_ms

    def available(self, broker_name: str, now_ms: float) -> bool:
        """It need not be avoided."""
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.available_from_ms

    def reachable(self, broker_name: str) -> bool:
        """The last try got through to it."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def take_due(self, now_ms: float, interval_ms: float) -> list[str]:
        """Brokers to probe now; each of them again after ``interval_ms`` at the earliest."""
        due = [name for name, fault in self._faults.items() if now_ms >= fault.probe_from_ms]
        for name in due:
            self._faults[name].probe_from_ms = now_ms + interval_ms
        return due

    def reached(self, broker_name: str) -> None:
        """A probe got through."""
        if broker_name in self._faults:
            self._faults[broker_name].reachable = True

    def forget(self, broker_name: str) -> None:
        """No route names it any more."""
        self._faults.pop(broker_name, None)


def avoided_for(latency_ms: float) -> int:
    """How long to avoid a broker that took so long: the highest step that is not above it decides.

    >>> [avoided_for(ms) for ms in (10, 549, 550, 3_000, 10_000, 60_000)]
    [0, 0, 2000, 6000, 10000, 30000]
    """
    return next((avoid for slow, avoid in zip(SLOW_MS[::-1], AVOIDED_MS[::-1], strict=True) if latency_ms >= slow), 0)
