"""Small JSON files that survive a crash: written beside, synced, renamed; the generation before stays as ``.bak``.

RocketMQ renames the old file away before it writes the new one; here the old name always holds a whole file.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.events import Event
from dejamq_proto.journal.writer import Journal
from dejamq_proto.loose_json import loads_loose

from dejamq_broker.base.data_version import TableVersion
from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.store.files.directories import make_directory, sync_directory

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""Java's number: JSON could hold any, which no protocol could tell."""


class TableRow(Protocol):
    """What a table of names holds."""

    def check(self, name: str) -> None:
        """Raise ValueError for a row that cannot stand under this name."""


Row = TypeVar("Row", bound=TableRow)


class UnreadableFile(DejamqError):
    """A file of the store's ``config`` is neither readable nor replaceable by its ``.bak``."""

    default_code = Code.SYSTEM_ERROR

    def __init__(self, trouble: str) -> None:
        super().__init__(f"{trouble}; repair it, or move it away to start without what it held")


def backup_of(path: Path) -> Path:
    """Where the generation before is kept."""
    return path.with_name(path.name + ".bak")


def load(path: Path) -> tuple[Any, str]:
    """(content, source); source is ``main``, ``bak`` or ``none``. Raises UnreadableFile when nothing that exists reads.

    A file of size 0 is damage, not "no file": it had content once, since every write of it is whole.

    A damaged main file whose backup reads is moved aside to ``….damaged``, so that the next write keeps the backup.
    """
    content, trouble = _read(path)
    if content is not None:
        return content, "main"
    content, backup_trouble = _read(backup_of(path))
    if content is not None:
        if trouble:
            os.replace(path, path.with_name(path.name + ".damaged"))
        return content, "bak"
    if trouble or backup_trouble:
        raise UnreadableFile(trouble or backup_trouble)
    return None, "none"


def load_table(path: Path, key: str, kind: type[Row]) -> tuple[dict[str, Row], TableVersion, dict[str, Any]] | None:
    """The rows under ``key`` by name, the file's version, and the whole content; None when there is no file.

    Topics and subscription groups are kept in this one shape. Raises UnreadableFile.
    """
    content, _ = load(path)
    return None if content is None else rows(content, key, kind, str(path))


def rows(
    content: dict[str, Any], key: str, kind: type[Row], where: str
) -> tuple[dict[str, Row], TableVersion, dict[str, Any]]:
    """As ``load_table``, of content that was read already. Raises UnreadableFile."""
    try:
        shape: Any = dict[str, kind]  # type: ignore[valid-type]  # a type at run time
        found: dict[str, Row] = msgspec.convert(content.get(key, {}), shape)
        version = msgspec.convert(content.get("dataVersion", {}), TableVersion)
        for name, row in found.items():
            row.check(name)
    except (msgspec.ValidationError, ValueError) as error:
        raise UnreadableFile(f"{where} is no {key}: {error}") from None
    return found, version, content


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """(content, "") or (None, why not); an absent file is no trouble."""
    try:
        text = path.read_text(encoding="utf-8")
        if not text.strip():
            return None, f"{path} is empty: what it held is lost"
        content = loads_loose(text)
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"{path} cannot be read as JSON ({error})"
    return (content, "") if isinstance(content, dict) else (None, f"{path} holds no JSON object")


def stage(path: Path, text: str) -> None:
    """Write and sync the next generation beside ``path``; ``publish`` makes it the current one.

    Raises OSError, with the current generation untouched: a disk that is full is found here and not while
    replacing.
    """
    make_directory(path.parent)
    with open(_staged(path), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def publish(path: Path) -> None:
    """Keep the current generation as ``.bak`` and put the staged one in its place. ``path`` is never absent between.

    A crash between the two renames leaves the old generation under both names, which ``load`` reads as if
    nothing had happened. The directory is synced last: without that a power loss could bring the old file back.
    """
    if path.exists():
        _link_over(path, backup_of(path))
    os.replace(_staged(path), path)
    sync_directory(path.parent)


def write(path: Path, content: Any) -> None:
    """Replace the file at once. Raises SERVICE_NOT_AVAILABLE, e.g. for a full disk; the file is then as it was."""
    try:
        stage(path, dumps(content))
        publish(path)
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}; free some space, or check who owns it"
        raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE) from None


class Snapshot(msgspec.Struct, frozen=True):
    """The content of a table at one moment: its file's text, and the journal's line for writing it, if it has one."""

    path: Path
    text: str
    event: Event | None = None


async def save(snapshot: Snapshot, journal: Journal) -> None:
    """Replace the file; the slow disk work is done beside the loop, the journal's line stands before the effect.

    Cancelled in between it leaves at worst a staged file, which the next save overwrites.
    """
    await beside_loop(stage, snapshot.path, snapshot.text)
    if snapshot.event is not None:
        journal.write(snapshot.event)
    await beside_loop(publish, snapshot.path)


def dumps(content: Any) -> str:
    """The text of a file, readable for people."""
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode()


def _staged(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def _link_over(path: Path, backup: Path) -> None:
    """The current generation under the backup's name too, in one step: the backup is never half of something."""
    link = backup.with_name(backup.name + ".tmp")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:  # a file system without hard links: the old name is absent for a moment, as in RocketMQ
        os.replace(path, backup)
    else:
        os.replace(link, backup)
