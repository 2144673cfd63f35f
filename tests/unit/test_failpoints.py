"""Failpoints: named places of a process that a test arms."""

import asyncio
from pathlib import Path

import pytest
from dejamq_proto import failpoints
from dejamq_proto.failpoints import Failpoint, Failpoints, arm


async def test_a_place_that_nobody_armed_passes() -> None:
    assert not await Failpoints("other=drop").reached("here")


async def test_terms_are_taken_in_their_order_each_as_often_as_it_says() -> None:
    armed = Failpoints("here=2*off->1*drop->off")
    assert [await armed.reached("here") for _ in range(5)] == [False, False, True, False, False]


async def test_a_term_without_a_count_is_for_ever() -> None:
    armed = Failpoints("here=drop->off")
    assert [await armed.reached("here") for _ in range(3)] == [True] * 3


async def test_an_armed_error_is_raised_with_the_name_of_the_place() -> None:
    with pytest.raises(Failpoint, match="here"):
        await Failpoints("here=error").reached("here")


async def test_a_pause_takes_its_time() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    await Failpoints("here=pause(50)").reached("here")
    assert loop.time() - before >= 0.05


@pytest.mark.parametrize("text", ["here", "here=", "here=pause", "here=drop(5)", "here=0.5*drop", "here=explode"])
def test_terms_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        Failpoints(text)


async def test_a_file_arms_a_process_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "armed"
    armed = Failpoints(f"@{file}")
    assert not await armed.reached("here")
    arm(file, "here", "1*drop->off")
    assert [await armed.reached("here") for _ in range(2)] == [True, False]


async def test_arming_another_place_does_not_count_anew(tmp_path: Path) -> None:
    file = tmp_path / "armed"
    arm(file, "here", "1*drop->off")
    armed = Failpoints(f"@{file}")
    assert await armed.reached("here")
    arm(file, "there", "drop")
    assert not await armed.reached("here")
    assert await armed.reached("there")


async def test_what_is_held_goes_on_when_the_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "armed"
    arm(file, "here", "hold")
    armed = Failpoints(f"@{file}")
    held = asyncio.create_task(armed.reached("here"))
    await asyncio.sleep(0.05)
    assert not held.done()
    arm(file, "here", "off")
    assert not await asyncio.wait_for(held, 20)


def test_without_the_variable_no_place_is_looked_at() -> None:
    assert not failpoints.ARMED


async def test_names_with_a_bar_between_them_share_one_count() -> None:
    armed = Failpoints("here|there=1*drop->off")
    assert [await armed.reached(name) for name in ("there", "here", "there")] == [True, False, False]


async def test_a_second_file_says_which_places_were_struck_and_when(tmp_path: Path) -> None:
    file = tmp_path / "armed"
    arm(file, "here", "1*off->1*drop->off")
    armed = Failpoints(f"@{file}")
    assert [await armed.reached("here") for _ in range(3)] == [False, True, False]
    (line,) = failpoints.struck_file(file).read_text().splitlines()
    assert line.split()[0].isdigit()
    assert line.split()[1:] == ["here", "drop"]
