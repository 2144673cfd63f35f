"""Peers beside dejamq: what is said where one is missing, and which loads one refuses."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from dejamq_lab.bench import peers
from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.peers import kafka
from dejamq_lab.bench.peers.nats import Nats
from dejamq_lab.bench.peers.redis import Redis
from dejamq_lab.machines import jars, rocketmq
from dejamq_lab.machines.jars import Missing
from dejamq_proto.codes import ConfigError

SERVERS = {
    "redis": "redis: redis-server is not on the PATH: install the package redis-server",
    "nats": "nats: nats-server is not on the PATH: install the package nats-server",
    "rabbitmq": "rabbitmq: rabbitmq-server is not on the PATH: install the package rabbitmq-server",
    "kafka": "kafka: java is not on the PATH: install a JDK of version 11 or newer",
    "rocketmq": "rocketmq: java is not on the PATH: install a JDK of version 11 or newer",
}


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program is anywhere."""
    monkeypatch.setattr(shutil, "which", lambda command, path=None: None)


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("name", peers.NAMES)
def test_a_missing_peer_is_one_line_that_says_what_to_install(name: str) -> None:
    assert peers.absence(name) == SERVERS[name]


def test_a_missing_client_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command, path=None: f"/bin/{command}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert peers.absence("redis") == "redis: its Python client is not installed: pip install 'dejamq[bench]'"
    assert peers.absence("rocketmq") is None  # its client is in Java


@pytest.mark.usefixtures("bare_machine")
async def test_measuring_a_missing_peer_raises_that_line() -> None:
    with pytest.raises(Missing, match="install the package redis-server"):
        async with peers.started("redis", Load()):
            pass


async def test_measuring_a_peer_that_cannot_be_fetched_raises_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Path:
        raise Missing("Maven got no jar: no network")

    monkeypatch.setattr(jars, "java_absence", lambda folder=None: None)
    for module in ("rocketmq", "kafka"):
        monkeypatch.setattr(f"dejamq_lab.bench.peers.{module}.java_absence", lambda folder=None: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    monkeypatch.setattr(shutil, "which", lambda command, path=None: f"/bin/{command}")
    monkeypatch.setattr("dejamq_lab.bench.peers.rocketmq.fetched_jars", fails)
    monkeypatch.setattr("dejamq_lab.bench.peers.kafka.fetched", fails)
    for name in ("rocketmq", "kafka"):
        with pytest.raises(Missing, match="no network"):
            async with peers.started(name, Load()):
                pass


@pytest.mark.parametrize(("pom", "version"), [(kafka.POM, kafka.VERSION), (rocketmq.POM, rocketmq.VERSION)])
def test_what_maven_reads_is_well_formed_and_names_the_version(pom: Path, version: str) -> None:
    assert version in [element.text for element in ElementTree.parse(pom).iter()]


def test_a_peer_that_nobody_knows_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there are redis, nats, rabbitmq, kafka, rocketmq"):
        peers.absence("zeromq")


def test_a_load_that_a_peer_has_no_way_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="redis is measured with single, submit, not with await"):
        Redis(tmp_path, Load(mode="await"))
    with pytest.raises(ConfigError, match="nats has no way to answer only when the disk has it"):
        Nats(tmp_path, Load(flush_mode="sync"))


def test_jars_are_kept_below_build_in_a_clone_and_in_the_cache_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(jars, "TREE", tmp_path)
    assert jars.jar_cache("kafka", "3") == tmp_path / "build" / "kafka-3"
    monkeypatch.setattr(jars, "TREE", tmp_path / "elsewhere")
    assert jars.jar_cache("kafka", "3") == Path.home() / ".cache" / "dejamq" / "kafka-3"
