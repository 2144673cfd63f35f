"""Files with anything in them: each reader reads them or says what is wrong, and what it took can be told on."""

import json
import logging
import random
import zlib
from pathlib import Path

import pytest
from dejamq.rebalance.local_offsets import LocalOffsets, OffsetsUnreadable
from dejamq_analytics.sources.paths import BadInput
from dejamq_broker.base import json_file
from dejamq_broker.base.config import BrokerConfig
from dejamq_namesrv.kv_config import KvConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import load
from dejamq_proto.loose_json import loads_loose
from file_readers import Reader, read_as, readers
from hostile_bytes import NUMBERS, TEXTS, damaged, each_value
from prove_files import CORPUS

READERS = list(readers())
INPUTS = 40
MOST_VALUES = 150
KEPT = sorted(CORPUS.iterdir())


@pytest.fixture(autouse=True)
def quiet() -> object:
    """Readers warn of what they leave out."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def by_name(reader: Reader) -> str:
    return reader.name


@pytest.mark.parametrize("reader", READERS, ids=by_name)
def test_a_real_file_is_read(reader: Reader, tmp_path: Path) -> None:
    assert all(read_as(reader, seed, tmp_path) == "read" for seed in reader.seeds[:5])


@pytest.mark.parametrize("reader", READERS, ids=by_name)
def test_a_damaged_file_is_read_or_refused_in_words(reader: Reader, tmp_path: Path, seed: int) -> None:
    for number in range(INPUTS):
        source = random.Random(f"{reader.name} {seed + number}")
        read_as(reader, damaged(source.choice(reader.seeds), source, text=reader.text), tmp_path)


@pytest.mark.parametrize("reader", [one for one in READERS if one.text], ids=by_name)
def test_whatever_stands_where_a_name_or_a_number_is_expected_is_read_or_refused(
    reader: Reader, tmp_path: Path
) -> None:
    """Of long files a part of all combinations, always the same: the proof has the rest."""
    every = list(each_value(min(reader.seeds, key=len)))
    chosen = random.Random(zlib.crc32(reader.name.encode())).sample(every, min(len(every), MOST_VALUES))
    for data in chosen:
        read_as(reader, data, tmp_path)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_what_was_a_fault_once_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    name = path.name.rpartition("-")[0]
    (reader,) = (one for one in READERS if one.name.replace(" ", "_").replace(",", "") == name)
    read_as(reader, path.read_bytes(), tmp_path)


# --- a file of size 0 whose backup is of size 0 too


def test_a_table_that_is_empty_like_its_backup_stops_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.touch()
    json_file.backup_of(path).touch()
    with pytest.raises(json_file.UnreadableFile, match="is empty: what it held is lost; repair it, or move it away"):
        json_file.load(path)


def test_a_broadcasting_member_does_not_begin_anew_because_its_file_and_the_backup_are_empty(tmp_path: Path) -> None:
    offsets = LocalOffsets("c", "g", tmp_path)
    offsets.path.parent.mkdir(parents=True)
    assert offsets.load() == {}
    offsets.path.touch()
    offsets.path.with_name("offsets.json.bak").touch()
    with pytest.raises(OffsetsUnreadable, match="empty"):
        offsets.load()


def test_a_name_server_whose_values_are_empty_stops(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").touch()
    with pytest.raises(ConfigError, match="repair it or move it away"):
        KvConfig(str(tmp_path))


def test_a_following_audit_whose_state_is_empty_stops_and_says_what_to_move_away(tmp_path: Path) -> None:
    (reader,) = (one for one in READERS if one.name == "state of --follow")
    with pytest.raises(BadInput, match=r"move .*version-000000000001 away"):
        reader.read(b"", tmp_path)


# --- settings


@pytest.mark.parametrize("value", [text.decode() for text in NUMBERS if text != b"-0"])
@pytest.mark.parametrize("key", ["flush_consumer_offset_interval_ms", "broker_id", "max_message_size"])
def test_a_setting_that_is_no_number_of_64_bits_is_refused_in_one_line(key: str, value: str) -> None:
    said = [value]
    try:
        load(BrokerConfig, overrides={key: value}, env={})
    except ConfigError as error:
        said = [*str(error).splitlines()]
    assert len(said) == 1
    assert len(said[0]) < 500


@pytest.mark.parametrize("text", ["inf", "nan", "1e400", "9" * 5000, "[" * 5000, "1_0", "0x7fffffffffffffffffff"])
def test_numbers_of_a_settings_file_that_cannot_be_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text(f"flush_consumer_offset_interval_ms = {text}\n")
    if text != "1_0":  # TOML writes ten like that
        with pytest.raises(ConfigError):
            load(BrokerConfig, file=tmp_path / "broker.toml", env={})


# --- tables


@pytest.mark.parametrize("name", ["", ".", "..", "../../x", "/etc/passwd", "a/b", "a\\u0000b", "x" * 300, "\\ud800"])
def test_a_topic_that_would_be_another_folder_stops_the_start(name: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text(f'{{"topicConfigTable":{{"{name}":{{"topicName":"{name}"}}}}}}')
    (reader,) = (one for one in READERS if one.name == "topics.json")
    with pytest.raises(json_file.UnreadableFile, match=r"topics\.json"):
        reader.read(path.read_bytes(), tmp_path)


@pytest.mark.parametrize("text", [r'"\ud800"', r'{1:"\udfff"}', r'["\ud83e"]'])
def test_half_a_letter_is_no_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads_loose(text)
    assert loads_loose(r'{0:"\ud83e\udd86"}') == {"0": "🦆"}


def test_every_hostile_text_survives_a_table(tmp_path: Path) -> None:
    """What a name may hold is written and read as it is."""
    path = tmp_path / "x.json"
    texts = [text.decode() for text in TEXTS if text.isascii()]
    json_file.write(path, {"texts": texts})
    assert json_file.load(path)[0] == {"texts": texts}
    assert json.loads(path.read_text())["texts"] == texts
