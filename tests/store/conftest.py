"""Every store that a test opened is closed after it, and none looks at how full the machine's own disk is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq_broker.store import disk
from harm import make_whole
from store_making import OPENED


@pytest.fixture(autouse=True)
def stores_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(disk, "used_percent", lambda folder: 50)
    yield
    for store in OPENED:
        store.close()
    OPENED.clear()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed cleanly (see ``harm.py``). Nobody changes it."""
    directory = tmp_path_factory.mktemp("whole")
    make_whole(directory)
    return directory
