"""The state machine of ``store_machine.py`` in short; ``prove_store_machine.py`` runs it for long."""

import pytest
from hypothesis import HealthCheck, settings
from store_machine import StoreMachine

StoreMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
