"""Messages on disk in RocketMQ's formats: a library without network. FORMAT.md describes the files."""

from dejamq_broker.store.append import Appended, AppendFew, AppendRun
from dejamq_broker.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from dejamq_broker.store.errors import StoreClosed, StoreDamaged, StoreError, StoreFull, StoreLocked
from dejamq_broker.store.incoming import BadCopy
from dejamq_broker.store.message_store import MessageStore
from dejamq_broker.store.query import QueryResult, Wanted
from dejamq_broker.store.reading import ReadResult, ReadStatus
from dejamq_broker.store.recovery import RecoveryReport
from dejamq_broker.store.slave_note import SlaveNote, read_note
from dejamq_broker.store.slave_store import SlaveStore

__all__ = [
    "ASYNC_FLUSH",
    "SYNC_FLUSH",
    "AppendFew",
    "AppendRun",
    "Appended",
    "BadCopy",
    "MessageStore",
    "QueryResult",
    "ReadResult",
    "ReadStatus",
    "RecoveryReport",
    "SlaveNote",
    "SlaveStore",
    "StoreClosed",
    "StoreConfig",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "Wanted",
    "read_note",
]
