"""Probes brokers that the fault strategy took note of: one that is back is used again without a message's risk."""

import asyncio
import logging
from time import monotonic

from dejamq_proto.codes import Code, DejamqError

from dejamq.net.instance import Instance
from dejamq.sending.fault_strategy import FaultTable
from dejamq.values.producer_config import ProducerConfig

log = logging.getLogger("dejamq")

UNREACHED = frozenset({Code.CONNECT_BROKER_EXCEPTION, Code.ACCESS_BROKER_TIMEOUT})


class Detector:
    """One background task of a producer; ``run`` until cancelled.

    RocketMQ: LatencyFaultToleranceImpl.startDetector. A round each 3 s by default, that is one and a half
    intervals, each broker once in an interval, by asking for the end of some queue.
    """

    def __init__(self, faults: FaultTable, instance: Instance, config: ProducerConfig) -> None:
        self._faults, self._instance = faults, instance
        self._interval_ms, self._timeout_s = config.detect_interval_ms, config.detect_timeout_ms / 1000

    async def run(self) -> None:
        """Look after all brokers each round."""
        while True:
            await asyncio.sleep(self._interval_ms * 1.5 / 1000)
            await asyncio.gather(*map(self._probe, self._faults.take_due(monotonic() * 1000, self._interval_ms)))

    async def _probe(self, broker_name: str) -> None:
        """A refusal is an answer too: what counts is that the broker can be reached."""
        address = self._instance.routes.master_address(broker_name)
        if address is None:
            self._faults.forget(broker_name)
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._instance.link(address).max_offset("TBW102", 0)
        except TimeoutError:
            return
        except DejamqError as error:
            if error.code in UNREACHED:
                return
        self._faults.reached(broker_name)
