"""Harm done to a file of a server that does not run."""

from pathlib import Path

from dejamq_proto.codes import ConfigError


def harm(store: Path, name: str, how: str) -> None:
    """Harm every file of the store that ``name`` (a pattern) fits. Raises ConfigError where none does."""
    found = sorted(store.glob(name))
    if not found:
        raise ConfigError(f"there is no file {name} in {store}")
    for path in found:
        size = path.stat().st_size
        if how == "delete":
            path.unlink()
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "truncate":
            path.write_bytes(path.read_bytes()[: size // 2])
        elif how == "garbage":
            path.write_bytes(b"\xff" * size)
        else:
            raise ConfigError(f"a file is harmed by truncate, empty, delete or garbage, not {how!r}")
