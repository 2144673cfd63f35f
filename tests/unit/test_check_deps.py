"""What `make check-deps` makes of pip-audit's answers: a package that nobody looked at is not a sound one."""

import json
from typing import Any

import pytest
from check_deps import FOUND, SOUND, UNKNOWN, verdict

SAFE: dict[str, Any] = {"name": "jinja2", "version": "3.1.6", "vulns": []}
WEAK: dict[str, Any] = {
    "name": "jinja2", "version": "3.1.2", "vulns": [{"id": "PYSEC-2024-1", "fix_versions": ["3.1.3"]}],
}  # fmt: skip
UNSEEN: dict[str, Any] = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(("found", "status", "words"), [
    ([SAFE], SOUND, "1 packages, no known"), ([SAFE, WEAK], FOUND, "jinja2 3.1.2: PYSEC-2024-1, mended in 3.1.3"),
    ([SAFE, UNSEEN], UNKNOWN, "1 of 2 packages were not audited"), ([WEAK, UNSEEN], FOUND, "PYSEC-2024-1"),
    ([], UNKNOWN, "0 of 0 packages were not audited"),
])  # fmt: skip
def test_only_packages_that_were_all_audited_are_sound(found: list[Any], status: int, words: str) -> None:
    told = verdict(json.dumps({"dependencies": found}), "")
    assert (told[0], words in told[1]) == (status, True)


@pytest.mark.parametrize("output", ["", "not json", "[]", "{}"])
def test_without_an_answer_nothing_was_audited(output: str) -> None:
    assert verdict(output, "Traceback\nFailed to resolve 'api'") == (
        UNKNOWN, "nothing was audited; is the network there? Failed to resolve 'api'"
    )  # fmt: skip
