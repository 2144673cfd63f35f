"""Every store that a test opened is closed after it, so that a failing test leaves no thread behind."""

from collections.abc import Iterator

import pytest
from store_making import OPENED


@pytest.fixture(autouse=True)
def stores_end() -> Iterator[None]:
    yield
    for store in OPENED:
        store.close()
    OPENED.clear()
