"""The time of day of a process, how it is made to jump, and what ages are counted by."""

import time
from pathlib import Path

import pytest
from dejamq.values.config import ConsumerConfig
from dejamq_broker.base.config import BrokerConfig
from dejamq_proto import failpoints
from dejamq_proto.clock import MONOTONIC, Clock
from dejamq_proto.codes import ConfigError
from dejamq_proto.failpoints import Failpoints, arm
from dejamq_proto.journal.events import Gap
from dejamq_proto.journal.writer import open_journal
from journalled import journalled

JUMP_MS = 130_000


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that sets the clock of what is made here."""
    file = tmp_path / "armed"
    monkeypatch.setattr(failpoints, "ARMED", True)
    monkeypatch.setattr(failpoints, "LOOK_POLL_S", 0)
    monkeypatch.setattr(failpoints, "_armed", Failpoints(f"@{file}"))
    return file


def off_ms(clock: float) -> float:
    return (clock - time.time()) * 1000


def test_without_failpoints_the_clocks_are_pythons_own() -> None:
    clock = Clock()
    assert clock.wall_s is time.time
    assert clock.age_s is time.time


def test_a_clock_jumps_while_its_process_runs_and_jumps_back(armed: Path) -> None:
    clock = Clock()
    assert abs(off_ms(clock.age_s())) < 1000
    arm(armed, failpoints.CLOCK, f"+{JUMP_MS}")
    assert abs(off_ms(clock.age_s()) - JUMP_MS) < 1000
    arm(armed, failpoints.CLOCK, "-5000")
    assert abs(off_ms(clock.wall_s()) + 5000) < 1000


def test_monotonic_ages_do_not_jump_and_the_time_of_day_does(armed: Path) -> None:
    clock = Clock(MONOTONIC)
    arm(armed, failpoints.CLOCK, f"+{JUMP_MS}")
    assert abs(off_ms(clock.age_s())) < 1000
    assert abs(off_ms(clock.wall_s()) - JUMP_MS) < 1000


def test_a_jump_is_no_place_that_can_be_reached(armed: Path) -> None:
    arm(armed, failpoints.CLOCK, "+1")
    arm(armed, "here", "1*drop->off")
    assert failpoints.numbers(armed.read_text()) == {"clock": 1}
    assert list(failpoints.parse(armed.read_text())) == ["here"]


def test_a_jump_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"clock=soon is not a number"):
        Failpoints("clock=soon")


def test_the_journal_tells_of_a_jump_before_the_line_that_follows_from_it(armed: Path, tmp_path: Path) -> None:
    clock = Clock()
    journal = open_journal(
        tmp_path, role="broker", process="b", boot_id="b0", level="forensic", wall=clock.wall_s
    )  # fmt: skip
    journal.write(Gap(missing_ms=1))
    arm(armed, failpoints.CLOCK, f"-{JUMP_MS}")
    journal.write(Gap(missing_ms=2))
    journal.write(Gap(missing_ms=3))
    journal.close()
    assert journal.path is not None
    lines = journalled(journal.path)
    assert [line["event"] for line in lines] == ["GAP", "CLOCK", "GAP", "GAP"]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert abs(lines[1]["jumped_ms"] + JUMP_MS) < 1000
    assert lines[2]["wall_us"] < lines[0]["wall_us"]


def test_a_process_that_stood_between_two_clocks_has_no_jump(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, role="broker", process="b", boot_id="b0", level="forensic")
    stops = iter([0.0, 60.0])
    stood_s = 0.0

    def mono() -> float:
        nonlocal stood_s
        stood_s += next(stops, 0.0)
        return time.monotonic() + stood_s

    journal._mono, journal._wall = mono, lambda: time.time() + stood_s
    journal.write(Gap(missing_ms=1))
    journal.write(Gap(missing_ms=2))
    journal.close()
    assert journal.path is not None
    assert "CLOCK" not in journal.path.read_text()


@pytest.mark.parametrize("config", [BrokerConfig(age_clock="sundial"), ConsumerConfig(age_clock="sundial")])
def test_a_clock_that_there_is_not_is_refused(config: BrokerConfig | ConsumerConfig) -> None:
    with pytest.raises(ConfigError, match="wall or monotonic, not 'sundial'"):
        config.validate()
