"""A name server's flags and files, and what is refused before anything is bound."""

from pathlib import Path

import pytest
from dejamq_namesrv.__main__ import config_of, parser
from dejamq_namesrv.config import NamesrvConfig, check_listen
from dejamq_proto.codes import ConfigError


def config(*arguments: str) -> NamesrvConfig:
    return config_of(parser().parse_args(list(arguments)))


def test_without_flags_rocketmqs_port_and_times_are_taken() -> None:
    made = config()
    assert made.listen == "127.0.0.1:9876"
    assert (made.scan_not_active_broker_interval_ms, made.broker_timeout_ms) == (5_000, 120_000)


def test_flags_are_stronger_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text('listen = "127.0.0.1:1"\nname = "from-the-file"\n')
    made = config("--config", str(file), "--listen", "127.0.0.1:2")
    assert (made.listen, made.name) == ("127.0.0.1:2", "from-the-file")


def test_rocketmqs_own_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("# a comment\norderMessageEnable = true\n\nscanNotActiveBrokerInterval=100\n")
    made = config("--config", str(file))
    assert made.order_message_enable
    assert made.scan_not_active_broker_interval_ms == 100


def test_rocketmqs_port_and_kv_file_make_ours_and_the_rest_has_no_effect(tmp_path: Path) -> None:
    unused: list[str] = []
    file = tmp_path / "namesrv.conf"
    file.write_text(
        "listenPort=19876\nkvConfigPath=/var/namesrv/kvConfig.json\nrocketmqHome=/opt\nserverWorkerThreads=8\n"
    )
    made = config_of(parser().parse_args(["--config", str(file)]), unused.append)
    assert (made.listen, made.directory) == ("127.0.0.1:19876", "/var/namesrv")
    assert unused == ["rocketmqHome", "serverWorkerThreads"]


@pytest.mark.parametrize("pair", ["orderMessageEnable=true", "order_message_enable = 1"])
def test_any_setting_goes_by_set_in_either_spelling(pair: str) -> None:
    assert config("--set", pair).order_message_enable


def test_set_without_an_equals_sign_is_refused() -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        config("--set", "order_message_enable")


def test_an_unknown_setting_of_a_file_names_the_file_and_near_ones(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("lisen = 'x'\n")
    with pytest.raises(ConfigError, match=r"lisen.*namesrv\.toml.*listen"):
        config("--config", str(file))


def test_a_file_that_is_not_toml_is_told(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("listen = \n")
    with pytest.raises(ConfigError, match="is not TOML"):
        config("--config", str(file))


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:9876", "0.0.0.0:65535", "name-with-dash:1"])
def test_an_address_with_a_port_is_fine(listen: str) -> None:
    check_listen(listen)


@pytest.mark.parametrize("listen", ["127.0.0.1", ":9876", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "1.2.3:5"])
def test_an_address_that_cannot_be_bound_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError):
        check_listen(listen)
