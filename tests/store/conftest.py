"""Every store that a test opened is closed after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harm import make_whole
from store_making import OPENED


@pytest.fixture(autouse=True)
def stores_end() -> Iterator[None]:
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
