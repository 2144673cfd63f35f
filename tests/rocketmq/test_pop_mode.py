"""Push consumers of RocketMQ 5.3.3 in POP mode, with dejamq and with a real RocketMQ: they print the same."""

import asyncio
from pathlib import Path

import pytest
from java_clients import compiled, java, output_of

pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(400)]


def lines_of(output: str) -> list[str]:
    """Without what logback says of its own settings."""
    return [line for line in output.splitlines() if line and "|-" not in line]


async def test_push_consumers_pop_when_an_operator_says_so_and_pull_again_when_he_says_that(
    namesrv: str, real_namesrv: str, tmp_path: Path
) -> None:
    class_path = compiled("5.3.3", "PopMode")
    ours, real = await asyncio.gather(
        output_of(java(class_path, tmp_path / "ours", "PopMode", namesrv, "popmode"), tmp_path),
        output_of(java(class_path, tmp_path / "real", "PopMode", real_namesrv, "popmode"), tmp_path),
    )
    popped = [f"body {number:02} popped try 0" for number in range(12)]
    popped.insert(8, "body 07 popped try 1")
    told = lines_of(ours)
    assert told == ["popped", *popped, "after the switch they are pulled", "end"]
    assert told == lines_of(real)
