"""Spark's classes as Java read and checked them, kept for its next starts: Java's "application class data sharing".

With it a session starts in half the time, and a small audit takes a tenth less (``docs/performance.md``). To make it
takes some ten seconds, most of them after the audit, when its Java ends. So the second session makes it: where there is
never a second one, as in containers that are used once, nothing is spent.
"""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark

from dejamq_analytics.spark.java import MAKES, cache

USES = "-XX:SharedArchiveFile="
QUIET = "-Xlog:cds*=off -Xlog:class+path=off"
"""Java warns of each class that it leaves out, and of an archive that it cannot use: then it does without."""
KEPT = 3
"""The most archives kept, of 150 MB each: for other versions, or other places where Spark is installed."""
TORN_AFTER_S = 3600
"""Nobody makes one for so long: what has no whole name by then was killed."""


def java_options(home: Path, conf: Mapping[str, str]) -> str:
    """For a local session's Java, of ``java.java_home``: to use the archive, or to make it where there is none.

    Empty where the archive cannot be kept, or where the user chose how Java starts: such an archive would fit no other.
    """
    chosen = any(name.startswith("spark.driver.") for name in conf) or _configured()
    try:
        return "" if chosen or home.parent != cache() else _for(home / f"spark-{_which()}.jsa")
    except OSError:
        return ""


def _for(archive: Path) -> str:
    if archive.is_file():
        return _quoted(f"{USES}{archive}")
    starts = _counted(archive.with_suffix(".starts"))
    if starts == 1 or starts & (starts - 1):
        return ""  # where making it fails, it is tried ever more seldom
    _forget(archive.parent.parent)
    return _quoted(f"{MAKES}{archive}.{secrets.token_hex(4)}")  # the wrapper takes the end away when it is whole


def _quoted(option: str) -> str:
    """As Spark takes options apart; there may be spaces in the name of a home directory."""
    escaped = re.sub(r'(["\\])', r"\\\1", option)
    return f' "{escaped}" {QUIET}'


def _counted(starts: Path) -> int:
    """This one among them. Of several at once only one is the second."""
    with starts.open("ab") as file:
        file.write(b".")
        return file.tell()


def _spark() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _configured() -> bool:
    """A directory of settings is among the places where Java looks for classes: it keeps nothing then."""
    settings = Path(os.environ.get("SPARK_CONF_DIR") or _spark() / "conf")
    return settings.is_dir() and any(settings.iterdir())


def _which() -> str:
    """This Spark as it is installed; the Java has the directory."""
    told = (pyspark.__version__, _spark(), (_spark() / "jars").stat().st_mtime_ns)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def _forget(cached: Path) -> None:
    """Delete archives that are one too many with the next, and remains of archives that were never completed."""
    whole = [*cached.glob("java-*/spark-*.jsa")]
    for path in sorted(whole, key=lambda path: path.stat().st_mtime_ns)[: -KEPT + 1]:
        path.unlink(missing_ok=True)
    for path in cached.glob("java-*/spark-*.jsa.*"):
        if path.stat().st_mtime < time.time() - TORN_AFTER_S:
            path.unlink(missing_ok=True)
