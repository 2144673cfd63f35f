"""What `make test` plays and audits: every scenario of the catalogue with one seed; ``make trial`` plays more seeds."""

from collections.abc import Iterator

import msgspec
from dejamq_lab.scenario.script.text import Scenario, catalogue
from dejamq_lab.scenario.script.variants import with_inbox

ON_PROCESSES = ("O3", "R1", "R2")
"""With what cannot be played elsewhere. The others inside the tests' process, which takes a second or two each."""
PLAYED = tuple(catalogue())
INBOX = {"O3": "O3-inbox", "P1-v2": "P1-v2-inbox"}
"""Played with an inbox too: a consumer of ours, and a client of RocketMQ 5."""
SIDE_BY_SIDE = 3
TRIES = 2
"""Two busy workers on two cores may miss a deadline; a scenario that misses it twice is broken."""


def scenarios() -> Iterator[Scenario]:
    """All of them, and those of ``INBOX`` with one."""
    known = catalogue()
    yield from map(patient, known.values())
    for name, careful in INBOX.items():
        yield msgspec.structs.replace(patient(with_inbox(known[name])), id=careful)


def patient(scenario: Scenario) -> Scenario:
    """Sends have time, where the scenario does not say how much, so that a busy machine fails none of them."""
    return msgspec.structs.replace(scenario, settings={"send_msg_timeout_ms": 60_000, **scenario.settings})
