"""Small parts of the lab: waiting, the names of a cluster's parts, what an in-process server refuses, percentiles."""

import importlib
from pathlib import Path

import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_lab.bench.client.result import percentiles
from dejamq_lab.cluster.inproc import InProcessServer
from dejamq_lab.cluster.plan import ClusterPlan, as_flags, differing
from dejamq_lab.cluster.waiting import until, until_async
from dejamq_lab.errors import NotSupported


async def test_a_condition_that_holds_is_not_waited_for() -> None:
    assert await until(lambda: True, 0)


async def test_a_condition_that_never_holds_ends_at_the_deadline() -> None:
    assert not await until(lambda: False, 0)


async def test_a_condition_is_looked_at_again_until_it_holds() -> None:
    looks = iter([False, False, True])
    assert await until(lambda: next(looks), 10)


async def test_a_condition_may_have_to_be_asked_for() -> None:
    answers = iter([False, True])

    async def ask() -> bool:
        return next(answers)

    assert await until_async(ask, 10)


async def test_a_condition_that_fails_is_told() -> None:
    def broken() -> bool:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await until(broken, 10)


@pytest.mark.parametrize("fault", ["kill", "restart", "pause", "resume", "terminate", "heal"])
def test_a_server_in_this_process_refuses_every_fault_and_says_which_cluster_can(fault: str, tmp_path: Path) -> None:
    server = InProcessServer(ClusterPlan(tmp_path).broker("broker-a", "127.0.0.1:1"), None)
    with pytest.raises(NotSupported, match=rf"{fault}: broker-a .*processes=True"):
        getattr(server, fault)()


def test_percentiles_are_of_the_samples_in_whatever_order() -> None:
    assert percentiles([3.0, 1.0, 2.0]) == percentiles([1.0, 2.0, 3.0])
    assert percentiles([float(number) for number in range(101)]) == (50.0, 99.0)


def test_a_configuration_of_defaults_needs_no_flags() -> None:
    assert list(as_flags(BrokerConfig())) == []


def test_booleans_are_written_as_files_write_them() -> None:
    assert list(as_flags(BrokerConfig(auto_create_topic_enable=False))) == ["--set", "auto_create_topic_enable=false"]


def test_settings_of_the_store_differ_under_their_own_names(tmp_path: Path) -> None:
    config = ClusterPlan(tmp_path).broker("broker-a", "")
    assert dict(differing(config))["mapped_file_size_commit_log"] == 64 << 20


def test_clusters_of_a_lab_do_not_ask_how_full_the_disk_is_unless_told_to(tmp_path: Path) -> None:
    assert not ClusterPlan(tmp_path).broker("broker-a", "").store.disk_check_enable
    assert ClusterPlan(tmp_path, settings={"disk_check_enable": True}).broker("broker-a", "").store.disk_check_enable


def test_a_log_file_size_of_ones_own_is_kept(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, settings={"mappedFileSizeCommitLog": 8192})
    assert plan.broker("broker-a", "").store.mapped_file_size_commit_log == 8192


def test_servers_of_one_cluster_share_no_folder_but_the_journals(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, brokers=2)
    first, second = (plan.broker(name, "") for name in plan.broker_names())
    assert first.store_directory != second.store_directory
    assert first.journal_dir == second.journal_dir == str(plan.journal_dir)


@pytest.mark.parametrize("name", ["Cluster", "ClusterFailed", "Delivery", "Duplicate", "NotSupported"])
def test_every_public_name_of_the_lab_is_there_when_it_is_asked_for(name: str) -> None:
    assert getattr(importlib.import_module("dejamq_lab"), name).__name__ == name


def test_a_name_that_the_lab_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = importlib.import_module("dejamq_lab").Nothing
