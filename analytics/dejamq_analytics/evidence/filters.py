"""Subscriptions by SQL92, as brokers tell of them: what such a filter answers depends on the properties it names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Set

from dejamq_analytics.evidence.mark import Mark

QUOTED = re.compile(r"'[^']*'")
NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class Filters:
    """The names in the filters of each group, by topic. Words of the language are among them, and do no harm."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], set[str]] = defaultdict(set)

    def learn(self, marks: Iterable[Mark]) -> None:
        """From lines and answers that tell of a group's filters. One that changed has the names of all."""
        for mark in marks:
            for topic, expression in mark.said.get("filters", {}).items():
                self._names[mark.said["group"], topic] |= {*NAME.findall(QUOTED.sub("", expression))}

    def properties(self, topic: str) -> Set[str]:
        """Which properties of the topic's messages any group's filter looks at."""
        return {name for (_, of), names in self._names.items() if of == topic for name in names}

    def of(self, group: str, topic: str) -> Set[str] | None:
        """Which ones this group's filter looks at; None where it is not known to filter by them."""
        return self._names.get((group, topic))
