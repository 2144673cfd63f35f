"""``dejamq store promote-check DIR``: which records would be lost if this slave's store were started as the master's?

Reads only, from the last log files and the slave's note; may look at a store that is in use.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.scan import End, LogFiles, walk
from dejamq_broker.store.offline.at_rest import DataFiles, NoStore, commit_log
from dejamq_broker.store.offline.findings import BAD_USE, CANNOT_TELL, DAMAGED, WHOLE
from dejamq_broker.store.replica.note import SlaveNote, read_note


class Check(msgspec.Struct):
    """``missing_bytes`` of the master's log as this slave knew it last. ``tables_older_ms``: how much older than that
    moment topics, groups, offsets and delay progress are; -1: they were never copied. ``verdict``: complete, loses.
    """

    directory: str
    verdict: str
    log_end: int
    master_end: int
    missing_bytes: int
    master_address: str
    heard_ms: int
    tables_older_ms: int

    @property
    def status(self) -> int:
        return WHOLE if self.verdict == "complete" else DAMAGED


def check(paths: StorePaths) -> Check:
    """Raises NoStore for a directory without a store, StoreError for a store that is not a slave's, OSError."""
    files = commit_log(paths)
    note = read_note(paths)
    if not paths.slave.exists():
        raise StoreError(f"{paths.root} is no slave's store: what its log holds is what its broker has")
    if note is None:
        raise StoreError(f"{paths.root} has no {paths.slave_note.name}: this slave has never followed a master")
    return _judge(paths, note, _log_end(files))


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 has everything that is known of, 1 would lose something, 2 bad use, 3 cannot tell."""
    options = _parser().parse_args(arguments)
    try:
        found = check(StorePaths(options.directory))
    except NoStore as error:
        print(f"dejamq store promote-check: {error}", file=sys.stderr)
        return BAD_USE
    except (StoreError, OSError) as error:
        print(f"dejamq store promote-check: {error}", file=sys.stderr)
        return CANNOT_TELL
    for line in [msgspec.json.encode(found).decode()] if options.output == "json" else _lines(found):
        print(line)
    return found.status


def _judge(paths: StorePaths, note: SlaveNote, log_end: int) -> Check:
    missing = note.missing_bytes(log_end)
    complete = not missing and note.stale_ms >= 0
    return Check(
        str(paths.root), "complete" if complete else "loses", log_end, note.master_end, missing, note.master_address,
        note.heard_ms, note.stale_ms,
    )  # fmt: skip


def _log_end(files: DataFiles) -> int:
    """Where the records end. The last file may be a prepared one, so that the walk begins with the one before."""
    starts = sorted(files.lengths)[-2:]
    if not starts:
        return 0
    extent = LogFiles(starts[0], starts[-1] + files.size, files.size)
    pieces = walk(files.read, extent, starts[0], check_crc=False)
    return max((piece.log_offset for piece in pieces if isinstance(piece, End)), default=starts[0])


def _lines(found: Check) -> Iterator[str]:
    heard = datetime.fromtimestamp(found.heard_ms / 1000, UTC).isoformat(timespec="milliseconds")
    yield f"master {found.master_address}, last heard {heard}"
    ends = f"ends at {found.log_end}, the master's at {found.master_end} then"
    yield f"log    {ends}: {found.missing_bytes} bytes missing"
    if found.tables_older_ms < 0:
        yield "tables never copied: topics, groups, offsets and delay progress are not the master's"
    else:
        yield (
            f"tables copied {found.tables_older_ms} ms before that: groups repeat what they committed since, "
            "and delayed messages delivered since come again"
        )
    yield f"{found.verdict}; what the master did after its last word is not known here"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dejamq store promote-check",
        description="What would be lost if this slave's store were started as the master's? Reads only.",
        epilog="Exit status: 0 has everything that is known of, 1 would lose something, 2 bad use, 3 cannot tell.",
    )
    parser.add_argument("directory", help="the store: the folder that holds commitlog/")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser
