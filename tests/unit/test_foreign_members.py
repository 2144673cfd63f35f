"""Members that keep no journal: which those are, and the boot id by which a broker knows each."""

from pathlib import Path

import pytest
from dejamq_analytics.evidence.client import origin_of
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.mark import Mark
from dejamq_analytics.sources.journaled import Journaled, journaled
from dejamq_lab.foreign import has_foreign_members
from dejamq_proto.journal.events import Boot, MemberEvent, OffSet
from dejamq_proto.journal.writer import Journal, open_journal

JAVA = "10.0.0.9@70001#75937448736727"


def broker_of(directory: Path) -> Journal:
    journal = open_journal(directory, role="broker", process="broker-a-0", boot_id="0b", level="forensic")
    journal.write(Boot(broker_name="broker-a", broker_id=0, address="10.0.0.1:10911", clean=True))
    return journal


def member(client_id: str, boot_id: str, change: str = "+", reason: str = "heartbeat") -> MemberEvent:
    return MemberEvent(
        broker_name="broker-a", group="billing", client_id=client_id, client_boot_id=boot_id, change=change,
        reason=reason,
    )  # fmt: skip


def committed(client_id: str, boot_id: str, old: int, new: int) -> OffSet:
    return OffSet(
        broker_name="broker-a", group="billing", topic="orders", queue_id=0, old=old, new=new, by="oneway",
        client_id=client_id, client_boot_id=boot_id,
    )  # fmt: skip


def test_a_member_with_a_journal_of_its_own_is_not_foreign(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    open_journal(tmp_path, role="consumer", process="c1", boot_id="0c", level="forensic").close()
    broker.write(member("c1", "0c"))
    broker.close()
    assert not has_foreign_members(tmp_path)
    assert journaled([str(tmp_path)]).boots == {}


def test_a_foreign_member_has_the_boot_id_that_the_broker_gave_it(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    broker.write(member(JAVA, "0d"))
    broker.write(committed(JAVA, "0d", -1, 0))
    broker.close()
    assert has_foreign_members(tmp_path)
    found = journaled([str(tmp_path)])
    assert (found.names, found.boots) == ({"10.0.0.1:10911": "broker-a"}, {JAVA: "0d"})
    assert found.members == {"billing": {JAVA}}
    assert found.client_of("10.0.0.9", 70001 % 65536, "billing") == JAVA
    assert found.client_of("10.0.0.9", 1, "billing") is None
    assert not found.worked, "an offset of 0 tells of no work"


def test_a_connection_that_ended_without_a_goodbye_bounds_what_the_member_did(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    for event in (member(JAVA, "0d"), committed(JAVA, "0d", -1, 3), member(JAVA, "0d", "-", "close")):
        broker.write(event)
    broker.close()
    found = journaled([str(tmp_path)])
    assert found.worked == {JAVA}
    assert found.lost[JAVA].broker_name == "broker-a"


def known_by_broker(directory: Path, *client_ids: str) -> Journaled:
    broker = broker_of(directory)
    for number, client_id in enumerate(client_ids):
        broker.write(member(client_id, f"0d{number}"))
    broker.close()
    return journaled([str(directory)])


def test_a_member_whose_machine_has_several_addresses_is_known_by_its_process_id(tmp_path: Path) -> None:
    """RocketMQ's client takes one of them for its id, and maybe another one for its traces."""
    found = known_by_broker(tmp_path, JAVA)
    assert found.client_of("198.51.100.65", 70001 % 65536, "billing") == JAVA
    assert found.client_of("198.51.100.65", 70001 % 65536, "shipping") is None, "it is no member of that group"


def test_a_process_id_of_two_members_names_neither(tmp_path: Path) -> None:
    found = known_by_broker(tmp_path, JAVA, "10.0.0.8@70001#1")
    assert found.client_of("198.51.100.65", 70001 % 65536, "billing") is None


def test_a_process_id_of_a_container_names_nobody_without_its_address(tmp_path: Path) -> None:
    found = known_by_broker(tmp_path, "10.0.0.9@1#7")
    assert found.client_of("10.0.0.8", 1, "billing") is None
    assert found.client_of("10.0.0.9", 1, "billing") == "10.0.0.9@1#7"


@pytest.mark.parametrize(("pid", "another_address"), [(1, False), (4711, True)])
def test_a_trace_is_of_the_client_whose_log_has_its_process_id_but_for_those_of_containers(
    pid: int, another_address: bool
) -> None:
    clients = ClientStarts()
    said = {"client_id": f"10.0.0.9@{pid}#7", "group": "billing"}
    clients.read_log([Mark(0, 1000, "log:1", "billing-1", "created", said, str(pid))])
    clients.settle()
    (logged,) = clients.by_key.values()
    same, other = (origin_of(f"{address}{pid:04X}2A139A55000000000001") for address in ("0A000009", "0A000008"))
    assert same is not None
    assert other is not None
    assert clients.of_origin(same, "billing", 5) is logged
    assert (clients.of_origin(other, "billing", 5) is logged) == another_address
