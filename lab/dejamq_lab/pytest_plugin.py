"""The pytest plugin: fixtures with a real cluster, plain ones, so that sync, asyncio and anyio tests share them.

pytest loads this in every run of everybody who has dejamq installed: nothing of ours is imported before a fixture runs.
"""

import importlib
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dejamq_lab.cluster.cluster import Cluster
    from dejamq_lab.control.started import DejamqServer


@pytest.fixture(scope="session")
def dejamq_cluster() -> "Iterator[Cluster]":
    """One name server and one broker as processes, shared by the whole session; use ``dejamq_topic`` to stay apart."""
    yield from _cluster()


@pytest.fixture
def dejamq_fresh_cluster() -> "Iterator[Cluster]":
    """A cluster for this test alone, for tests that kill or pause servers."""
    yield from _cluster()


@pytest.fixture(scope="session")
def _dejamq_running_server() -> "Iterator[DejamqServer]":
    """The process behind ``dejamq_server``."""
    yield from _server()


@pytest.fixture
def dejamq_server(_dejamq_running_server: "DejamqServer") -> "Iterator[DejamqServer]":
    """A server for clients in any language: its addresses, and faults as methods, which end with the test.

    The whole session shares its process and what is stored; use ``dejamq_topic`` and ``dejamq_group`` to stay apart.
    """
    yield _dejamq_running_server
    _dejamq_running_server.clear()


@pytest.fixture
def dejamq_fresh_server() -> "Iterator[DejamqServer]":
    """As ``dejamq_server``, of this test alone."""
    yield from _server()


@pytest.fixture
def dejamq_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has; the first send creates it."""
    return _unique(request)


@pytest.fixture
def dejamq_group(request: pytest.FixtureRequest) -> str:
    """A group name that no other test has."""
    return _unique(request)


def _unique(request: pytest.FixtureRequest) -> str:
    """The test's name, cut to what a topic may hold, and something random."""
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', request.node.name)[:60]}-{uuid.uuid4().hex[:8]}"


def _cluster() -> "Iterator[Cluster]":
    missing = ""
    try:
        from dejamq_lab.cluster.cluster import Cluster
    except ModuleNotFoundError as error:
        missing = _name(error)
    if missing:  # outside the except: one line, without the chain of what led to it
        pytest.fail(f"the cluster fixtures need {missing}: pip install 'dejamq[lab]'", pytrace=False)
    with Cluster() as cluster:
        yield cluster


def _server() -> "Iterator[DejamqServer]":
    missing = ""
    try:
        importlib.import_module("dejamq_lab.control.app")  # of the process, which would say it later
        from dejamq_lab.control.started import DejamqServer
    except ModuleNotFoundError as error:
        missing = _name(error)
    if missing:
        pytest.fail(f"the server fixtures need {missing}: pip install 'dejamq[lab,control]'", pytrace=False)
    with DejamqServer() as server:
        yield server


def _name(error: ModuleNotFoundError) -> str:
    return (error.name or str(error)).partition(".")[0]
