"""Small JSON files: what is read back after each way a writer can be interrupted."""

from pathlib import Path

import pytest
from dejamq_broker.base import json_file
from dejamq_proto.loose_json import loads_loose


def test_what_is_written_is_read_back_and_the_generation_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "config" / "x.json"
    for number in range(3):
        json_file.write(path, {"n": number})
    assert json_file.load(path) == ({"n": 2}, "main")
    assert loads_loose(json_file.backup_of(path).read_text()) == {"n": 1}
    assert sorted(p.name for p in path.parent.iterdir()) == ["x.json", "x.json.bak"]


def test_a_writer_killed_before_the_rename_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    json_file.write(path, {"n": 1})
    json_file.stage(path, '{"n": 2')
    assert json_file.load(path) == ({"n": 1}, "main")


def test_a_writer_killed_between_link_and_rename_does_not_stop_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    json_file.write(path, {"n": 1})
    (tmp_path / "x.json.bak.tmp").hardlink_to(path)
    json_file.write(path, {"n": 2})
    assert json_file.load(path) == ({"n": 2}, "main")


def test_nothing_there_is_none_and_an_empty_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert json_file.load(path) == (None, "none")
    path.touch()
    with pytest.raises(json_file.UnreadableFile, match="is empty: what it held is lost"):
        json_file.load(path)
    json_file.backup_of(path).write_text('{"n": 1}')
    assert json_file.load(path) == ({"n": 1}, "bak")


def test_an_empty_file_with_an_empty_backup_is_not_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.touch()
    json_file.backup_of(path).touch()
    with pytest.raises(json_file.UnreadableFile, match=r"x\.json is empty: .* move it away to start without"):
        json_file.load(path)
    path.unlink()
    with pytest.raises(json_file.UnreadableFile, match=r"x\.json\.bak is empty"):
        json_file.load(path)


def test_a_damaged_file_is_moved_aside_for_its_backup_and_never_overwrites_it(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    json_file.backup_of(path).write_text('{"n": 1}')
    path.write_text('{"n": 2, "t')
    assert json_file.load(path) == ({"n": 1}, "bak")
    assert (tmp_path / "x.json.damaged").read_text() == '{"n": 2, "t'
    json_file.write(path, {"n": 3})
    assert json_file.backup_of(path).read_text() == '{"n": 1}'


@pytest.mark.parametrize("text", ["garbage", "[1]", "\x00\x00"])
def test_a_damaged_file_without_a_backup_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(json_file.UnreadableFile, match=r"x\.json"):
        json_file.load(path)
    assert path.read_text() == text
