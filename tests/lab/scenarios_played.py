"""Which scenarios of the catalogue `make test` plays and audits; all of them are played by ``make trial``."""

from collections.abc import Iterator

import msgspec
from dejamq_lab.scenario.text import Scenario, catalogue
from dejamq_lab.scenario.variants import with_inbox

ON_PROCESSES = ("O3", "R1", "R2")
PLAYED = ("healthy", "P1", "B2", "O1", "O7", "L1", "L4", *ON_PROCESSES)
"""The others inside the tests' process."""
INBOX = "O3-inbox"
SIDE_BY_SIDE = 2


def scenarios() -> Iterator[Scenario]:
    """Those, and one of them with an inbox."""
    known = catalogue()
    yield from (known[name] for name in PLAYED)
    yield msgspec.structs.replace(with_inbox(known["O3"]), id=INBOX)
