"""Settings of a process that runs: those in force, and which of them an operator may change without a new start.

Source: RocketMQ ``updateBrokerConfig``, ``updateNamesrvConfig``. There every field is overwritten, and most are looked
at only at start.
"""

import difflib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic

from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.config.settings import Config, Minutes, changed, masked, shown, spellings, values_of

log = logging.getLogger(__name__)
Apply = Callable[[Any], None]


class LiveSettings(Generic[Config]):
    """Owned by the event loop. A change made here ends with the process: the next start reads its own file again."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.changeable: dict[str, Apply] = {}
        """By our name: the functions that put a new value in force. They are called after ``config`` has it."""

    def values(self) -> dict[str, str]:
        """All settings in force by our names, as texts; those without a value are left out, and secrets are hidden."""
        return shown(self.config)

    def rocketmq_values(self) -> dict[str, str]:
        """The same by RocketMQ's names where it has one for a value of the same unit, and as it writes them."""
        names = {
            path.rpartition(".")[2]: spelling
            for spelling, path in spellings(type(self.config)).items()
            if not isinstance(spelling, Minutes) and spelling != path.rpartition(".")[2]
        }
        found = {
            names.get(name, name): masked(name, value)
            for name, value in values_of(self.config).items()
            if value is not None
        }
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}

    def update(self, values: Mapping[str, str]) -> dict[str, str]:
        """Change these, by our name or RocketMQ's: all of them, or on an error none. The settings in force afterwards.

        Raises INVALID_PARAMETER for an unknown name, for a setting that cannot change while the broker runs, and for a
        value that cannot be.
        """
        by_name = {self._changeable(key): text for key, text in values.items()}
        try:
            config = changed(self.config, by_name)
        except ConfigError as error:
            raise DejamqError(str(error), code=Code.INVALID_PARAMETER) from None
        before, self.config = self.config, config
        for name in by_name:
            if getattr(before, name) != getattr(config, name):
                log.info("setting_changed name=%s from=%s to=%s", name, getattr(before, name), getattr(config, name))
                self.changeable[name](getattr(config, name))
        return self.values()

    def _changeable(self, key: str) -> str:
        names = spellings(type(self.config))
        if key not in names:
            near = difflib.get_close_matches(key, names, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise DejamqError(f"unknown setting {key!r}{hint}", code=Code.INVALID_PARAMETER)
        name = names[key]
        if name not in self.changeable:
            text = f"{key} is read at the start: set it in the settings file and start again. "
            text += f"While it runs can change: {', '.join(sorted(self.changeable))}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        return name
