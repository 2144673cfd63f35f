"""Histories of a broker and of clients of RocketMQ 5 that write journals: the audit names P1, L1 and O10 in them."""

import itertools
from pathlib import Path
from typing import Any

from broker_wire import running
from dejamq_broker.pop.handles import Handle, physical_topic
from dejamq_proto.journal.events import AckTry, Deliver, Event, Result, SendResultEvent, SendTry, State
from dejamq_proto.journal.writer import Journal, Level, journal_name, new_boot_id
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import BOOT_ID, SEQ
from told import Auditor
from v2_wire import V2Client, message


class Program(V2Client):
    """A client that tells its broker of its own start and calls, and writes down what it does."""

    def __init__(self, address: str, directory: Path, name: str, role: str) -> None:
        super().__init__(address, name)
        boot_id = new_boot_id()
        self._journal = Journal(
            directory / journal_name(role, name, boot_id),
            role=role,
            process=name,
            boot_id=boot_id,
            level=Level.FORENSIC,
        )
        self._named, self._numbers, self._deliveries = (*self.headers, (BOOT_ID, boot_id)), 0, itertools.count(1)
        self.write(State(state="started", reason="level=forensic"))

    def write(self, event: Event) -> None:
        self._journal.write(event)

    def _count(self) -> int:
        self._numbers += 1
        self.headers = (*self._named, (SEQ, str(self._numbers)))
        return self._numbers

    async def call(self, name: str, request: Any, **more: Any) -> Any:
        if name != "SendMessage":
            self._count()
        return await super().call(name, request, **more)

    async def try_to_send(self, sent: pb.Message, number: int, *, heard: bool) -> None:
        """One try of the program's first call; the answer gets lost unless it is ``heard``."""
        seq = self._count()
        self.write(SendTry(
            request_seq=seq, broker_name="broker-a", address=self.address, group="shop", topics=[sent.topic.name],
            call_ids=[1], tries=[number], unique_keys=[sent.system_properties.message_id],
        ))  # fmt: skip
        assert (await self.send(sent)).status.code == pb.OK
        self.write(SendResultEvent(request_seq=seq, outcome="ok" if heard else "timeout", definite=heard))

    async def handle(self, group: str, topic: str = "orders", *, count: int = 1) -> list[tuple[int, pb.Message]]:
        """Receive as push consumers do, and enter a handler with each."""
        found: list[tuple[int, pb.Message]] = []
        while len(found) < count:
            self._count()
            _, got = await self.receive(topic, group, invisible_s=None, wait_s=15)
            for each in got:
                found.append((next(self._deliveries), each))
                self._entered(group, *found[-1])
        return found

    def _entered(self, group: str, delivery_id: int, each: pb.Message) -> None:
        system, handle = each.system_properties, Handle.read(each.system_properties.receipt_handle)
        self.write(Deliver(
            pq_id=0, **self._place(group, each), client_id=self.client_id, delivery_ids=[delivery_id],
            queue_offsets=[handle.queue_offset], log_offsets=[handle.log_offset], unique_keys=[system.message_id],
            store_hosts=[system.store_host], reconsume_times=[system.delivery_attempt - 1], kind="pop",
        ))  # fmt: skip

    async def done(self, group: str, delivery_id: int, each: pb.Message) -> None:
        handle = Handle.read(each.system_properties.receipt_handle)
        self.handled(group, delivery_id, each, "success")
        self.write(AckTry(
            **self._place(group, each), client_id=self.client_id, delivery_ids=[delivery_id],
            queue_offsets=[handle.queue_offset], pop_times=[handle.pop_time],
        ))  # fmt: skip
        assert (await self.ack(each, group=group)).status.code == pb.OK

    def handled(self, group: str, delivery_id: int, each: pb.Message, status: str) -> None:
        offset = Handle.read(each.system_properties.receipt_handle).queue_offset
        self.write(Result(
            pq_id=0, **self._place(group, each), delivery_ids=[delivery_id], queue_offsets=[offset], status=status,
            mem_off=-1,
        ))  # fmt: skip

    def _place(self, group: str, each: pb.Message) -> dict[str, Any]:
        handle = Handle.read(each.system_properties.receipt_handle)
        return {
            "group": group, "topic": physical_topic(group, each.topic.name, handle.kind), "broker_name": "broker-a",
            "queue_id": handle.queue_id,
        }  # fmt: skip

    async def leave(self) -> None:
        assert (await self.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())).status.code == pb.OK
        self.write(State(state="closed"))
        self._journal.close()
        await self.close()


async def test_the_audit_names_what_clients_of_rocketmq_5_did(tmp_path: Path, audited: Auditor) -> None:
    journals = tmp_path / "journals"
    settings = {"journal_dir": str(journals), "journal_level": "forensic", "broker_name": "broker-a"}
    async with running(tmp_path / "store", **settings) as broker:

        def program(name: str, role: str = "consumer") -> Program:
            return Program(broker.address, journals, name, role)

        shop = program("shop", "producer")
        twice = message(topic="paid")
        await shop.try_to_send(twice, 1, heard=False)
        await shop.try_to_send(twice, 2, heard=True)
        ledger = program("ledger")
        for delivery in await ledger.handle("ledger", "paid", count=2):
            await ledger.done("ledger", *delivery)
        once = message()
        await shop.try_to_send(once, 1, heard=True)
        fails = program("fails")
        ((number, given),) = await fails.handle("failing")
        fails.handled("failing", number, given, "exception")
        await fails.change(given, 0.05, group="failing")
        (again,) = await fails.handle("failing")
        await fails.done("failing", *again)
        hasty, heir = program("hasty"), program("heir")
        await hasty.handle("hasty")
        await hasty.leave()
        (left,) = await heir.handle("hasty")
        await heir.done("hasty", *left)
        for each in (shop, ledger, fails, heir):
            await each.leave()
    result = audited(journals=[str(journals)])
    rows = result.findings.collect()
    found = {(row.message_id, row.cause, row.certainty, row.expected) for row in rows}
    assert found == {
        (twice.system_properties.message_id, "P1", "certain", False),
        (once.system_properties.message_id, "L1", "certain", True),
        (once.system_properties.message_id, "O10", "certain", False),
    }, rows
