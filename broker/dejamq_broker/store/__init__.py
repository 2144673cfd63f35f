"""Messages on disk in RocketMQ's formats: a library without network. FORMAT.md describes the files.

A broker owns one store, and locks its directory. Enter at ``message_store``.
"""

from dejamq_broker.store.files.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from dejamq_broker.store.files.errors import StoreClosed, StoreDamaged, StoreError, StoreFull, StoreLocked
from dejamq_broker.store.index.query import KeyQuery, QueryResult
from dejamq_broker.store.log.append import Appended, AppendFew, AppendRun
from dejamq_broker.store.message_store import MessageStore
from dejamq_broker.store.reading import ReadResult, ReadStatus
from dejamq_broker.store.recovery import RecoveryReport
from dejamq_broker.store.replica.incoming import BadCopy
from dejamq_broker.store.replica.note import SlaveNote, read_note
from dejamq_broker.store.slave_store import SlaveStore

__all__ = [
    "ASYNC_FLUSH",
    "SYNC_FLUSH",
    "AppendFew",
    "AppendRun",
    "Appended",
    "BadCopy",
    "KeyQuery",
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
    "read_note",
]
