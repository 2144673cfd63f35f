"""``python tests/store/prove_store_machine.py``: the state machine of ``store_machine.py``, for long."""

import argparse
import logging
import time

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from store_machine import StoreMachine


def main() -> None:
    parser = argparse.ArgumentParser(description="Let anything happen to a store, and compare it with a list.")
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--steps", type=int, default=40, help="of each example at most")
    parser.add_argument("--no-shrink", action="store_true", help="show the first failure as it is")
    options = parser.parse_args()
    logging.disable()
    began = time.monotonic()
    phases = [Phase.reuse, Phase.generate] if options.no_shrink else [Phase.reuse, Phase.generate, Phase.shrink]
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=options.examples, stateful_step_count=options.steps, deadline=None, phases=phases,
            suppress_health_check=list(HealthCheck), print_blob=True,
        ),
    )  # fmt: skip
    print(f"{options.examples} examples of up to {options.steps} steps, {time.monotonic() - began:.0f} s: as the list")


if __name__ == "__main__":
    main()
