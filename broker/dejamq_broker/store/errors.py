"""What can go wrong with a store directory. Every text is one line that says what to do."""

from dejamq_proto.codes import Code, DejamqError


class StoreError(DejamqError):
    """The store cannot go on: the disk failed, or a file is not what it must be."""


class StoreLocked(StoreError):
    """Another process has this directory open."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreDamaged(StoreError):
    """A file in the directory is foreign or broken. Nothing was changed."""


class StoreFull(StoreError):
    """No room for another file: writes are refused, reads go on."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreClosed(StoreError):
    """The store was closed; nothing was stored."""

    default_code = Code.SERVICE_NOT_AVAILABLE


class StoreFollows(StoreError):
    """The store is a slave's: only what its master has goes in; nothing was stored."""

    default_code = Code.SERVICE_NOT_AVAILABLE
