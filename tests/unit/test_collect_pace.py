"""The rate of ``dejamq collect``: turns are shared out, and come no faster than was said."""

import asyncio

from dejamq_cli.collecting.servers import Pace


async def test_turns_are_no_faster_than_was_said_and_nobody_takes_those_of_others() -> None:
    pace, taken = Pace(200), []

    async def take(name: str) -> None:
        for _ in range(10):
            await pace.turn()
            taken.append(name)

    begin_s = asyncio.get_running_loop().time()
    await asyncio.gather(take("a"), take("b"))
    assert asyncio.get_running_loop().time() - begin_s >= 19 / 200
    assert all(abs(taken[:count].count("a") - taken[:count].count("b")) <= 2 for count in range(20))
    assert pace.taken == 20


async def test_turns_that_were_not_taken_are_not_kept_for_later() -> None:
    pace = Pace(100)
    await pace.turn()
    await asyncio.sleep(0.1)
    begin_s = asyncio.get_running_loop().time()
    for _ in range(3):
        await pace.turn()
    assert asyncio.get_running_loop().time() - begin_s >= 2 / 100
