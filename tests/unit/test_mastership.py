"""Who is master: what one name server grants, what a replica makes of several, and both through random troubles."""

import asyncio
import random
import shutil
from pathlib import Path

import msgspec
import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.failover import broker_of
from dejamq_broker.replication.mastership import TRUSTED, GrantAnswer, Mastership, MastershipWish, Role, RoleFile
from dejamq_lab import dev
from dejamq_lab.cluster.inproc import InProcessServer
from dejamq_namesrv.masterships import FILE_NAME, Candidate, MastershipAnswer, Masterships
from dejamq_proto.codes import BrokerUnavailable, ConfigError, DejamqError

LEASE_MS = 1_000
MASTER = Candidate(
    cluster="c", broker_name="b", replica="m", broker_id=0, epoch=1, followed="", lease_ms=LEASE_MS
)  # fmt: skip
SLAVE = msgspec.structs.replace(MASTER, replica="s", broker_id=1, epoch=2, followed="m")


class Time:
    """Milliseconds, moved by tests."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return int(self.ms)


async def a_master_known(directory: Path, time: Time) -> Masterships:
    made = Masterships(str(directory), time.now_ms)
    assert (await made.take(MASTER)).done
    assert (await made.renew(MASTER)).done
    return made


# One name server.


async def test_no_epoch_is_granted_before_the_lease_of_the_master_is_over(tmp_path: Path) -> None:
    time = Time()
    one = await a_master_known(tmp_path, time)
    time.ms = LEASE_MS - 1
    refused = await one.take(SLAVE)
    assert (refused.done, refused.reason) == (False, "replica m was heard of 999 ms ago")
    time.ms = LEASE_MS
    assert one.look(SLAVE).done
    assert (await one.take(SLAVE)).done
    assert not (await one.renew(MASTER)).done, "its epoch is older"


async def test_a_master_is_known_only_when_it_came_back_with_its_epoch(tmp_path: Path) -> None:
    time = Time()
    one = await a_master_known(tmp_path, time)
    time.ms = LEASE_MS
    assert (await one.take(SLAVE)).at.confirmed.replica == "m"
    assert (await one.renew(SLAVE)).at.confirmed.replica == "s"


async def test_an_old_epoch_is_renewed_only_where_nobody_else_was_granted_a_later_one(tmp_path: Path) -> None:
    time = Time()
    one = await a_master_known(tmp_path, time)
    time.ms += LEASE_MS
    assert (await one.take(msgspec.structs.replace(MASTER, epoch=2))).done
    assert (await one.renew(MASTER)).done, "too few granted epoch 2"
    time.ms += LEASE_MS
    assert (await one.take(msgspec.structs.replace(SLAVE, epoch=3))).done
    time.ms += LEASE_MS
    assert (await one.take(msgspec.structs.replace(MASTER, epoch=4))).done
    for again in (one, Masterships(str(tmp_path), time.now_ms)):
        refused = await again.renew(MASTER)
        assert (refused.done, refused.reason) == (False, "epoch 3 was granted to another replica")
    assert (await one.renew(msgspec.structs.replace(MASTER, epoch=4))).done


async def test_a_restart_keeps_the_epoch_and_counts_the_lease_anew(tmp_path: Path) -> None:
    time = Time()
    await a_master_known(tmp_path, time)
    time.ms = 5_000
    again = Masterships(str(tmp_path), time.now_ms)
    assert not again.look(SLAVE).done, "the master may have been heard of just before the restart"
    time.ms += LEASE_MS
    refused = await again.take(msgspec.structs.replace(SLAVE, epoch=1))
    assert refused.reason == "epoch 1 was granted before"
    assert (await again.take(SLAVE)).done


async def test_only_a_slave_of_the_last_master_is_granted_an_epoch(tmp_path: Path) -> None:
    time = Time()
    one = await a_master_known(tmp_path, time)
    time.ms = LEASE_MS
    for stranger in ("", "another"):
        refused = await one.take(msgspec.structs.replace(SLAVE, followed=stranger))
        assert refused.reason == "replica m was the master last, and this one did not follow it"


async def test_a_slave_is_no_first_master(tmp_path: Path) -> None:
    refused = await Masterships(str(tmp_path), Time().now_ms).take(SLAVE)
    assert refused.reason == "no master has ever been known here"


async def test_a_name_server_that_keeps_nothing_grants_nothing() -> None:
    refused = await Masterships(None, Time().now_ms).take(MASTER)
    assert refused.reason == "this name server has no directory to keep epochs in: set directory"


async def test_an_epoch_that_cannot_be_kept_is_granted_to_nobody(tmp_path: Path) -> None:
    one = Masterships(str(tmp_path / "folder"), Time().now_ms)
    (tmp_path / "folder").write_text("")
    with pytest.raises(DejamqError, match="cannot write"):
        await one.take(MASTER)


async def test_a_master_is_confirmed_by_no_name_server_whose_disk_refuses_it(tmp_path: Path) -> None:
    time = Time()
    one = Masterships(str(tmp_path), time.now_ms)
    assert (await one.take(MASTER)).done
    in_the_way = (tmp_path / FILE_NAME).with_suffix(".tmp")
    in_the_way.mkdir()
    for _ in range(2):
        with pytest.raises(DejamqError, match="cannot write"):
            await one.renew(MASTER)
    in_the_way.rmdir()
    assert (await one.renew(MASTER)).done
    assert Masterships(str(tmp_path), time.now_ms).look(SLAVE).at.confirmed.replica == "m"


async def test_of_a_store_and_its_copy_the_one_that_is_heard_of_stays_master(tmp_path: Path) -> None:
    time = Time()
    one = Masterships(str(tmp_path), time.now_ms)
    serving, copy = _by(MASTER, "p1"), _by(MASTER, "p2", before=("p1",))
    assert (await one.take(serving)).done
    assert (await one.renew(serving)).done
    time.ms = LEASE_MS - 1
    refused = await one.renew(copy)
    assert (refused.done, refused.other_process) == (False, True)
    refused = await one.take(_by(msgspec.structs.replace(MASTER, epoch=2), "p2", before=("p1",)))
    assert refused.reason.startswith(
        "process p1 of this replica, elsewhere, was heard of 999 ms ago: if this store is a"
    )
    assert (await one.renew(_by(MASTER, "p1", "p3"))).done, "the same store, served by its next process"
    assert not (await one.renew(serving)).done, "it has ended, so this came late"


async def test_of_a_store_and_its_copy_only_the_one_that_went_on_becomes_master_again(tmp_path: Path) -> None:
    time = Time()
    one = Masterships(str(tmp_path), time.now_ms)
    serving, copy = _by(MASTER, "p1"), _by(msgspec.structs.replace(MASTER, epoch=2), "p2", before=("p1",))
    assert (await one.take(serving)).done
    time.ms += LEASE_MS
    assert (await one.take(copy)).done, "as after a restart of the machine"
    time.ms += 10 * LEASE_MS
    for again in (Masterships(str(tmp_path), time.now_ms), one):
        time.ms += LEASE_MS
        refused = await again.take(_by(msgspec.structs.replace(MASTER, epoch=3), "p1", "p4"))
        assert refused.reason.startswith("process p2 went on with another copy of this store")


def _by(candidate: Candidate, *ended: str, before: tuple[str, ...] = ()) -> Candidate:
    return msgspec.structs.replace(candidate, ended=ended, before=before)


@pytest.mark.parametrize("content", ["", "{", '{"c/b": 7}'])
def test_a_damaged_file_stops_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(ConfigError, match="repair it"):
        Masterships(str(tmp_path), Time().now_ms)


# One replica and several name servers, through random troubles.


class Lossy:
    """A ``Granter`` whose questions and answers are lost, or come late, as the dice say."""

    def __init__(self, number: int, site: "Site") -> None:
        self.address, self._number, self._site = str(number), number, site

    async def ask(self, wish: MastershipWish, role: Role, lease_ms: int, timeout_ms: float) -> GrantAnswer:
        site = self._site
        asked = Candidate(
            cluster="c", broker_name="b", replica=role.replica, epoch=wish.epoch, followed=wish.followed,
            broker_id=role.came_from if role.master else role.broker_id, lease_ms=lease_ms,
            ended=role.ended, before=role.before,
        )  # fmt: skip
        fate = site.dice.random()
        if fate < site.loss:
            raise BrokerUnavailable("lost")
        if fate < 2 * site.loss:
            site.late.append((self._number, wish.kind, asked))
            raise BrokerUnavailable("late")
        answer = await site.ask(self._number, wish.kind, asked)
        if fate < 3 * site.loss:
            raise BrokerUnavailable("its answer is lost")
        granted, confirmed = answer.at.granted, answer.at.confirmed
        return GrantAnswer(
            done=answer.done, reason=answer.reason, granted_epoch=granted.epoch, granted_replica=granted.replica,
            confirmed_epoch=confirmed.epoch, confirmed_replica=confirmed.replica,
            confirmed_broker_id=confirmed.broker_id, silent_ms=answer.silent_ms, other_process=answer.other_process,
        )  # fmt: skip


class Replica:
    """A log of numbers, and the right to add to it. Its clock runs a little wrong."""

    def __init__(self, site: "Site", broker_id: int, name: str = "") -> None:
        self.site, self.log, self.followed = site, list[int](), ""
        self.broker_id, self.name = broker_id, name or f"replica-{broker_id}"
        self.restart()

    def restart(self) -> None:
        """Another process serves the same store."""
        site = self.site
        rate = site.dice.uniform(0.9, 1.1)
        file = RoleFile(site.directory / self.name)
        role = file.read(self.broker_id).served_by(f"{site.dice.getrandbits(64):x}", self.name)
        self.right = Mastership(
            role, file, [Lossy(number, site) for number in range(len(site.judges))], LEASE_MS,
            lambda: site.time.ms / 1000 * rate,
        )  # fmt: skip

    async def step(self) -> None:
        """As ``FailoverBroker`` does it."""
        right = self.right
        if not right.role.master:
            if self.followed and await right.look(self.followed) is not None and await right.take(self.followed):
                await right.renew()
            return
        if right.role.epoch:
            await right.renew()
        else:
            await right.look("")
        if (by := right.superseded_by) is not None:
            assert await right.step_down(by), "its later master was a slave before"
            self.followed = ""
        elif (right.epoch_lost or not right.role.epoch) and await right.take():
            await right.renew()


class Site:
    """Name servers, a master and a slave. ``acknowledged`` is what both had while the producer waited."""

    def __init__(self, directory: Path, seed: int, namesrvs: int) -> None:
        self.directory, self.dice, self.time, self.loss = directory, random.Random(seed), Time(), 0.1
        self.rates = [self.dice.uniform(0.9, 1.1) for _ in range(namesrvs)]
        self.judges = [self._judge(number) for number in range(namesrvs)]
        self.late: list[tuple[int, str, Candidate]] = []
        self.replicas = [Replica(self, 0), Replica(self, 1)]
        self.acknowledged: list[int] = []
        self.masters: list[str] = []
        self._last = 0

    def _judge(self, number: int) -> Masterships:
        return Masterships(
            str(self.directory / f"namesrv-{number}"), lambda: int(self.time.ms * self.rates[number])
        )  # fmt: skip

    async def ask(self, number: int, kind: str, asked: Candidate) -> MastershipAnswer:
        judge = self.judges[number]
        if kind == "look":
            return judge.look(asked)
        return await (judge.take(asked) if kind == "take" else judge.renew(asked))

    async def step(self) -> None:
        dice, steps = self.dice, (self._act, self._act, self._act, self._send, self._copy, self._copy)
        await dice.choice(steps)()
        await self.trouble()
        self.time.ms += dice.choice((5, 20, 50, 50, 200)) if dice.random() < 0.98 else dice.uniform(0, 3 * LEASE_MS)
        self.check()

    async def trouble(self) -> None:
        """Old questions arrive, name servers and replicas restart, links become better or worse."""
        dice = self.dice
        if dice.random() < 0.05 and self.late:
            await self.ask(*self.late.pop(dice.randrange(len(self.late))))
        if dice.random() < 0.02:
            number = dice.randrange(len(self.judges))
            self.judges[number] = self._judge(number)
        if dice.random() < 0.01:
            dice.choice(self.replicas).restart()
        if dice.random() < 0.02:
            self.loss = dice.choice((0.0, 0.1, 0.3))

    def check(self) -> None:
        """Never two masters, and the one there is has everything that was acknowledged."""
        holding = [replica for replica in self.replicas if replica.right.holds()]
        assert len(holding) <= 1
        for replica in holding:
            assert replica.log[: len(self.acknowledged)] == self.acknowledged
            if self.masters[-1:] != [replica.right.role.replica]:
                self.masters.append(replica.right.role.replica)

    async def _act(self) -> None:
        await self.dice.choice(self.replicas).step()

    async def _send(self) -> None:
        for replica in self.replicas:
            if replica.right.holds():
                self._last += 1
                replica.log.append(self._last)

    async def _copy(self) -> None:
        """The slave cuts back and copies; then its master acknowledges, whatever became of its lease."""
        for slave, master in (self.replicas, reversed(self.replicas)):
            if master.right.role.master and master.right.role.epoch and not slave.right.role.master:
                slave.log, slave.followed = list(master.log), master.right.role.replica
                self.acknowledged = list(master.log)


@pytest.mark.parametrize("namesrvs", [1, 2, 3])
async def test_there_are_never_two_masters_and_nothing_acknowledged_is_lost(
    tmp_path: Path, namesrvs: int, seed: int
) -> None:
    changes = 0
    for number in range(8):
        site = Site(tmp_path / str(number), seed + number, namesrvs)
        for _ in range(400):
            await site.step()
        changes += len(site.masters)
    assert changes > 8, "masters must have changed for this to prove anything"


@pytest.mark.parametrize("namesrvs", [1, 2, 3])
async def test_a_store_and_its_copy_are_never_master_at_once(tmp_path: Path, namesrvs: int, seed: int) -> None:
    """Whichever is lost for a while, or moves on by its next process."""
    masters = set()
    for number in range(8):
        site = Site(tmp_path / str(number), seed + number, namesrvs)
        site.replicas.pop()
        while not site.masters:
            await site.replicas[0].step()
            site.check()
        shutil.copytree(site.directory / "replica-0", site.directory / "copy")
        site.replicas.append(Replica(site, 0, "copy"))
        for _ in range(200):
            site.time.ms += site.dice.choice((50, 200, 2 * LEASE_MS))
            one = site.dice.choice(site.replicas)
            await one.step()
            await site.trouble()
            holding = [replica.name for replica in site.replicas if replica.right.holds()]
            assert len(holding) <= 1
            masters.update(holding)
    assert masters == {"replica-0", "copy"}, "both must have been master for this to prove anything"


async def test_renewals_at_the_same_time_note_an_epoch_once(tmp_path: Path) -> None:
    for number in range(20):
        site = Site(tmp_path / str(number), number, 1)
        site.loss = 0.0
        right = site.replicas[0].right
        await right.look("")
        assert await right.take()
        assert all(await asyncio.gather(right.renew(), right.renew()))
        assert RoleFile(site.directory / "replica-0").read(0) == right.role
        assert right.role.confirmed


async def test_a_master_stops_before_its_lease_is_over_at_a_name_server(tmp_path: Path) -> None:
    site = Site(tmp_path, 1, 2)
    site.loss = 0.0
    master = site.replicas[0].right
    assert not master.holds()
    with pytest.raises(DejamqError, match="too few name servers"):
        master.check()
    await site.replicas[0].step()
    assert master.holds()
    master.check()
    site.time.ms += LEASE_MS * TRUSTED * 1.12
    assert not master.holds()
    assert not site.judges[0].look(SLAVE).done


async def test_of_two_name_servers_one_keeps_the_master_and_both_make_one(tmp_path: Path) -> None:
    site = Site(tmp_path, 1, 2)
    assert (site.replicas[0].right.needed, site.replicas[0].right.renewals_needed) == (2, 1)
    three = Site(tmp_path / "three", 1, 3).replicas[0].right
    assert (three.needed, three.renewals_needed) == (2, 2)


async def test_a_store_that_took_part_in_fail_over_is_not_served_without_it(tmp_path: Path) -> None:
    config = BrokerConfig(store_directory=str(tmp_path), listen="127.0.0.1:0")
    assert broker_of(config)
    (tmp_path / "config").mkdir()
    await RoleFile(tmp_path).write(Role("m", 0, epoch=5))
    with pytest.raises(ConfigError, match=r"took part in fail-over \(epoch 5\).*set failover_enable=true"):
        broker_of(config)


async def test_a_server_inside_a_process_refuses_such_a_store_too(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    await RoleFile(tmp_path).write(Role("m", 0, epoch=5))
    server = InProcessServer(BrokerConfig(store_directory=str(tmp_path), listen="127.0.0.1:0"), None)
    try:
        with pytest.raises(ConfigError, match="took part in fail-over"):
            await server.start()
    finally:
        await server.end()


async def test_a_dev_server_refuses_such_a_store_too(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    await RoleFile(tmp_path).write(Role("m", 0, epoch=5))
    with pytest.raises(ConfigError, match="took part in fail-over"):
        await dev.serve(BrokerConfig(store_directory=str(tmp_path), listen="127.0.0.1:0"))
