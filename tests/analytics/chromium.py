"""A headless browser that a test drives: it opens pages, presses keys, and tells what is on the screen.

Commands of the DevTools protocol travel through a pipe, so that no port is open and no other package is needed.
"""

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pages import browser

DEADLINE_S = 50.0
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "Space": (32, " ")}
SHIFT = 8


class Chromium:
    """One page in a browser of its own. Not for several threads."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        command = [
            browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        wrapped = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command]
        self._process = subprocess.Popen(
            wrapped, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._unread, self._session = 0, b"", ""
        self.said: list[str] = []
        """What the page's console was told: errors, refused scripts and styles."""

    def __enter__(self) -> Self:
        pages = self._ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        self._process.kill()
        self._process.wait(DEADLINE_S)
        os.close(self._from)

    def look(self, *, width: int, height: int = 800, scheme: str = "light") -> None:
        """The window's size in CSS pixels, and the colours that its user prefers."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
        ])  # fmt: skip

    def open(self, address: str) -> None:
        """Until it and its scripts are loaded."""
        self.run("window.left = true")
        self._ask("Page.navigate", url=address)
        assert self.arrived(""), f"{address} is not loaded"

    def arrived(self, address: str) -> bool:
        """Whether a page whose address begins so is there, after one with ``window.left``, before the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if self.run("!window.left && document.readyState === 'complete'"):
                return str(self.run("location.href")).startswith(address)
        return False

    def type(self, text: str) -> None:
        self._ask("Input.insertText", text=text)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        told = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = KEYS[key]
        told: dict[str, Any] = {
            "key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": code,
            "modifiers": SHIFT if shift else 0,
        }  # fmt: skip
        self._ask("Input.dispatchKeyEvent", type="keyDown", text=text, **told)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **told)

    def picture(self, path: Path) -> None:
        """The whole page, also what is below the window."""
        made = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                return dict(told["result"])
            if told.get("method") == "Log.entryAdded":
                self.said.append(told["params"]["entry"]["text"])
            elif told.get("method") == "Runtime.exceptionThrown":
                self.said.append(str(told["params"]["exceptionDetails"]))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser says nothing"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told
