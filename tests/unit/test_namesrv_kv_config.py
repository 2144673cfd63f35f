import asyncio
import json
import os
import threading
from pathlib import Path

import pytest
from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.kv_config import FILE_NAME, KvConfig
from dejamq_proto.codes import Code, ConfigError, DejamqError


async def test_a_value_survives_a_restart_in_rocketmqs_file(tmp_path: Path) -> None:
    await KvConfig(str(tmp_path / "new")).put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    assert json.loads((tmp_path / "new" / FILE_NAME).read_text()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:4"}}
    }
    assert KvConfig(str(tmp_path / "new")).get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4"


async def test_an_absent_value_is_query_not_found() -> None:
    kv = KvConfig(None)
    await kv.put("n", "k", "v")
    await kv.delete("n", "k")
    await kv.delete("n", "k")
    with pytest.raises(DejamqError) as caught:
        kv.get("n", "k")
    assert caught.value.code == Code.QUERY_NOT_FOUND
    assert kv.namespace("n") == {}


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"configTable": [')
    with pytest.raises(ConfigError, match=FILE_NAME):
        KvConfig(str(tmp_path))
    assert (tmp_path / FILE_NAME).read_text() == '{"configTable": ['


async def test_a_value_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    kv = KvConfig(str(tmp_path))
    (tmp_path / "kvConfig.tmp").mkdir()
    with pytest.raises(DejamqError, match="cannot write"):
        await kv.put("n", "k", "v")
    assert kv.namespace("n") == {}


async def test_a_disk_that_hangs_keeps_no_value_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv, answers, real = KvConfig(str(tmp_path)), threading.Event(), os.fsync

    def hanging(descriptor: int) -> None:
        assert answers.wait(30)
        real(descriptor)

    await kv.put("n", "k", "1")
    monkeypatch.setattr(os, "fsync", hanging)
    changing = [asyncio.ensure_future(kv.put("n", "k", value)) for value in ("2", "3")]
    await asyncio.sleep(0)
    assert kv.get("n", "k") == "1"
    answers.set()
    await asyncio.gather(*changing)
    assert KvConfig(str(tmp_path)).get("n", "k") == kv.get("n", "k") == "3"


@pytest.mark.parametrize("listen", ["9876", "127.0.0.1", ":9876", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.300:1"])
def test_an_address_that_cannot_be_is_refused_before_the_start(listen: str) -> None:
    with pytest.raises(ConfigError, match="listen"):
        NamesrvConfig(listen=listen).validate()


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="broker_timeout_ms"):
        NamesrvConfig(broker_timeout_ms=0).validate()


def test_an_unknown_journal_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="journal_level"):
        NamesrvConfig(journal_level="loud").validate()
