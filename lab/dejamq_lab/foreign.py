"""Members of a group that keep no journal, as RocketMQ's own clients: what brokers, traces and logs tell of them.

The audit's readers make journals of that (``dejamq_analytics.evidence``), which are imported only where there are
such members.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dejamq_proto.journal import lines
from dejamq_proto.journal.events import Deliver, MemberEvent

from dejamq_lab.errors import ClusterFailed


def has_foreign_members(journal_dir: Path) -> bool:
    """Whether a broker's journal names a member that has no journal: most clusters have journals of all clients."""
    files = list(lines.files_in(journal_dir))
    own = {lines.boot_id(path) for path in files}
    told = lines.events((path for path in files if path.name.startswith("broker-")), MemberEvent)
    return any(member.client_boot_id and member.client_boot_id not in own for member in told)


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
        traced = {event.boot_id for event in lines.events(lines.files_in(Path(made.journals)), Deliver)}
        unseen = sorted(
            name for name in known.members.get(group, set()) & known.worked if known.boots[name] not in traced
        )  # fmt: skip
        if unseen:
            raise ClusterFailed(
                f"deliveries to {', '.join(unseen)} cannot be seen: it writes no trace. Switch on enableTrace in the "
                "client, and end the client or wait some seconds, as traces are sent late"
            )
        yield [Path(made.journals)]
