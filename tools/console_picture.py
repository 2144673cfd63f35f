"""Makes docs/console.png: one pair of a demo's duplicates, as ``dejamq console`` shows it.

``make demo`` first; then ``python tools/console_picture.py`` with a chromium on the PATH.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from dejamq_cli.console.server import serving
from dejamq_cli.console.settings import ConsoleSettings
from dejamq_cli.console.sources import Sources

TREE = Path(__file__).parents[1]
PICTURE = TREE / "docs" / "console.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = "1000,1270"


async def picture(journal: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    async with serving(ConsoleSettings(None, "127.0.0.1:0", Sources([journal]))) as address:
        while True:
            told = await asyncio.to_thread(urllib.request.urlopen, f"{address}duplicates.json?cause=O7")
            if found := json.load(told)["duplicates"]:
                break
            await asyncio.sleep(0.5)
        with tempfile.TemporaryDirectory() as profile:
            await asyncio.to_thread(
                subprocess.run,
                [
                    browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--user-data-dir={profile}", "--blink-settings=preferredColorScheme=1", f"--window-size={SIZE}",
                    f"--screenshot={PICTURE}", f"{address}duplicates/{found[-1]['finding_id']}",
                ],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip


if __name__ == "__main__":
    asyncio.run(picture(Path(sys.argv[1] if len(sys.argv) > 1 else TREE / "demo-out" / "cluster" / "journal")))
