"""``python tests/analytics/prove_lost_tails.py``: no tail that a killed process takes along turns a cause into another.

Of every hand-made history, every tail of every process that did not close, alone and all at once: some 1,700 histories
in one audit. Each certain finding must have a cause that the whole history has for that message.
"""

import sys
import tempfile
import time
from pathlib import Path

import conftest  # noqa: F401  # registers all stories
import msgspec
from dejamq_analytics import audit
from dejamq_analytics.spark.session import make_session
from stories import STORIES
from tails import histories, told, turned


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="tails-") as name:
        journal, aside = Path(name) / "journal", Path(name) / "aside"
        journal.mkdir()
        count = 0
        with (journal / "every.jsonl").open("wb") as lines:
            for story, write in STORIES.items():
                whole, cut = aside / story / "whole", aside / story / "cut"
                whole.mkdir(parents=True)
                cut.mkdir()
                every = [told(story, write, whole), *(made for _, made in histories(story, write, cut))]
                lines.writelines(msgspec.json.encode(line) + b"\n" for made in every for line in made)
                count += len(every) - 1
        began = time.monotonic()
        rows = audit(make_session(quick=True), [str(journal)]).findings.collect()
    wrong = turned(rows)
    print("\n".join(wrong))
    print(f"{count} tails of {len(STORIES)} histories, {len(rows)} findings, {len(wrong)} of another cause, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
