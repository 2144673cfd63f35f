"""A server under test from its tests: each fault is a method, and each method waits until it is done.

Nothing here needs the extra of the HTTP pages.
"""

from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.loose_json import BAD_JSON

from dejamq_lab.broker_duplicates import RepeatedHandOut
from dejamq_lab.errors import ClusterFailed

ANSWER_S = 120
open_directly = build_opener(ProxyHandler({})).open
"""A proxy of the environment is not for a server on this machine."""


class Control:
    """``dejamq dev --control`` at a URL. Methods raise ConfigError for what there is not, ClusterFailed for what cannot
    be now.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    # --- single calls; operations: send, receive, ack, commit, … (docs/control.md)

    def answer_lost(self, operation: str, count: int = 1) -> None:
        """The work of the next ``count`` such calls is done, and their answers are lost."""
        self._strike(fault="answer_lost", operation=operation, count=count)

    def request_lost(self, operation: str, count: int = 1) -> None:
        """The next ``count`` such calls never arrive."""
        self._strike(fault="request_lost", operation=operation, count=count)

    def answer_late(self, operation: str, ms: int, count: int = 1) -> None:
        """The work of the next ``count`` such calls is done at once, and answered ``ms`` later."""
        self._strike(fault="answer_late", operation=operation, ms=ms, count=count)

    def struck(self, operation: str) -> int:
        """How many calls the faults of this operation have met, of those that stand."""
        return sum(one.get("struck", 0) for one in self.faults() if one.get("operation") == operation)

    # --- the way to the server

    def cut(self, mode: str = "reset") -> None:
        """Nobody reaches it. ``reset`` breaks connections; ``silent`` leaves them and throws everything away."""
        self._strike(fault="cut", mode=mode)

    def delay(self, ms: int) -> None:
        """Everything takes ``ms`` longer, in both directions."""
        self._strike(fault="delay", ms=ms)

    def heal(self) -> None:
        """``cut`` and ``delay`` end."""
        self._strike(fault="heal")

    # --- its process

    def pause(self) -> None:
        """SIGSTOP."""
        self._strike(fault="pause")

    def resume(self) -> None:
        """``pause`` ends."""
        self._strike(fault="resume")

    def kill(self) -> None:
        """SIGKILL; the store stays."""
        self._strike(fault="kill")

    def restart(self) -> None:
        """Start it again; it serves when this returns."""
        self._strike(fault="restart")

    # --- the rest

    def faults(self) -> list[dict[str, Any]]:
        """The faults that stand."""
        found: list[dict[str, Any]] = msgspec.json.decode(self._ask("GET", "/faults"))["faults"]
        return found

    def clear(self) -> None:
        """End all faults: heal, resume, restart."""
        self._ask("DELETE", "/faults")

    def duplicates(self, group: str) -> list[RepeatedHandOut]:
        """What the broker handed to the group again without being asked, with the cause where its journal proves it."""
        answer = msgspec.json.decode(self._ask("GET", f"/duplicates?group={quote(group)}"))
        return msgspec.convert(answer["duplicates"], list[RepeatedHandOut])

    def advertise(self, address: str) -> None:
        """Clients are told this address when this returns."""
        self._ask("POST", "/advertise", address=address)

    def _strike(self, **fault: Any) -> None:
        self._ask("POST", "/faults", **fault)

    def _ask(self, method: str, path: str, **body: Any) -> bytes:
        data = msgspec.json.encode(body) if body else None
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with open_directly(request, timeout=ANSWER_S) as answer:
                said: bytes = answer.read()
                return said
        except HTTPError as error:
            raise _refusal(error) from None
        except (URLError, OSError) as error:
            raise ClusterFailed(f"nothing answers at {self.url}: {getattr(error, 'reason', error)}") from None


def _refusal(error: HTTPError) -> ConfigError | ClusterFailed:
    try:
        problem = msgspec.json.decode(error.read())
        text = f"{problem['error']} ({problem['hint']})"
    except (KeyError, TypeError, *BAD_JSON):
        text = f"{error.code} {error.reason}"
    return ConfigError(text) if error.code in (400, 404) else ClusterFailed(text)
