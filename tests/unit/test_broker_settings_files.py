"""A broker's settings end to end: files in both forms, flags, the process's own words and exit status."""

import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_broker.__main__ import configured, parser
from dejamq_broker.base.config import BrokerConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.rocketmq_keys import keys_of
from dejamq_proto.config.settings import spellings


def config(*arguments: str) -> BrokerConfig:
    return configured(parser().parse_args(list(arguments)))


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def said(*arguments: str) -> tuple[int, str]:
    """Exit status and standard error of the process itself, for what ends before anything is served."""
    done = subprocess.run(
        [sys.executable, "-m", "dejamq_broker", *arguments], capture_output=True, text=True, timeout=50, check=False
    )
    return done.returncode, done.stderr


def test_without_anything_rocketmqs_defaults_hold() -> None:
    made = config()
    assert (made.broker_name, made.listen, made.cluster_name) == ("broker-a", "127.0.0.1:10911", "DefaultCluster")
    assert (made.default_topic_queue_nums, made.flush_consumer_offset_interval_ms) == (8, 5_000)
    assert made.store.mapped_file_size_commit_log == 1 << 30


def test_rocketmqs_broker_conf_sets_broker_and_store(tmp_path: Path) -> None:
    file = written(
        tmp_path / "broker.conf",
        "brokerClusterName = Lab\nbrokerName=broker-x\nbrokerId=0\n# deleteWhen is not ours\n"
        "flushDiskType=SYNC_FLUSH\nautoCreateTopicEnable=false\nstorePathRootDir=/var/store\n",
    )
    made = config("--config", file)
    assert (made.cluster_name, made.broker_name, made.store_directory) == ("Lab", "broker-x", "/var/store")
    assert made.store.sync_flush
    assert not made.auto_create_topic_enable


CUSTOMARY = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
namesrvAddr=127.0.0.1:9876
brokerIP1=127.0.0.1
listenPort=20911
haListenPort=10912
storePathRootDir=./store
storePathCommitLog=./store/commitlog
storePathConsumeQueue=./store/consumequeue
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""


def test_a_customary_broker_conf_is_taken_and_what_has_no_effect_is_told(tmp_path: Path) -> None:
    unused: list[str] = []
    file = written(tmp_path / "broker.conf", CUSTOMARY)
    made = configured(parser().parse_args(["--config", file]), unused.append)
    assert (made.listen, made.advertised()) == ("127.0.0.1:20911", {"": "127.0.0.1:0"})
    assert (made.store.file_reserved_time_hours, made.store.delete_when) == (48, "04")
    assert unused == ["haListenPort", "storePathCommitLog", "storePathConsumeQueue"]


def test_every_key_of_rocketmqs_classes_is_accepted() -> None:
    values = {key: "1" for name in BrokerConfig.ROCKETMQ_CLASSES for key in keys_of((name,))}
    known = spellings(BrokerConfig)
    assert len(values) > 400
    made, unused = config_and_unused(*(f"{key}={value}" for key, value in values.items() if key not in known))
    assert made.listen == "1:1"
    assert set(unused) == set(values) - set(known) - set(BrokerConfig.ROCKETMQ_PARTS)


def config_and_unused(*pairs: str) -> tuple[BrokerConfig, list[str]]:
    unused: list[str] = []
    arguments = [part for pair in pairs for part in ("--set", pair)]
    return configured(parser().parse_args(arguments), unused.append), unused


@pytest.mark.parametrize(
    ("pairs", "listen", "told"),
    [
        (["listenPort=1"], "127.0.0.1:1", {}),
        (["bindAddress=0.0.0.0"], "0.0.0.0:10911", {}),
        (["bindAddress=::1", "listenPort=1"], "[::1]:1", {}),
        (["brokerIP1=10.0.0.1", "listenPort=1"], "0.0.0.0:1", {"": "10.0.0.1:0"}),
        (["brokerIP1=10.0.0.1", "bindAddress=10.0.0.1"], "10.0.0.1:10911", {"": "10.0.0.1:0"}),
        (["brokerIP1=localhost"], "127.0.0.1:10911", {"": "localhost:0"}),
        (["brokerIP1=10.0.0.1", "listen=127.0.0.1:1"], "127.0.0.1:1", {"": "10.0.0.1:0"}),
    ],
)
def test_rocketmqs_port_and_addresses_make_ours(pairs: list[str], listen: str, told: dict[str, str]) -> None:
    made, _ = config_and_unused(*pairs)
    assert (made.listen, made.advertised()) == (listen, told)


def test_a_port_that_is_set_keeps_the_host_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path / "broker.conf", "bindAddress=127.0.0.2\nlistenPort=1\n")
    assert config("--config", file, "--set", "listenPort=2").listen == "127.0.0.2:2"
    assert config("--config", file, "--listen", "127.0.0.1:3").listen == "127.0.0.1:3"


def test_listen_and_rocketmqs_port_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="listen and listenPort are one setting"):
        config("--listen", "127.0.0.1:1", "--set", "listenPort=2")


def test_the_log_names_what_has_no_effect(tmp_path: Path) -> None:
    file = written(tmp_path / "broker.conf", CUSTOMARY.replace("=./store\n", f"={tmp_path}/held/store\n"))
    (tmp_path / "held").write_text("no folder, so that the start ends")
    status, words = said("--config", file)
    assert status == 1
    assert "event=settings_without_effect keys=haListenPort,storePathCommitLog,storePathConsumeQueue" in words


