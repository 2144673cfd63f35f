"""What a command says on standard output arrives, or its exit status is not 0.

A reader that went away (``| head``) is status 141, as a shell tells of SIGPIPE. Output that cannot be written, to a
full disk or a closed descriptor, is told on standard error and is status 3.
"""

import errno
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress

CANNOT_TELL, NOBODY_READS = 3, 141


class OutputFailed(OSError):
    """Standard output cannot be written. Commands end; ``run`` says it and chooses the exit status."""


class _Watched(io.FileIO):
    """A descriptor that remembers its first failure, since libraries for help texts swallow it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failed: OSError | None = None

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]  # bytes of any kind, as the base takes them
        except OSError as error:
            self.failed = self.failed or error
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputFailed(error.errno, f"standard output: {error.strerror}") from None


class _Lenient(io.FileIO):
    """Standard error: what it cannot take is lost, and is no reason to end."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]  # as above
        except OSError:
            return len(data)  # type: ignore[arg-type]  # bytes of any kind have a length


def run(name: str, command: Callable[[], int], *, server: bool = False) -> int:
    """The exit status of a command; not 0 where its output was not written whole. ``name`` begins the line about it.

    A ``server`` runs also where standard output is closed: nobody waits for its one line then.
    """
    _hold_descriptors()
    before = sys.stdout, sys.stderr
    watched = _Watched(1 if sys.stdout is not None else os.open(os.devnull, os.O_PATH))
    sys.stderr = _text(_Lenient(2 if sys.stderr is not None else _nowhere(), "w", closefd=False), sys.stderr)
    if sys.stdout is not None or not server:
        sys.stdout = _text(watched, sys.stdout)
    try:
        status = _status_of(command, watched)
        if sys.stdout is not None:
            with suppress(OSError):  # remembered
                sys.stdout.flush()
        if watched.failed is None:
            return status
        _drop_the_rest()
        if isinstance(watched.failed, BrokenPipeError):
            return status or NOBODY_READS
        print(f"{name}: standard output cannot be written: {_why(watched.failed)}", file=sys.stderr)
        return status or CANNOT_TELL
    finally:
        sys.stdout, sys.stderr = before


def _hold_descriptors() -> None:
    """Open what was closed of 0, 1 and 2, so that no file of ours gets one of them and a library writes into it.

    Where standard error is closed, Python would say its lines on standard output.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            _nowhere_at(descriptor)


def _status_of(command: Callable[[], int], watched: _Watched) -> int:
    """Also of a command that ends by SystemExit, as libraries for help texts do."""
    try:
        return command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (OutputFailed, BrokenPipeError):
        if watched.failed is None:
            raise
        return 0  # ``run`` says it


def _drop_the_rest() -> None:
    """The interpreter flushes once more at its end, and would complain."""
    _nowhere_at(1)


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def _nowhere_at(descriptor: int) -> None:
    opened = _nowhere()
    if opened != descriptor:  # in a program that takes this one's place the descriptor is closed again
        os.dup2(opened, descriptor, inheritable=False)
        os.close(opened)


def _text(raw: io.FileIO, like: object) -> io.TextIOWrapper:
    """As Python makes its own streams; ``like`` is None where the descriptor was closed."""
    found = like if isinstance(like, io.TextIOWrapper) else None
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=found.encoding if found else "utf-8",
        errors=found.errors if found else "backslashreplace",
        line_buffering=not found or found.line_buffering or found.write_through,
    )


def _why(error: OSError) -> str:
    return "it is closed" if error.errno == errno.EBADF else str(error.strerror)
