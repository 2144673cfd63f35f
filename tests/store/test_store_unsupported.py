"""What a RocketMQ may write and this store does not read: refused in one line that says what to do, nothing touched."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from dejamq_broker.store import StoreError
from harm import entry
from store_making import GOLDEN, open_small, overwrite, records_of

EXT_ADDRESS = -(1 << 31) - 1


def extended(directory: Path) -> None:
    folder = directory / "consumequeue_ext" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(b"\0\x14")


def batches(directory: Path) -> None:
    folder = directory / "batchconsumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(46))


def batch_topic(directory: Path) -> None:
    (directory / "config").mkdir()
    (directory / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"Plain":{"attributes":{}},"Batched":{"attributes":{"queue.type":"BatchCQ"},"perm":6}}}'
    )


def ext_address(tags_code: int, count: int = 440) -> Callable[[Path], None]:
    """The last entries of T/0 get this tags code."""

    def harm(directory: Path) -> None:
        (directory / "dispatched.json").unlink()
        for number in range(count):
            entry(-1 - number, struct.pack(">q", tags_code), 12)(directory)

    return harm


@pytest.mark.parametrize(
    ("harm", "named", "advice"),
    [
        (extended, "consumequeue_ext", "move consumequeue_ext and consumequeue away"),
        (batches, "batchconsumequeue", "delete those topics there"),
        (batch_topic, "Batched", "delete it there"),
        (ext_address(EXT_ADDRESS), "consumequeue/T/0", "move this folder away"),
    ],
)
def test_what_is_not_supported_is_refused_and_left_alone(
    harm: Callable[[Path], None], named: str, advice: str, whole: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    harm(directory)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="supported") as refused:
        open_small(directory)
    assert named in str(refused.value)
    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_a_single_address_is_garbage_and_the_queue_is_made_again(whole: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    ext_address(EXT_ADDRESS, 1)(directory)
    store = open_small(directory)
    assert store.recovery.queues_rebuilt
    assert store.tags_code_at("T", 0, 439) == 0
    store.close()


@pytest.mark.parametrize("tags_code", [EXT_ADDRESS + 1, 0, 1_700_000_000_000])
def test_hash_codes_and_delivery_times_are_no_addresses(tags_code: int, whole: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    ext_address(tags_code)(directory)
    store = open_small(directory)
    assert len(records_of(store)) == 440
    store.close()


def test_the_advice_helps_a_store_of_a_rocketmq(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(GOLDEN / "clean" / "store", tmp_path / "store"))
    for number in range(20):
        at = 20 * number + 12
        overwrite(directory / "consumequeue" / "Order" / "0" / f"{0:020d}", at, struct.pack(">q", EXT_ADDRESS - number))
    with pytest.raises(StoreError, match="consumequeue/Order/0"):
        open_small(directory)
    shutil.move(directory / "consumequeue" / "Order", tmp_path / "away")
    store = open_small(directory)
    assert store.max_offset("Order", 0) == 20
    store.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable":[]}', '{"topicConfigTable":{"T":7,"U":{}}}'])
def test_a_table_of_topics_that_says_nothing_is_no_reason_to_refuse(text: str, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(text)
    (tmp_path / "consumequeue_ext").mkdir()
    open_small(tmp_path).close()
