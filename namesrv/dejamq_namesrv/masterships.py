"""Which replica of a broker is its master: epochs that are granted once, and leases that keep others waiting.

A name server decides for itself. A replica that wants to be the master counts the grants of all name servers.
What is granted is on disk before the answer, so a restart forgets no epoch. Leases are in memory: after a restart
every master counts as just heard of.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.names import MASTER_ID

from dejamq_namesrv.whole_file import write_whole

FILE_NAME = "masterships.json"
LET_FOLLOW = "if this store is a copy, remove config/mastership.json from it and start it with an id above 0"
log = logging.getLogger(__name__)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says of itself. ``followed``: whose log it copied last; '' for a master.

    ``broker_id``: what it was before it became master. ``lease_ms``: so long nobody else is granted an epoch.

    ``ended``: processes that served this very store, the present one last, so all others have ended. ``before``: those
    that may still live, where the store was copied. Without any, whoever has the replica's name is it.
    """

    cluster: str
    broker_name: str
    replica: str
    broker_id: int
    epoch: int
    followed: str
    lease_ms: int
    ended: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    @property
    def process(self) -> str:
        return self.ended[-1] if self.ended else ""

    @property
    def key(self) -> str:
        return f"{self.cluster}/{self.broker_name}"


class Grant(msgspec.Struct, frozen=True):
    """An epoch, the one replica that has it, and the process that serves its store."""

    epoch: int = 0
    replica: str = ""
    broker_id: int = 0
    lease_ms: int = 0
    process: str = ""

    def is_of(self, candidate: Candidate) -> bool:
        """It is this replica's, and this process's or that of one that has ended."""
        known = not self.process or not candidate.ended or self.process in candidate.ended
        return self.replica == candidate.replica and known


class GrantedMastership(msgspec.Struct, frozen=True):
    """``confirmed``: the last grant whose replica came back with it. Until then it may not know it is master.

    ``others_epoch``: the last epoch that another replica than the granted one was granted. It may be in use, so that no
    earlier one is.
    """

    granted: Grant = Grant()
    confirmed: Grant = Grant()
    others_epoch: int = 0

    def grant(self, new: Grant, *, confirmed: bool) -> "GrantedMastership":
        """After one more grant, which is the latest."""
        same = self.granted.replica in ("", new.replica)
        others = self.others_epoch if same else max(self.others_epoch, self.granted.epoch)
        return GrantedMastership(new, new if confirmed else self.confirmed, others)


class MastershipAnswer(msgspec.Struct, frozen=True):
    """``reason`` says why it is not ``done``. ``silent_ms``: since the confirmed replica was heard of."""

    done: bool
    reason: str
    at: GrantedMastership
    silent_ms: int
    other_process: bool = False


