"""The offset file of a broadcasting consumer: RocketMQ's own, read and written byte for byte, and safe from crashes."""

import errno
import os
from pathlib import Path

import pytest
from dejamq.rebalance.local_offsets import LocalOffsets, OffsetsUnreadable, decode_offsets, encode_offsets
from dejamq.values.message import MessageQueue

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FILES = sorted(GOLDEN.glob("*/rocketmq_offsets/*/*/offsets.json*"))


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def local(home: Path) -> LocalOffsets:
    return LocalOffsets("192.0.2.2@bc", "G", home)


def test_there_are_files_of_a_real_rocketmq_to_read() -> None:
    assert len(FILES) == 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-5]}-{path.name}")
def test_a_file_of_rocketmqs_client_is_read_and_written_again_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    table = decode_offsets(text)
    assert set(table) == {queue(queue_id, "GoldenTopic") for queue_id in range(4)}
    assert set(table.values()) <= {100, 83, 82}
    assert encode_offsets(table) == text


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_offsets_of_a_rocketmq_client_are_found_in_its_folder(name: str) -> None:
    home = GOLDEN / name / "rocketmq_offsets"
    offsets = LocalOffsets("192.0.2.2@bc", "GroupBroadcast", home).load()
    assert sum(offsets.values()) == (400 if name == "clean" else 330)


@pytest.mark.parametrize(
    "table",
    [{}, {queue(0): 0}, {queue(0): 1 << 40, queue(1, 'odd "}:{, name'): 7}, {queue(3, "订单"): 1}],
    ids=["empty", "zero", "odd names", "chinese"],
)
def test_what_is_written_is_read(table: dict[MessageQueue, int]) -> None:
    assert decode_offsets(encode_offsets(table)) == table


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"offsetTable":{{"queueId":0}:1}}',
        '{"offsetTable":{"T":1}}',
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}',
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:1',
    ],
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting|is no queue"):
        decode_offsets(text)


def test_a_folder_may_be_given_from_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LocalOffsets("me", "g", Path("~/offsets")).path == tmp_path / "offsets" / "me" / "g" / "offsets.json"


def test_nothing_saved_yet_is_no_offsets(tmp_path: Path) -> None:
    assert local(tmp_path).load() == {}


def test_the_last_table_counts_and_the_one_before_is_kept(tmp_path: Path) -> None:
    store = local(tmp_path)
    for value in (1, 2, 3):
        store.save({queue(0): value})
    assert local(tmp_path).load() == {queue(0): 3}
    assert decode_offsets(store.path.with_name("offsets.json.bak").read_text()) == {queue(0): 2}
    assert sorted(path.name for path in store.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


@pytest.mark.parametrize("damage", ["", "{", '{"offsetTable":{{"bro'])
def test_a_damaged_file_falls_back_to_its_backup_and_never_becomes_the_backup(tmp_path: Path, damage: str) -> None:
    store = local(tmp_path)
    store.save({queue(0): 1})
    store.save({queue(0): 2})
    store.path.write_text(damage)
    assert store.load() == {queue(0): 1}
    store.save({queue(0): 3})
    assert decode_offsets(store.path.with_name("offsets.json.bak").read_text()) == {queue(0): 1}


def test_a_crash_before_the_rename_leaves_the_old_table(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.save({queue(0): 1})
    store.path.with_name("offsets.json.tmp").write_text('{"offsetTable":{{')
    assert store.load() == {queue(0): 1}


def test_a_crash_after_the_backup_was_linked_does_not_stop_the_next_save(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.save({queue(0): 1})
    store.path.with_name("offsets.json.bak.tmp").hardlink_to(store.path)
    store.save({queue(0): 2})
    assert store.load() == {queue(0): 2}


def test_when_neither_can_be_read_it_says_so_instead_of_beginning_anywhere(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.save({queue(0): 1})
    store.save({queue(0): 2})
    store.path.write_text("{")
    store.path.with_name("offsets.json.bak").write_text("{")
    with pytest.raises(OffsetsUnreadable, match=r"offsets\.json cannot be read .* delete it"):
        store.load()


def test_two_members_of_one_file_fail_no_save_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with one client id: what they stage must not be moved away by the other."""
    one, two = local(tmp_path), local(tmp_path)
    real, within = os.replace, False

    def replace(source: Path, target: Path) -> None:
        nonlocal within
        if not within:  # the other one saves between each staging and its replacement
            within = True
            two.save({queue(1): 2})
            within = False
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    one.save({queue(0): 1})
    one.save({queue(0): 2})
    assert local(tmp_path).load() == {queue(0): 2}
    assert sorted(path.name for path in one.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


def test_a_save_that_fails_leaves_nothing_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    store = local(tmp_path)
    store.save({queue(0): 1})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        store.save({queue(0): 2})
    assert [path.name for path in store.path.parent.iterdir()] == ["offsets.json"]