def test_toml_takes_our_names_with_types(tmp_path: Path) -> None:
    file = written(
        tmp_path / "broker.toml",
        'broker_name = "broker-y"\nlong_polling_enable = false\nmax_message_size = 1024\nshutdown_grace_ms = 7\n',
    )
    made = config("--config", file)
    assert (made.broker_name, made.long_polling_enable, made.store.max_message_size) == ("broker-y", False, 1024)
    assert made.shutdown_grace_ms == 7


def test_a_list_of_name_servers_may_be_a_toml_list(tmp_path: Path) -> None:
    file = written(tmp_path / "broker.toml", 'namesrv = ["a:1", "b:2"]\n')
    assert config("--config", file).namesrvs() == ["a:1", "b:2"]


def test_environment_wins_over_the_file_and_flags_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "broker.conf", "brokerName=from-file\nbrokerClusterName=from-file\n")
    monkeypatch.setenv("DEJAMQ_BROKER_NAME", "from-environment")
    monkeypatch.setenv("DEJAMQ_CLUSTER_NAME", "from-environment")
    made = config("--config", file, "--name", "from-flag")
    assert (made.broker_name, made.cluster_name) == ("from-flag", "from-environment")


def test_set_reaches_settings_of_the_store() -> None:
    assert config("--set", "flushDiskType=SYNC_FLUSH").store.sync_flush
    assert config("--set", "max_message_size=5").store.max_message_size == 5


def test_set_may_be_given_again_and_the_last_one_counts() -> None:
    assert config("--set", "brokerName=a", "--set", "brokerName=b").broker_name == "b"


def test_a_flag_of_its_own_wins_over_set() -> None:
    assert config("--set", "broker_name=by-set", "--name", "by-flag").broker_name == "by-flag"


def test_addresses_that_clients_are_told_may_be_given_several_times() -> None:
    made = config("--advertise", "10.0.0.1:10911", "--advertise", "host=127.0.0.1:20911")
    assert made.advertised() == {"": "10.0.0.1:10911", "host": "127.0.0.1:20911"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("brokerRole=SLAVE", "id above 0"),
        ("brokerRole=SYNC_MASTER\nbrokerId=1", "has id 0"),
        ("brokerRole=LEADER", "SYNC_MASTER"),
        ("inSyncReplicas=0", "above 0"),
        ("haTransferBatchSize=100000000", "over 33554432"),
        ("brokerId=-1", "negative"),
        ("brokerId=one", "whole number"),
        ("brokerName=a b", "letters"),
        ("flushDiskType=FAST", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("mappedFileSizeConsumeQueue=30", "multiple of 20"),
        ("mappedFileSizeCommitLog=100", "4096"),
        ("messageDelayLevel=1s 5x", "1s 5s 2m 1h"),
        ("maxMessageSize=0", "above 0"),
        ("syncFlushTimeout=0", "not a time above 0"),
        ("autoCreateTopicEnable=maybe", "true or false"),
        ("namesrvAddr=nowhere", "HOST:PORT"),
        ("brokerNam=x", "did you mean"),
    ],
)
def test_a_value_that_cannot_work_is_refused_in_words(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        config("--config", written(tmp_path / "broker.conf", text + "\n"))


@pytest.mark.parametrize("address", ["nowhere", "host:99999", ":1", "a:b"])
def test_an_advertised_address_that_nobody_can_dial_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        config("--advertise", address)


def test_delay_levels_of_a_file_become_milliseconds(tmp_path: Path) -> None:
    file = written(tmp_path / "broker.conf", "messageDelayLevel=1s 2m 3h 1d\n")
    assert config("--config", file).store.delay_levels_ms == (1000, 120_000, 10_800_000, 86_400_000)


@pytest.mark.slow
def test_the_process_refuses_a_bad_file_with_one_line_and_status_2(tmp_path: Path) -> None:
    status, text = said("--config", written(tmp_path / "broker.conf", "flushDiskType=FAST\n"))
    assert status == 2
    assert text.startswith("dejamq-broker: flush_disk_type")
    assert text.count("\n") == 1


@pytest.mark.slow
def test_the_process_refuses_a_missing_file_with_one_line_and_status_2(tmp_path: Path) -> None:
    status, text = said("--config", str(tmp_path / "absent.toml"))
    assert status == 2
    assert "absent.toml" in text
    assert text.count("\n") == 1


@pytest.mark.slow
def test_a_file_decides_where_the_process_serves_and_stores(tmp_path: Path) -> None:
    store = tmp_path / "kept-here"
    file = written(
        tmp_path / "broker.toml",
        f'broker_name = "broker-z"\nlisten = "127.0.0.1:0"\nnamesrv = ""\nstore_directory = "{store}"\n'
        "mapped_file_size_commit_log = 65536\n",
    )
    command = [sys.executable, "-m", "dejamq_broker", "--config", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
        finally:
            process.terminate()
        assert words[:3] == ["ready", "broker", "broker-z"]
        assert process.wait(30) == 0
    assert (store / "commitlog").is_dir()
    assert not (store / "abort").exists()
