"""Repeats told from a broker's journal that the test writes."""

from pathlib import Path

import msgspec
import pytest
from dejamq_lab.broker_duplicates import RepeatedHandOut, find_repeats
from dejamq_proto.journal import events as ev

S = 1_000_000
"""Microseconds of a second."""


class Written:
    """A journal of broker-a; each line comes a second after the one before it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lines = folder, list[ev.Event]()

    def write(self, line: ev.Event) -> "Written":
        number = len(self._lines) + 1
        line.process, line.boot_id, line.seq, line.wall_us = "broker-a-0", "b1", number, number * S
        self._lines.append(line)
        return self

    def sent(self, key: str, queue_id: int = 0, offset: int = 0, topic: str = "t", origin: str = "client") -> "Written":
        return self.write(ev.Append(
            origin=origin, broker_name="broker-a", topics=[topic], queue_ids=[queue_id], queue_index=[0],
            queue_offsets=[offset], log_offsets=[0], unique_keys=[key], client_id="p",
        ))  # fmt: skip

    def pulled(
        self, client_id: str, queue_id: int = 0, offset: int = 0, upto: int = 1, count: int | None = None,
        topic: str = "t", group: str = "g",
    ) -> "Written":  # fmt: skip
        return self.write(ev.Pull(
            broker_name="broker-a", group=group, topic=topic, queue_id=queue_id, client_id=client_id,
            client_boot_id="", request_seq=0, request_offset=offset, next_offset=upto,
            count=upto - offset if count is None else count, code=0,
        ))  # fmt: skip

    def committed(self, client_id: str, new: int, old: int = 0, by: str = "oneway") -> "Written":
        return self.write(ev.OffSet(
            broker_name="broker-a", group="g", topic="t", queue_id=0, old=old, new=new, by=by, client_id=client_id
        ))  # fmt: skip

    def asked(self, client_id: str) -> "Written":
        """The broker keeps the offsets of this group."""
        return self.write(ev.OffGet(
            broker_name="broker-a", group="g", topic="t", queue_id=0, value=0, why="table", client_id=client_id
        ))  # fmt: skip

    def left(self, client_id: str, reason: str) -> "Written":
        return self.write(ev.MemberEvent(
            broker_name="broker-a", group="g", client_id=client_id, client_boot_id="", change="-", reason=reason
        ))  # fmt: skip

    def repeats(self, *struck: tuple[int, str]) -> list[RepeatedHandOut]:
        """``struck``: seconds and place."""
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines)
        (self._folder / "broker.jsonl").write_bytes(text + b'{"event":"PULL","torn')
        return find_repeats(self._folder, "g", [(at_s * S, place) for at_s, place in struck])

    def causes(self, *struck: tuple[int, str]) -> list[str]:
        return [repeat.cause for repeat in self.repeats(*struck)]


@pytest.fixture
def journal(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_one_hand_out_of_each_message_is_no_repeat(journal: Written) -> None:
    assert journal.sent("K1").sent("K2", offset=1).pulled("c1", upto=2).causes() == []


def test_another_group_has_hand_outs_of_its_own(journal: Written) -> None:
    assert journal.sent("K1").pulled("c1").pulled("c2", group="other").causes() == []


@pytest.mark.parametrize("reason", ["close", "expire"])
def test_an_owner_that_ended_without_a_word_and_without_an_offset_is_o1(journal: Written, reason: str) -> None:
    journal.asked("c1").sent("K1").pulled("c1").left("c1", reason).pulled("c2")
    (repeat,) = journal.repeats()
    assert (repeat.cause, repeat.identity, repeat.message_id) == ("O1", "I1", "K1")
    assert repeat.evidence == ("broker-a-0 b1 3 PULL", "broker-a-0 b1 4 MEMBER", "broker-a-0 b1 5 PULL")


def test_an_owner_that_said_good_bye_may_have_stopped_under_its_handler(journal: Written) -> None:
    (repeat,) = journal.asked("c1").sent("K1").pulled("c1").left("c1", "unregister").pulled("c2").repeats()
    assert (repeat.cause, bool(repeat.missing)) == ("undetermined", True)


def test_an_offset_that_comes_after_the_new_owner_began_is_o8(journal: Written) -> None:
    assert journal.asked("c1").sent("K1").pulled("c1").pulled("c2").committed("c1", 1).causes() == ["O8"]


def test_an_offset_that_another_member_set_lower_is_o12(journal: Written) -> None:
    journal.asked("c1").sent("K1").pulled("c1").committed("c1", 1).committed("c2", 0, old=1).pulled("c2")
    assert journal.causes() == ["O12"]


def test_a_broker_that_was_killed_with_the_offset_in_memory_is_o3(journal: Written) -> None:
    journal.asked("c1").sent("K1").pulled("c1").committed("c1", 1)
    journal.write(ev.Boot(broker_name="broker-a", broker_id=0, address="", clean=False)).pulled("c1")
    assert journal.causes() == ["O3"]


def test_a_clean_start_of_the_broker_is_no_cause(journal: Written) -> None:
    journal.asked("c1").sent("K1").pulled("c1").committed("c1", 1)
    journal.write(ev.Boot(broker_name="broker-a", broker_id=0, address="", clean=True)).pulled("c1")
    assert journal.causes() == ["undetermined"]


def test_a_commit_that_was_lost_on_its_way_is_o2(journal: Written) -> None:
    journal.asked("c1").sent("K1").pulled("c1").pulled("c2")
    assert journal.causes((3, "rpc.UPDATE_CONSUMER_OFFSET.request")) == ["O2"]


@pytest.mark.parametrize("by", ["reset", "clone"])
def test_what_an_operator_sent_back_was_asked_for(journal: Written, by: str) -> None:
    journal.asked("c1").sent("K1").pulled("c1").committed("c1", 1).committed("", 0, old=1, by=by).pulled("c1")
    assert journal.causes() == []


def test_members_that_broadcast_each_have_all(journal: Written) -> None:
    assert journal.sent("K1").pulled("c1").pulled("c2").causes() == []
    assert len(journal.pulled("c2").causes()) == 1


def test_the_copy_that_was_stored_first_is_the_one_whose_answer_was_lost(journal: Written) -> None:
    journal.sent("K1", queue_id=1).sent("K1", queue_id=0).pulled("c1", queue_id=0).pulled("c1", queue_id=1)
    (repeat,) = journal.repeats((1, "send.answer"))
    assert (repeat.identity, repeat.cause) == ("I2", "P1")


def test_a_lost_answer_of_another_send_proves_nothing(journal: Written) -> None:
    journal.sent("K0").sent("K1", offset=1).sent("K1", offset=2).pulled("c1", upto=3)
    assert journal.causes((1, "rpc.SEND_MESSAGE_V2.answer")) == ["undetermined"]


def test_a_copy_in_the_groups_retry_topic_was_asked_for(journal: Written) -> None:
    journal.sent("K1").pulled("c1").sent("K1", topic="%RETRY%g", origin="schedule").pulled("c1", topic="%RETRY%g")
    assert journal.causes() == []


def test_a_transaction_that_ended_twice_is_p7(journal: Written) -> None:
    journal.sent("K1", origin="tx_final").sent("K1", offset=1, origin="tx_final").pulled("c1", upto=2)
    assert journal.causes() == ["P7"]


def test_of_an_answer_that_a_filter_thinned_out_only_as_many_count_as_it_had(journal: Written) -> None:
    journal.asked("c1").sent("K1").sent("K2", offset=1).sent("K3", offset=2)
    journal.pulled("c1", upto=3, count=1).left("c1", "close").pulled("c2", upto=3, count=1)
    (repeat,) = journal.repeats()
    assert (repeat.cause, repeat.message_id) == ("O1", "")


def test_an_answer_that_was_lost_was_no_hand_out(journal: Written) -> None:
    assert journal.asked("c1").sent("K1").pulled("c1").pulled("c1").causes((3, "rpc.PULL_MESSAGE.answer")) == []
