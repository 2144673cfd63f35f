"""Reports made by hand, as rows that Spark would give, and a browser that looks at a page."""

import functools
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

PROBE = Path(__file__).with_name("probe.js").read_text(encoding="utf-8")
SCHEMES = {"dark": 0, "light": 1}
"""What the engine calls them."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@functools.cache
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, "no browser"
    return found


def run(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Without a network: every name resolves to nowhere."""
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'profile'}",
        "--enable-logging=stderr", *arguments, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)


def looked_at(page: Path, scheme: str, width: int = 1000) -> dict[str, Any]:
    """What the probe measured in a copy of the page: it has a script of its own, the page must have none."""
    copy = page.with_name(f"probed-{scheme}-{width}.html")
    copy.write_text(page.read_text(encoding="utf-8") + f"<script>{PROBE}</script>", encoding="utf-8")
    blink = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
    done = run(copy, blink, f"--window-size={width},1200", "--dump-dom")
    said = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert said, done.stderr
    found: dict[str, Any] = json.loads(unescape(said[1]))
    found["console"] = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return found
