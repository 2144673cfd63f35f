"""Histories of ``pop_machine.py`` and ``pop_order_machine.py`` in short; ``prove_pop_machine.py`` makes thousands."""

import random
from pathlib import Path

import pytest
from pop_machine import PopMachine
from pop_order_machine import OrderedPopMachine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


async def test_random_histories_of_pops_end_as_the_model_says(tmp_path: Path, seed: int) -> None:
    for number in range(10):
        await PopMachine(tmp_path / str(number), random.Random(f"{seed}-{number}")).run(40)


async def test_random_histories_of_pops_in_order_end_as_the_model_says(tmp_path: Path, seed: int) -> None:
    for number in range(10):
        await OrderedPopMachine(tmp_path / str(number), random.Random(f"{seed}-{number}")).run(40)
