"""Settings: where values come from, what is refused, how time is scaled."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import load, scaled, setting


@dataclass(frozen=True)
class Inner:
    wait_ms: int = setting(1000, scale="interval")


@dataclass(frozen=True)
class Sample:
    flush_interval_ms: int = setting(500, rocketmq="flushIntervalCommitLog", unit="ms", scale="interval")
    call_timeout_ms: int = setting(3000, unit="ms", scale="timeout")
    flush_disk_type: str = setting("ASYNC_FLUSH", rocketmq="flushDiskType")
    orderly: bool = setting(False)
    name: str | None = setting(None)
    inner: Inner = Inner()

    def validate(self) -> None:
        if self.flush_interval_ms < 1:
            raise ConfigError("flush_interval_ms must be at least 1")


def test_flags_win_over_environment_and_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('flush_interval_ms = 1\ncall_timeout_ms = 1\nname = "file"\n')
    env = {"DEJAMQ_CALL_TIMEOUT_MS": "2", "DEJAMQ_NAME": "env", "UNRELATED": "x"}
    got = load(Sample, file=file, env=env, overrides={"name": "flag"})
    assert (got.flush_interval_ms, got.call_timeout_ms, got.name) == (1, 2, "flag")


def test_rocketmqs_own_conf_file_is_read_with_its_spelling(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# a comment\nflushDiskType = SYNC_FLUSH\nflushIntervalCommitLog=7\n")
    got = load(Sample, file=file, env={})
    assert (got.flush_disk_type, got.flush_interval_ms) == ("SYNC_FLUSH", 7)


def test_an_unknown_key_is_refused_with_near_ones() -> None:
    with pytest.raises(ConfigError, match="did you mean flush_disk_type"):
        load(Sample, env={}, overrides={"flush_disk_typ": "x"})


@pytest.mark.parametrize(
    ("key", "value"), [("flush_interval_ms", "soon"), ("orderly", "maybe"), ("flush_interval_ms", 1.5)]
)
def test_a_value_of_the_wrong_type_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        load(Sample, env={}, overrides={key: value})


def test_the_class_has_the_last_word() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        load(Sample, env={}, overrides={"flush_interval_ms": 0})


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("1", True), ("False", False), ("0", False)])
def test_booleans_are_read_from_texts(text: str, expected: bool) -> None:
    assert load(Sample, env={"DEJAMQ_ORDERLY": text}).orderly is expected


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load(Sample, file=tmp_path / "none.toml", env={})


def test_a_toml_file_that_is_not_utf_8_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.toml"
    file.write_bytes('flush_disk_type = "Straße"'.encode("latin-1"))
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(Sample, file=file, env={})


def test_comments_of_a_broker_conf_may_be_in_any_encoding(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes("# 刷盘\norderly=true\n".encode("gbk"))
    assert load(Sample, file=file, env={}).orderly is True


@pytest.mark.parametrize(("name", "text"), [("a.conf", "flushDiskType=x"), ("a.toml", "flush_disk_type = 'x'")])
def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8-sig")
    assert load(Sample, file=file, env={}).flush_disk_type == "x"


def test_two_spellings_of_one_setting_may_agree_and_are_refused_when_they_differ() -> None:
    same = {"flush_interval_ms": "7", "flushIntervalCommitLog": "7"}
    assert load(Sample, env={}, overrides=same).flush_interval_ms == 7
    with pytest.raises(ConfigError, match="flush_interval_ms and flushIntervalCommitLog are one setting"):
        load(Sample, env={}, overrides=same | {"flush_interval_ms": "8"})


def test_scaling_shrinks_intervals_more_than_time_outs_and_keeps_the_rest() -> None:
    got = scaled(Sample(), 0.01)
    assert (got.flush_interval_ms, got.call_timeout_ms, got.flush_disk_type) == (5, 300, "ASYNC_FLUSH")
    assert got.inner.wait_ms == 10