class Masterships:
    """Owned by the event loop; the file is written beside it."""

    def __init__(self, directory: str | None, now_ms: Callable[[], int]) -> None:
        """Raises ConfigError for a file that is damaged or cannot be read; it is left alone."""
        self._path = Path(directory) / FILE_NAME if directory else None
        self._now_ms, self._began_ms = now_ms, now_ms()
        self._table = _read(self._path) if self._path else {}
        self._kept = dict(self._table)
        self._heard: dict[tuple[str, str], int] = {}
        self._writing = asyncio.Lock()

    def look(self, candidate: Candidate) -> MastershipAnswer:
        """Would it be granted an epoch now? Nothing changes."""
        return self._answer(candidate, self._against(candidate))

    async def take(self, candidate: Candidate) -> MastershipAnswer:
        """Grant it this epoch, if nothing stands against it. Raises SYSTEM_ERROR when that cannot be kept.

        Memory changes before the disk, so that a renewal of the old master that comes meanwhile is refused.
        """
        why_not = self._against(candidate)
        at = self._of(candidate)
        if not why_not and candidate.epoch <= at.granted.epoch:
            why_not = f"epoch {at.granted.epoch} was granted before"
        if why_not:
            return self._answer(candidate, why_not)
        log.warning(
            "mastership_granted broker=%s replica=%s epoch=%d", candidate.key, candidate.replica, candidate.epoch
        )
        await self._keep(candidate, at.grant(_grant(candidate), confirmed=False))
        return self._answer(candidate)

    async def renew(self, candidate: Candidate) -> MastershipAnswer:
        """The master is still there, with an epoch that enough name servers granted. Raises as ``take``.

        A name server that was away when the epoch was granted takes it over here.
        """
        granted, confirmed = (at := self._of(candidate)).granted, at.confirmed
        if candidate.epoch <= granted.epoch and granted.replica != candidate.replica:
            return self._answer(candidate, f"epoch {granted.epoch} was granted to {granted.replica}")
        if candidate.epoch < at.others_epoch:
            return self._answer(candidate, f"epoch {at.others_epoch} was granted to another replica")
        used = confirmed if candidate.epoch < granted.epoch else granted
        if candidate.epoch <= granted.epoch and not (granted.is_of(candidate) and used.is_of(candidate)):
            other = f"epoch {candidate.epoch} is not of process {candidate.process} of this replica"
            return msgspec.structs.replace(self._answer(candidate, other), other_process=True)
        unkept = self._kept.get(candidate.key) != at  # being written now, or the disk refused it before
        if candidate.epoch >= granted.epoch and (unkept or _grant(candidate) != confirmed):
            if candidate.epoch != confirmed.epoch:
                log.warning(
                    "mastership_confirmed broker=%s replica=%s epoch=%d",
                    candidate.key, candidate.replica, candidate.epoch,
                )  # fmt: skip
            await self._keep(candidate, at.grant(_grant(candidate), confirmed=True))
            if not self._of(candidate).granted.is_of(candidate):
                return self._answer(candidate, "another replica was granted an epoch meanwhile")
        self._heard[candidate.key, candidate.replica] = self._now_ms()
        return self._answer(candidate)

    def _against(self, candidate: Candidate) -> str:
        """Why it cannot be granted any epoch now; nothing when it can."""
        if self._path is None:
            return "this name server has no directory to keep epochs in: set directory"
        granted, confirmed = (at := self._of(candidate)).granted, at.confirmed
        if not confirmed.epoch and candidate.broker_id != MASTER_ID:
            return "no master has ever been known here"
        if confirmed.epoch and confirmed.replica not in (candidate.replica, candidate.followed):
            return f"replica {confirmed.replica} was the master last, and this one did not follow it"
        if granted.replica not in ("", candidate.replica):
            silent_ms = self._silent_ms(candidate.key, granted.replica)
            if silent_ms < granted.lease_ms:
                return f"replica {granted.replica} was heard of {silent_ms} ms ago"
        return self._copied(candidate)

    def _copied(self, candidate: Candidate) -> str:
        """Why this store is not the one that has its replica's name; nothing when it may be.

        Of a store and its copies the one that went on first has the name. The others have not what it has taken since.
        """
        at = self._of(candidate)
        known = at.granted if at.granted.replica == candidate.replica else at.confirmed
        if known.replica != candidate.replica or known.is_of(candidate):
            return ""
        if known.process not in candidate.before:
            return f"process {known.process} went on with another copy of this store: {LET_FOLLOW}"
        silent_ms = self._silent_ms(candidate.key, known.replica)
        if silent_ms < known.lease_ms:
            return f"process {known.process} of this replica, elsewhere, was heard of {silent_ms} ms ago: {LET_FOLLOW}"
        return ""

    def _of(self, candidate: Candidate) -> GrantedMastership:
        return self._table.get(candidate.key, GrantedMastership())

    def _silent_ms(self, key: str, replica: str) -> int:
        return self._now_ms() - self._heard.get((key, replica), self._began_ms)

    def _answer(self, candidate: Candidate, why_not: str = "") -> MastershipAnswer:
        at = self._of(candidate)
        return MastershipAnswer(not why_not, why_not, at, self._silent_ms(candidate.key, at.confirmed.replica))

    async def _keep(self, candidate: Candidate, at: GrantedMastership) -> None:
        """On disk before this returns. An epoch that could not be kept stays granted in memory, to nobody's use."""
        self._table[candidate.key] = at
        self._heard[candidate.key, candidate.replica] = self._now_ms()
        if self._path is None:
            self._kept[candidate.key] = at
            return
        async with self._writing:
            table = dict(self._table)
            try:
                await asyncio.to_thread(write_whole, self._path, msgspec.json.encode(table))
            except OSError as error:
                text = f"cannot write {self._path}: {error.strerror}; free some space, or check who owns it"
                raise DejamqError(text, code=Code.SYSTEM_ERROR) from None
            self._kept = table


def _grant(candidate: Candidate) -> Grant:
    return Grant(candidate.epoch, candidate.replica, candidate.broker_id, candidate.lease_ms, candidate.process)


def _read(path: Path) -> dict[str, GrantedMastership]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, GrantedMastership])
    except FileNotFoundError:
        return {}
    except (OSError, *BAD_JSON) as error:
        raise ConfigError(f"cannot read {path}: {error}; repair it or move it away") from None
