"""The users and rules of one server: a file of its own, beside it RocketMQ 4's ``plain_acl.yml``.

The file is JSON of mode 0600, since it holds secrets: RocketMQ's proofs cannot be checked with hashes of them. It is
written as a whole under another name, which then takes its place. Each of both files is read again when it changes.
"""

import asyncio
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import msgspec

from dejamq_proto.access.model import Rule, User, UserType, check_rule, check_user
from dejamq_proto.access.plain_acl import PlainAcl, read_plain_acl
from dejamq_proto.codes import Code, ConfigError, DejamqError

log = logging.getLogger(__name__)
MODE = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO
LOOK_S = 1.0
"""Between two looks whether a file has changed."""


class Contents(msgspec.Struct, frozen=True):
    """All that the file holds."""

    users: tuple[User, ...] = ()
    rules: tuple[Rule, ...] = ()


class Book:
    """Owned by the event loop. What it says changes in one step, never by halves."""

    def __init__(self, file: Path, plain_acl: Path | None = None) -> None:
        self.file, self._plain_file = file, plain_acl
        self._own, self._plain = Contents(), PlainAcl()
        self._lent: tuple[User, ...] = ()
        self._users: dict[str, User] = {}
        self._rules: dict[str, list[Rule]] = {}
        self._seen: tuple[object, ...] = ()
        self._writing = asyncio.Lock()

    @property
    def contents(self) -> Contents:
        """Of the file of its own: what can be changed here."""
        return self._own

    @property
    def plain(self) -> PlainAcl:
        """Of ``plain_acl.yml``."""
        return self._plain

    def user(self, name: str) -> User | None:
        """By name; one of the own file comes before one of the other."""
        return self._users.get(name)

    def rules(self, name: str) -> list[Rule]:
        """Those of one user."""
        return self._rules.get(name, [])

    def inner_user(self) -> User | None:
        """By which this server shows other servers who it is; the first one where there are several."""
        mine = (*self._lent, *self._own.users)
        return next((user for user in mine if user.user_type is UserType.INNER), None)

    def lend(self, user: User) -> None:
        """A user of this process alone, which no file keeps."""
        self._lent = (*self._lent, user)
        self._take(self._own, self._plain)

    def load(self) -> None:
        """Read both files. A file that is missing says nothing. Raises ConfigError for one that cannot be used."""
        self._seen = self._marks()
        self._take(*self._read())

    async def follow(self) -> None:
        """Read the files again when they change. One that cannot be used changes nothing, and a line says why."""
        failed = ""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
                failed = ""
            except Exception as error:  # whatever it was, the next look may read it
                if str(error) != failed:
                    failed = str(error)
                    log.error("access_not_read reason=%s", error)

    async def _look(self) -> None:
        marks = await asyncio.to_thread(self._marks)
        if marks == self._seen:
            return
        async with self._writing:
            if marks[0] is None and self._own.users:
                raise ConfigError(f"{self.file} is gone; its users are those of before")
            own, plain = await asyncio.to_thread(self._read)
            self._seen = marks
            if (own, plain) == (self._own, self._plain):
                return  # this server has written it
            self._take(own, plain)
        log.warning("access_read_again users=%d", len(self._users))

    async def change(self, changed: Callable[[Contents], Contents]) -> None:
        """Write what this makes of the contents, and use it from then on. Raises DejamqError, and changes nothing.

        Another server may have the same file, so it is read again first, and nobody else writes it meanwhile.
        """
        async with self._writing:
            after = await asyncio.to_thread(change_file, self.file, changed)
            self._take(after, self._plain)

    def _read(self) -> tuple[Contents, PlainAcl]:
        plain = PlainAcl() if self._plain_file is None else read_plain_acl(self._plain_file)
        return read_contents(self.file), plain

    def _take(self, own: Contents, plain: PlainAcl) -> None:
        users = {user.username: user for user in (*plain.users, *own.users, *self._lent)}
        rules: dict[str, list[Rule]] = {}
        here = {user.username for user in own.users}
        for rule in (*own.rules, *(rule for rule in plain.rules if rule.username not in here)):
            rules.setdefault(rule.username, []).append(rule)
        self._own, self._plain, self._users, self._rules = own, plain, users, rules

    def _marks(self) -> tuple[object, ...]:
        """By which a change of a file shows."""
        marks: list[object] = []
        for file in filter(None, (self.file, self._plain_file)):
            try:
                facts = file.stat()
            except OSError:
                marks.append(None)
            else:
                marks.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
        return tuple(marks)


