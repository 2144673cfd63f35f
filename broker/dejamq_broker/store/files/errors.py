"""The errors of a store directory. Every text is one line that says what to do."""

import errno
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dejamq_proto.codes import Code, DejamqError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class StoreError(DejamqError):
    """The store cannot go on: the disk failed, or a file is not what it must be."""


class StoreLocked(StoreError):
    """Another process has this directory open."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreDamaged(StoreError):
    """A file in the directory is foreign or broken. Nothing was changed."""


class StoreFull(StoreError):
    """No space for another file: writes are refused, reads go on."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreClosed(StoreError):
    """The store was closed; nothing was stored."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreFollows(StoreError):
    """The store is a slave's: only what its master has goes in; nothing was stored."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreShort(StoreError):
    """The process has no file descriptors left: writes are refused until it has some; nothing was stored."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreSlow(StoreError):
    """The disk does not answer in time: this write is refused, nothing was stored; another try may find it awake."""

    default_code = Code.SERVICE_NOT_AVAILABLE


def out_of_descriptors(error: BaseException | None) -> bool:
    """Whether this, or what caused it, is that no file could be opened. Such a failure has touched nothing on disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__
    return False


def readable(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A file that cannot be opened or read is reported as StoreError: the caller gets an answer, and may ask again."""

    @functools.wraps(method)
    def read(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return method(*arguments, **named)
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error}; try again") from error

    return read
