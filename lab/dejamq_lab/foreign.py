"""Members of a group that keep no journal, as RocketMQ's own clients: what brokers, traces and logs tell of them.

The audit's readers make journals of that (``dejamq_analytics.evidence``), which are imported only where there are
such members.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dejamq_lab.errors import ClusterFailed

MEMBER = b'{"event":"MEMBER"'


def has_foreign_members(journal_dir: Path) -> bool:
    """Whether a broker's journal names a member that has no journal: most clusters have journals of all clients."""
    files = [*journal_dir.glob("broker-*.jsonl")]
    own = {path.stem.removesuffix(".1").rpartition("-")[2] for path in journal_dir.glob("*.jsonl")}
    boots = (
        line.partition(b'"client_boot_id":"')[2].partition(b'"')[0].decode()
        for path in files for line in path.read_bytes().splitlines() if line.startswith(MEMBER)
    )  # fmt: skip
    return any(boot and boot not in own for boot in boots)


@contextmanager
def journals_of(group: str, journal_dir: Path, stores: Sequence[Path], logs: Sequence[Path]) -> Iterator[list[Path]]:
    """Journals made of traces in the stores, and of clients' logs; they go at the end.

    Raises ClusterFailed where a foreign member of the group worked and wrote no trace: its deliveries cannot be seen.
    """
    from dejamq_analytics.evidence.translate import Reading, translate
    from dejamq_analytics.sources.journaled import journaled

    known = journaled([str(journal_dir)])
    with TemporaryDirectory(prefix="dejamq-foreign-") as folder:
        logged = [str(log) for log in logs]
        made = translate(Reading(logged, [str(store) for store in stores], journals=[str(journal_dir)]), Path(folder))
        traced = {
            path.stem.rpartition("-")[2] for path in Path(made.journals).iterdir() if b'"DELIVER"' in path.read_bytes()
        }
        unseen = sorted(
            name for name in known.members.get(group, set()) & known.worked if known.boots[name] not in traced
        )  # fmt: skip
        if unseen:
            raise ClusterFailed(
                f"deliveries to {', '.join(unseen)} cannot be seen: it writes no trace. Switch on enableTrace in the "
                "client, and end the client or wait some seconds, as traces are sent late"
            )
        yield [Path(made.journals)]
