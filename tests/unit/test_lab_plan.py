from pathlib import Path
from typing import Any

import pytest
from dejamq.values.producer_config import ProducerConfig
from dejamq_lab import Cluster, ClusterFailed
from dejamq_lab.cluster.plan import ClusterPlan, as_flags, server_name
from dejamq_proto.codes import ConfigError, InvalidName


def test_brokers_are_named_by_letter_and_name_servers_by_number(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, brokers=3, namesrvs=2)
    assert plan.broker_names() == ["broker-a", "broker-b", "broker-c"]
    assert plan.namesrv_names() == ["namesrv-0", "namesrv-1"]


def test_time_scale_shrinks_intervals_and_time_outs_more_gently(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, time_scale=0.01)
    assert plan.namesrv("namesrv-0").broker_timeout_ms == 1_200
    assert plan.client(ProducerConfig, {})["send_msg_timeout_ms"] == 300


def test_a_setting_goes_to_whoever_has_it_in_either_spelling(tmp_path: Path) -> None:
    plan = ClusterPlan(
        tmp_path, settings={"flush_disk_type": "SYNC_FLUSH", "send_msg_timeout_ms": 500, "orderMessageEnable": True}
    )
    assert plan.broker("broker-a", "127.0.0.1:1").store.flush_disk_type == "SYNC_FLUSH"
    assert plan.namesrv("namesrv-0").order_message_enable is True
    assert plan.client(ProducerConfig, {})["send_msg_timeout_ms"] == 500


def test_what_a_clients_caller_gives_is_stronger_and_not_scaled(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, time_scale=0.01, settings={"send_msg_timeout_ms": 500})
    assert plan.client(ProducerConfig, {"send_msg_timeout_ms": 9_000})["send_msg_timeout_ms"] == 9_000


def test_the_environment_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAMQ_SEND_MSG_TIMEOUT_MS", "1")
    assert ClusterPlan(tmp_path).client(ProducerConfig, {})["send_msg_timeout_ms"] == 3_000


def test_flags_say_what_differs_from_the_defaults(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, settings={"flush_disk_type": "SYNC_FLUSH", "autoCreateTopicEnable": False})
    flags = as_flags(plan.broker("broker-b", "127.0.0.1:1"))
    assert set(flags) == {
        "--set",
        "broker_name=broker-b",
        "listen=127.0.0.1:0",
        "namesrv=127.0.0.1:1",
        f"store_directory={tmp_path}/broker-b/store",
        "flush_disk_type=SYNC_FLUSH",
        "mapped_file_size_commit_log=67108864",
        "disk_check_enable=false",
        "broker_fast_failure_enable=false",
        "auto_create_topic_enable=false",
        f"journal_dir={tmp_path}/journal",
        "journal_level=forensic",
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"settings": {"flushdisktype": 1}}, "no server or client has the setting 'flushdisktype'"),
        ({"brokers": 0}, "1 to 26 brokers"),
        ({"namesrvs": 0}, "at least 1 name server"),
        ({"time_scale": 0}, "time_scale"),
        ({"journal_level": "x"}, "journal_level is off, audit, forensic, not 'x'"),
        ({"topics": ["a"]}, r"topics are given with their queues at each broker, as .*, not \['a'\]"),
        ({"topics": {"a": 0}}, "topic 'a' has 1 queue or more at each broker, not 0"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_at_once(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Cluster(directory=tmp_path, **arguments)


def test_a_topic_of_a_cluster_has_a_name_that_brokers_take(tmp_path: Path) -> None:
    with pytest.raises(InvalidName, match="topic 'a b'"):
        Cluster(directory=tmp_path, topics={"a b": 1})


@pytest.mark.parametrize("client", ["producer", "push_consumer", "lite_pull_consumer", "transaction_producer"])
def test_a_client_of_a_cluster_that_is_not_started_says_so(tmp_path: Path, client: str) -> None:
    arguments = {"checker": None} if client == "transaction_producer" else {}
    with pytest.raises(ConfigError, match="this cluster is not started"):
        getattr(Cluster(directory=tmp_path), client)("g", **arguments)


@pytest.mark.parametrize("processes", [False, True])
async def test_a_folder_that_cannot_be_is_told_before_anything_starts(processes: bool) -> None:
    with pytest.raises(ClusterFailed, match="a cluster cannot be kept in /proc/none: "):
        await Cluster(directory="/proc/none", processes=processes).start()


def test_a_cluster_has_no_negative_number_of_slaves(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="0 or more"):
        Cluster(directory=tmp_path, slaves=-1)


def test_a_slave_is_a_replica_of_its_broker_with_a_store_of_its_own(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, brokers=2, slaves=2, settings={"brokerRole": "SYNC_MASTER"})
    assert plan.slave_names() == ["broker-a-s1", "broker-a-s2", "broker-b-s1", "broker-b-s2"]
    slave, master = plan.broker("broker-b-s2", "n:1"), plan.broker("broker-b", "n:1")
    assert (slave.broker_name, slave.broker_id, server_name(slave)) == ("broker-b", 2, "broker-b-s2")
    assert (master.broker_name, master.broker_id, server_name(master)) == ("broker-b", 0, "broker-b")
    assert slave.store_directory != master.store_directory
    assert (slave.broker_role, master.broker_role) == ("ASYNC_MASTER", "SYNC_MASTER")
    slave.validate()


def test_late_runs_are_refused_only_where_that_is_asked_for(tmp_path: Path) -> None:
    assert not ClusterPlan(tmp_path).broker("broker-a", "").broker_fast_failure_enable
    asked = ClusterPlan(tmp_path, settings={"brokerFastFailureEnable": "true"})
    assert asked.broker("broker-a", "").broker_fast_failure_enable