def check_contents(contents: Contents) -> None:
    """Raises INVALID_PARAMETER for users and rules that cannot be."""
    names = [user.username for user in contents.users]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DejamqError(f"user {twice[0]!r} is there twice", code=Code.INVALID_PARAMETER)
    for user in contents.users:
        check_user(user)
    for rule in contents.rules:
        check_rule(rule)
        if rule.username not in names:
            text = f"the rule for {rule.resource} is for {rule.username!r}, who is no user: create the user first"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)


def read_contents(file: Path) -> Contents:
    """Nothing where there is no file. Raises ConfigError for a file that others may read, or that makes no sense."""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & OTHERS:
                raise ConfigError(f"{file} holds secrets and others may read it: chmod 600 {file}")
            raw = opened.read()
    except FileNotFoundError:
        return Contents()
    except OSError as error:
        raise ConfigError(f"cannot read the users in {file}: {error.strerror}") from None
    try:
        contents = msgspec.json.decode(raw, type=Contents)
        check_contents(contents)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} holds no users and rules: {error}") from None
    except DejamqError as error:
        raise ConfigError(f"{file}: {error}") from None
    return contents


def change_file(file: Path, changed: Callable[[Contents], Contents]) -> Contents:
    """What is in the file afterwards. Raises DejamqError, and changes nothing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file.with_name(f".{file.name}.lock"), os.O_WRONLY | os.O_CREAT, MODE)
    except OSError as error:
        raise ConfigError(f"cannot write the users to {file}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_contents(file)
        after = changed(before)
        check_contents(after)
        if after != before:
            write_contents(file, after)
        return after
    finally:
        os.close(lock)


def write_contents(file: Path, contents: Contents) -> None:
    """In place of what is there, whole or not at all, and for nobody else to read. Raises ConfigError."""
    made = file.with_name(f".{file.name}.{token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        with open(descriptor, "wb") as opened:
            opened.write(msgspec.json.format(msgspec.json.encode(contents), indent=1) + b"\n")
            opened.flush()
            os.fsync(descriptor)
        made.replace(file)
    except OSError as error:
        with suppress(OSError):
            made.unlink()
        raise ConfigError(f"cannot write the users to {file}: {error.strerror}") from None


def with_user(contents: Contents, user: User) -> Contents:
    """With this user in place of one of the same name."""
    others = tuple(one for one in contents.users if one.username != user.username)
    return Contents((*others, user), contents.rules)


def without_user(contents: Contents, name: str) -> Contents:
    """Without the user and the rules for it. Raises QUERY_NOT_FOUND."""
    if all(one.username != name for one in contents.users):
        raise DejamqError(f"no user is named {name[:64]!r}", code=Code.QUERY_NOT_FOUND)
    return Contents(
        tuple(one for one in contents.users if one.username != name),
        tuple(rule for rule in contents.rules if rule.username != name),
    )


def with_rules(contents: Contents, rules: Iterable[Rule]) -> Contents:
    """With these in place of rules of the same user, kind and resource."""
    new = tuple(rules)
    places = {(rule.username, rule.policy_type, rule.resource) for rule in new}
    others = tuple(rule for rule in contents.rules if (rule.username, rule.policy_type, rule.resource) not in places)
    return Contents(contents.users, (*others, *new))


def without_rules(contents: Contents, name: str, goes: Callable[[Rule], bool]) -> Contents:
    """Without those rules of the user that go. Raises QUERY_NOT_FOUND where none does."""
    kept = tuple(rule for rule in contents.rules if rule.username != name or not goes(rule))
    if len(kept) == len(contents.rules):
        raise DejamqError(f"user {name[:64]!r} has no such rule", code=Code.QUERY_NOT_FOUND)
    return Contents(contents.users, kept)
