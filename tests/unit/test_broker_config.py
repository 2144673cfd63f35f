"""The broker's settings: spellings, strength, and values that cannot work."""

from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.__main__ import configured, parser
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site, peer_host, settle
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import load, scaled


def from_flags(*flags: str) -> BrokerConfig:
    return configured(parser().parse_args(flags))


def test_flags_win_over_a_file_in_rocketmqs_spelling(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nbrokerClusterName = c1\nflushConsumerOffsetInterval=100\n")
    config = from_flags("--config", str(file), "--name", "from-flag", "--set", "max_message_size=1000")
    assert (config.broker_name, config.cluster_name) == ("from-flag", "c1")
    assert (config.flush_consumer_offset_interval_ms, config.store.max_message_size) == (100, 1000)


def test_an_unknown_setting_names_near_ones() -> None:
    with pytest.raises(ConfigError, match="auto_create_topic_enable"):
        from_flags("--set", "auto_create_topics_enable=true")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        from_flags("--set", "nonsense")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"broker_name": "a b"}, "broker name"),
        ({"broker_id": -1}, "broker id"),
        ({"listen": "10911"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, "65535"),
        ({"advertise": "host"}, "HOST:PORT"),
        ({"namesrv": "127.0.0.1"}, "HOST:PORT"),
        ({"namesrv": "127.0.0.1:70000"}, "65535"),
        ({"journal_level": "loud"}, "forensic"),
        ({"flush_consumer_offset_interval_ms": 0}, "flush_consumer_offset_interval_ms"),
        ({"mapped_file_size_consume_queue": 7}, "mapped_file_size_consume_queue"),
    ],
)
def test_a_value_that_cannot_work_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(BrokerConfig, env={}, overrides=settings)


def test_several_advertised_addresses_are_told_apart_by_name() -> None:
    config = from_flags("--advertise", "10.0.0.5:1", "--advertise", "lan=host:2")
    assert config.advertised() == {"": "10.0.0.5:1", "lan": "host:2"}


def test_name_servers_are_split_and_named_once() -> None:
    config = load(BrokerConfig, env={"DEJAMQ_NAMESRV": "a:1;b:2, a:1"})
    assert config.namesrvs() == ["a:1", "b:2"]
    assert load(BrokerConfig, env={"DEJAMQ_NAMESRV": ""}).namesrvs() == []


def test_time_scales_together() -> None:
    config = scaled(load(BrokerConfig, env={}), 0.01)
    assert (config.flush_consumer_offset_interval_ms, config.channel_expired_timeout_ms) == (50, 1200)
    assert config.register_broker_timeout_ms == 2400
    assert config.store.delay_levels_ms[:3] == (10, 50, 100)


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:10.1.2.3:80", (0x0A010203, 80)), ("ipv6:[::1]:80", (0, 0)), ("unix:/x", (0, 0)), ("", (0, 0))],
)
def test_a_peers_name_becomes_a_record_host(peer: str, host: tuple[int, int]) -> None:
    assert peer_host(peer) == host


@pytest.mark.parametrize(
    ("advertise", "address", "others"),
    [
        ("", "127.0.0.1:5", {}),
        ("127.0.0.9:7", "127.0.0.9:7", {}),
        ("127.0.0.9:0;lan=127.0.0.8:0", "127.0.0.9:5", {"lan": "127.0.0.8:5"}),
        ("lan=127.0.0.8:6", "127.0.0.1:5", {"lan": "127.0.0.8:6"}),
    ],
)
async def test_what_clients_are_told_follows_from_where_it_listens(
    advertise: str, address: str, others: dict[str, str]
) -> None:
    site = Site(cluster="c", broker_name="b", broker_id=0, boot_id="x")
    await settle(site, BrokerConfig(advertise=advertise), "127.0.0.1:5")
    assert (site.address, site.advertised, site.store_address) == (address, others, address)


async def test_a_broker_on_every_interface_tells_an_address_that_others_can_dial() -> None:
    site = Site(cluster="c", broker_name="b", broker_id=0, boot_id="x")
    await settle(site, BrokerConfig(), "0.0.0.0:5")
    assert site.address.endswith(":5")
    assert site.address != "0.0.0.0:5"


@pytest.mark.parametrize("key", ["flushDiskType", "flush_disk_type"])
def test_the_stores_settings_take_either_spelling(key: str) -> None:
    assert load(BrokerConfig, env={}, overrides={key: "SYNC_FLUSH"}).store.sync_flush


def test_the_stores_flush_intervals_scale_too() -> None:
    assert scaled(load(BrokerConfig, env={}), 0.1).store.flush_interval_commit_log_ms == 50
