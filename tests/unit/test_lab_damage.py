"""Harm to files: of what is written, not of the room behind it."""

from pathlib import Path

import pytest
from dejamq_lab.scenario.faults import harm
from dejamq_proto.codes import ConfigError

WRITTEN = bytes(range(1, 201))
ROOM = bytes(56)


@pytest.mark.parametrize(("how", "left"), [
    ("flip", WRITTEN[:100] + bytes([WRITTEN[100] ^ 1]) + WRITTEN[101:] + ROOM),
    ("tear", WRITTEN[:-64] + bytes(64) + ROOM),
    ("truncate", WRITTEN[:128]),
    ("empty", b""),
    ("garbage", b"\xff" * 256),
])  # fmt: skip
def test_a_file_is_harmed_as_it_is_said(tmp_path: Path, how: str, left: bytes) -> None:
    file = tmp_path / "log"
    file.write_bytes(WRITTEN + ROOM)
    harm(tmp_path, "lo*", how)
    assert file.read_bytes() == left


def test_a_way_that_there_is_not_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(WRITTEN)
    with pytest.raises(ConfigError, match="flip, tear, not 'burn'"):
        harm(tmp_path, "log", "burn")
