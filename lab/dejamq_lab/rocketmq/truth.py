"""What is true of a run, and where an audit of what it left says something else."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Finding = Mapping[str, Any]
ALSO_RIGHT = {"L5": "L1"}
"""What is true of a cause as well, and all that less evidence tells: to a trace an interrupt is any exception."""
PLACE = ("topic", "queue_id", "queue_offset")


def right_for(causes: Sequence[str]) -> list[str]:
    """What an audit may say of duplicates that have one of these causes."""
    return [*causes, *(ALSO_RIGHT[cause] for cause in causes if cause in ALSO_RIGHT)]


class Truth:
    """From ``truth.json``: the causes by key, and what each handler was given."""

    def __init__(self, folder: Path) -> None:
        told = json.loads((folder / "truth.json").read_text())
        self.deliveries: list[dict[str, Any]] = told["deliveries"]
        self.causes: dict[str, list[str]] = told["causes"]
        self._keys = {one["unique_key"]: one["key"] for one in self.deliveries}

    @property
    def expected(self) -> set[str]:
        """All causes that there are."""
        return {cause for causes in self.causes.values() for cause in causes}

    def causes_of(self, finding: Finding) -> list[str]:
        """The causes that this message's duplicates may have."""
        return right_for(self.causes.get(self._keys.get(finding["message_id"], ""), self.causes.get("*", [])))

    def came_twice(self) -> set[tuple[str, str, int, int]]:
        """Records that handlers of one group were given more than once, as the handlers themselves said."""
        seen = Counter(
            (one["machine"].partition("-")[0], one.get("broker"), one["unique_key"], *(one[part] for part in PLACE))
            for one in self.deliveries
        )  # fmt: skip
        return {record[2:] for record, times in seen.items() if times > 1}


def found_twice(findings: Iterable[Finding]) -> set[tuple[str, str, int, int]]:
    """Records that the audit says were delivered more than once to a group."""
    return {
        (one["message_id"], *(one["second"][part] for part in PLACE))
        for one in findings if one["identity"] == "I1" and one["cause"] != "L9"
    }  # fmt: skip


def wrong_causes(truth: Truth, findings: Iterable[Finding]) -> list[str]:
    """Causes that the audit is certain of and that were not the cause."""
    return [one["cause"] for one in findings if one["cause"] and one["cause"] not in truth.causes_of(one)]


def problems(truth: Truth, findings: list[Finding]) -> list[str]:
    """Empty when the audit named every cause that there was, for the right messages, and no other one."""
    found = {one["cause"] for one in findings if one["cause"]}
    undetermined = [one for one in findings if not one["cause"]]
    told = [f"{cause} is not named" for cause in sorted(truth.expected - found)]
    told += [f"{cause} is named, and was not the cause" for cause in sorted(set(wrong_causes(truth, findings)))]
    if undetermined:
        missing = sorted({str(one["missing"]) for one in undetermined})
        told.append(f"undetermined: {len(undetermined)}, for want of {'; '.join(missing)}")
    if missed := truth.came_twice() - found_twice(findings):
        told.append(f"{len(missed)} records came twice and are not found")
    if more := found_twice(findings) - truth.came_twice():
        told.append(f"{len(more)} records are said to have come twice and did not")
    return told
