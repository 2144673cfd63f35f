"""Verify on topics that were deleted: what is left of a former life in the log is not missed, and damage is found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from dejamq_broker.store.offline.findings import Severity
from store_making import crashed_copy, fill_queue, log_files, mark, open_small, overwrite, settle
from verify_making import I64, kinds, verified

FORMER, LATER = 120, 70
"""Messages of the former life in each of its three queues, and of the later one in each of its two."""


def remade(directory: Path, *, later: int = LATER, forgotten: bool = False) -> int:
    """A store, closed cleanly, whose topic T was deleted and made again, beside U; where its former life ended.

    ``forgotten``: T is no topic any more.
    """
    store = open_small(directory)
    for queue_id in range(3):
        fill_queue(store, FORMER, queue_id=queue_id)
    fill_queue(store, 30, topic="U")
    mark(store)
    store.delete_topic("T")
    ended = store.log_max
    for queue_id in range(2):
        fill_queue(store, later, queue_id=queue_id, first=500)
    settle(store)
    store.close()
    (directory / "config").mkdir()
    topics = ["U"] if forgotten else ["T", "U"]
    table: dict[str, dict[str, object]] = {topic: {} for topic in topics}
    (directory / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return ended


@pytest.mark.parametrize("later", [0, 1, LATER, FORMER, FORMER + 50])
@pytest.mark.parametrize("settings", [True, False], ids=["settings", "no settings"])
def test_a_topic_that_was_made_again_is_whole_however_many_messages_it_got(
    tmp_path: Path, later: int, settings: bool
) -> None:
    ended = remade(tmp_path, later=later)
    if not settings:
        shutil.rmtree(tmp_path / "config")
    report = verified(tmp_path)
    (finding,) = report.findings
    assert (report.verdict, finding.kind, finding.severity) == ("whole", "deleted", Severity.NOTE)
    assert (finding.where, finding.count) == ("topic T", 3 * FORMER)
    assert f"deleted at log offset {ended}" in finding.what


def test_a_topic_that_was_deleted_and_not_made_again_is_told_in_the_same_way(tmp_path: Path) -> None:
    remade(tmp_path, later=0, forgotten=True)
    (finding,) = verified(tmp_path).findings
    assert (finding.kind, finding.count) == ("deleted", 3 * FORMER)


def test_of_several_lives_only_the_last_is_looked_for(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    for life in range(4):
        fill_queue(store, 80 - 20 * life, first=100 * life)
        mark(store)
        if life < 3:
            store.delete_topic("T")
    store.close()
    report = verified(tmp_path)
    assert (report.verdict, [finding.count for finding in report.findings]) == ("whole", [80 + 60 + 40])


def patch(directory: Path, queue: str, queue_offset: int, data: bytes, at: int = 0) -> None:
    place = queue_offset * 20
    file = directory / "consumequeue" / queue / f"{place // 1000 * 1000:020d}"
    overwrite(file, place % 1000 + at, data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "the first entry elsewhere": (lambda d: patch(d, "T/0", 0, I64.pack(99_840)), "entry", "T/0@0"),
    "an entry of another tag": (lambda d: patch(d, "T/1", 60, I64.pack(77), 12), "entry", "T/1@60"),
    "the first entry empty": (lambda d: patch(d, "T/0", 0, bytes(20)), "entry-missing", "T/0@0"),
    "an entry in the middle empty": (lambda d: patch(d, "T/0", 30, bytes(20)), "entry-missing", "T/0@30"),
    "the first entry of the former life": (lambda d: patch(d, "T/0", 0, I64.pack(192)), "entry-missing", "T/0@0"),
    "an entry of the former life": (lambda d: patch(d, "T/0", 30, I64.pack(192)), "entry-missing", "T/0@30"),
    "the last entries empty": (lambda d: patch(d, "T/0", LATER - 2, bytes(40)), "entry-missing", "(2 times)"),
    "a queue gone": (lambda d: shutil.rmtree(d / "consumequeue/T/1"), "entry-missing", "(70 times)"),
    "an entry apart": (lambda d: patch(d, "T/0", LATER + 5, I64.pack(99_840) + b"\0\0\0\xc0"), "entry-apart", "stands"),
    "a former entry apart": (
        lambda d: patch(d, "T/0", LATER + 5, I64.pack(192) + b"\0\0\0\xc0"), "entry-former", "T/0@75"
    ),
    "entries of another topic": (lambda d: patch(d, "U/0", 3, bytes(20)), "entry-missing", "U/0@3"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_of_a_topic_that_was_made_again_is_found(tmp_path: Path, name: str) -> None:
    remade(tmp_path)
    damage, kind, words = DAMAGES[name]
    damage(tmp_path)
    report = verified(tmp_path)
    assert report.verdict == "damaged"
    told = [finding.text for finding in report.findings if finding.kind == kind]
    assert any(words in text for text in told), [finding.text for finding in report.findings]


def test_a_record_of_the_former_life_that_cannot_be_read_is_damage_too(tmp_path: Path) -> None:
    """It is still found by its id."""
    remade(tmp_path)
    overwrite(log_files(tmp_path)[0], 10 * 192 + 100, b"?")
    report = verified(tmp_path)
    assert (report.verdict, kinds(report)) == ("damaged", {"log-record", "deleted"})


def test_a_lost_list_of_deletions_is_told_by_the_entries_that_the_former_life_has_not(tmp_path: Path) -> None:
    remade(tmp_path, later=0)
    (tmp_path / "deleted.json").unlink()
    report = verified(tmp_path)
    assert (report.verdict, kinds(report)) == ("damaged", {"entry-missing"})


@pytest.mark.parametrize("later", [0, 10, FORMER + 50])
def test_queues_of_the_former_life_that_a_kill_left_are_no_damage(tmp_path: Path, later: int) -> None:
    """The list of the deleted was on disk before the queues went, so the next start takes them away."""
    store = open_small(tmp_path / "store")
    fill_queue(store, FORMER)
    mark(store)
    crashed_copy(tmp_path / "store", tmp_path / "killed")
    store.delete_topic("T")
    fill_queue(store, later, first=500)
    store.close()
    for name in ("commitlog", "deleted.json"):
        source, target = tmp_path / "store" / name, tmp_path / "killed" / name
        shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, target)
    report = verified(tmp_path / "killed")
    (left,) = [finding for finding in report.findings if finding.kind == "entry-former"]
    assert (report.verdict, left.where, left.severity) == ("whole", "queue T/0@0", Severity.RECOVERS)
    found = open_small(tmp_path / "killed")
    assert found.max_offset("T", 0) == later
    found.close()
    assert verified(tmp_path / "killed").verdict == "whole"
    assert kinds(verified(tmp_path / "killed")) == {"deleted"}


def test_messages_of_a_former_life_that_expired_are_not_counted(tmp_path: Path) -> None:
    ended = remade(tmp_path)
    for path in log_files(tmp_path):
        if int(path.name) + 65_536 <= ended:
            path.unlink()
    (finding,) = verified(tmp_path).findings
    assert (finding.kind, finding.count < 3 * FORMER) == ("deleted", True)


@pytest.mark.parametrize("killed", [False, True])
def test_a_deletion_behind_the_end_of_the_log_is_what_only_a_power_loss_leaves(tmp_path: Path, killed: bool) -> None:
    remade(tmp_path)
    (tmp_path / "deleted.json").write_text('{"V":99999999}')
    if killed:
        (tmp_path / "abort").write_text("1")
    (told,) = [finding for finding in verified(tmp_path).findings if finding.kind == "mark"]
    assert (told.where, told.severity) == ("deleted.json", Severity.RECOVERS if killed else Severity.DAMAGE)
    assert "99999999" in told.text


@pytest.mark.parametrize("content", [b"[]", b'{"T":', b'{"T":"x"}', b"\xff"])
def test_a_list_of_deletions_that_cannot_be_read_is_told(tmp_path: Path, content: bytes) -> None:
    remade(tmp_path)
    (tmp_path / "deleted.json").write_bytes(content)
    report = verified(tmp_path)
    assert report.verdict == "damaged"
    assert any(finding.where == "deleted.json" and finding.kind == "mark" for finding in report.findings)
