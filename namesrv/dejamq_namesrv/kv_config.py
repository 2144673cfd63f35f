"""Key-value settings that brokers and clients share through a name server, kept in RocketMQ's kvConfig.json."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.loose_json import BAD_JSON

from dejamq_namesrv.whole_file import write_whole

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
FILE_NAME = "kvConfig.json"


class KvFile(msgspec.Struct):
    """The file, as RocketMQ writes it."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict, name="configTable")


class KvConfig:
    """namespace -> key -> value. With a directory, every change is on disk before the call returns.

    The file is written beside the event loop, which owns the rest: a disk that hangs keeps no route from being told.
    """

    def __init__(self, directory: str | None) -> None:
        """Raises ConfigError for a file that is damaged or cannot be read; it is left alone."""
        self._path = Path(directory) / FILE_NAME if directory else None
        self._table = _read(self._path) if self._path else {}
        self._writing = asyncio.Lock()

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Replace or add one value. Raises SYSTEM_ERROR when it cannot be kept, and then nothing has changed."""
        async with self._writing:
            table = self._copy()
            table.setdefault(namespace, {})[key] = value
            await self._replace(table)

    def get(self, namespace: str, key: str) -> str:
        """Raises DejamqError with QUERY_NOT_FOUND when it is not there."""
        try:
            return self._table[namespace][key]
        except KeyError:
            raise DejamqError(f"no config item {namespace!r} {key!r}", code=Code.QUERY_NOT_FOUND) from None

    async def delete(self, namespace: str, key: str) -> None:
        """As in RocketMQ, deleting what is not there is fine."""
        async with self._writing:
            table = self._copy()
            table.get(namespace, {}).pop(key, None)
            await self._replace({name: keys for name, keys in table.items() if keys})

    def namespace(self, namespace: str) -> Mapping[str, str]:
        """All keys of a namespace; empty for one that does not exist."""
        return dict(self._table.get(namespace, {}))

    def _copy(self) -> dict[str, dict[str, str]]:
        return {namespace: dict(keys) for namespace, keys in self._table.items()}

    async def _replace(self, table: dict[str, dict[str, str]]) -> None:
        """The file first: a value that could not be kept is refused, not lost at the next restart."""
        if self._path is not None:
            try:
                await asyncio.to_thread(write_whole, self._path, msgspec.json.encode(KvFile(table)))
            except OSError as error:
                raise DejamqError(f"cannot write {self._path}: {error.strerror}", code=Code.SYSTEM_ERROR) from None
        self._table = table


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KvFile).config_table
    except FileNotFoundError:
        return {}
    except (OSError, *BAD_JSON) as error:
        raise ConfigError(f"cannot read {path}: {error}; repair it or move it away") from None
