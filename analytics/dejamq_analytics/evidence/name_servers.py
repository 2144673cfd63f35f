"""Name servers: which brokers came and went, from ``namesrv.log``."""

from collections.abc import Mapping

from dejamq_analytics.evidence.mark import Mark
from dejamq_analytics.evidence.process import Process

CHANGES = {"registered": ("+", "register"), "unregistered": ("-", "unregister"), "silent": ("-", "expired")}


def of_host(host: str, marks: list[Mark], names: Mapping[str, str]) -> Process:
    """The name server on one machine. ``names`` of brokers by their addresses."""
    server = Process(f"namesrv:{host}", host, "namesrv")
    server.has.add("namesrv.log")
    for mark in marks:
        if mark.what in CHANGES:
            change, reason = CHANGES[mark.what]
            address = mark.said["address"]
            server.add(
                mark, "BROKER", broker_name=names.get(address, address), broker_id=0, address=address, change=change,
                reason=reason,
            )  # fmt: skip
    return server
