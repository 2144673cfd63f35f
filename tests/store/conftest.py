"""Every store that a test opened is closed after it, and none looks at how full the machine's own disk is."""

from collections.abc import Iterator

import pytest
from dejamq_broker.store import disk
from store_making import OPENED


@pytest.fixture(autouse=True)
def stores_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "used_percent", lambda folder: 50)
    yield
    for store in OPENED:
        store.close()
    OPENED.clear()
