"""Causes that logs, traces and stores of a RocketMQ cluster prove, and those that they only make likely."""

from pathlib import Path
from typing import Any

import pytest
from dejamq_proto import names
from foreign import BEGAN_MS, GROUP, RETRY, TOPIC, Consumer, Incident, Place, key_of, printed

Findings = list[dict[str, Any]]


@pytest.fixture
def incident(tmp_path: Path) -> Incident:
    return Incident(tmp_path / "run")


def named(findings: Findings) -> list[str | None]:
    """The cause of each, in order of time."""
    return [one["cause"] for one in sorted(findings, key=lambda one: (one["time"], one["finding_id"]))]


def words(findings: Findings) -> str:
    return "\n".join(str(one["missing"]) for one in findings)


# a broker stored it again


def delayed(incident: Incident, at: int = 1000) -> Place:
    """A message that waits for its delay, and was delivered once."""
    born = BEGAN_MS + at
    place = incident.put(at, names.SCHEDULE_TOPIC, key_of(1), queue=0, REAL_TOPIC=TOPIC, born_timestamp_ms=born)
    incident.put(at + 1000, TOPIC, key_of(1), REAL_TOPIC=TOPIC, born_timestamp_ms=born)
    return place


def test_a_delayed_message_that_came_again_after_a_crash_is_B1(incident: Incident) -> None:
    delayed(incident)
    incident.crash(10_000)
    incident.put(12_000, TOPIC, key_of(1), REAL_TOPIC=TOPIC, born_timestamp_ms=BEGAN_MS + 1000)
    verdict, findings = incident.audit()
    assert verdict.causes == {"B1": 1}
    assert any("store.log" in line["summary"] for line in findings[0]["evidence"])


def test_a_delayed_message_that_came_again_without_a_crash_has_no_cause(incident: Incident) -> None:
    delayed(incident)
    incident.put(12_000, TOPIC, key_of(1), REAL_TOPIC=TOPIC, born_timestamp_ms=BEGAN_MS + 1000)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({}, 1)


def failing(incident: Incident) -> Consumer:
    """A member whose handler failed once, and the message's retry as the broker stored it."""
    incident.send(1)
    one = Consumer(incident, "billing-1", 41, 500)
    one.open(900)
    one.open(901, topic=RETRY)
    one.handle(2000, key_of(1), code=4, success=False)
    born = BEGAN_MS + 1000
    about: dict[str, Any] = {"REAL_TOPIC": RETRY, "born_timestamp_ms": born, "reconsume_times": 1}
    incident.put(2011, names.SCHEDULE_TOPIC, key_of(1), queue=2, **about)
    incident.put(12_011, RETRY, key_of(1), **about)
    one.handle(12_020, key_of(1), times=1)
    one.rounds(10_500, 30_500, 1)
    return one


def itself(incident: Incident, at: int = 7015) -> None:
    """The retry that the consumer sent by itself."""
    about: dict[str, Any] = {
        "REAL_TOPIC": RETRY, "RECONSUME_TIME": 1, "born_timestamp_ms": BEGAN_MS + at, "reconsume_times": 1,
    }  # fmt: skip
    incident.put(at, names.SCHEDULE_TOPIC, key_of(1), queue=2, **about)
    incident.put(at + 10_000, RETRY, key_of(1), **about)


def test_a_message_that_was_taken_back_twice_is_B11(incident: Incident) -> None:
    one = failing(incident)
    one.log(7012, f"Failed to send message back, consumerGroup={GROUP}, brokerName=broker-a, mq=null, message=x")
    itself(incident)
    one.handle(17_020, key_of(1), times=1)
    verdict, findings = incident.audit()
    assert verdict.causes == {"B11": 1}
    assert sorted(map(str, named(findings))) == ["B11", "L1"]


def test_two_retries_of_one_failure_have_no_cause_without_the_line_of_the_consumer(incident: Incident) -> None:
    one = failing(incident)
    itself(incident)
    one.handle(17_020, key_of(1), times=1)
    verdict, _ = incident.audit()
    assert verdict.causes.keys() <= {"L1"}
    assert verdict.undetermined == 1


def test_a_message_that_was_given_back_while_its_handler_ran_is_B13(incident: Incident) -> None:
    place = incident.send(1)
    one = Consumer(incident, "billing-1", 41, 500)
    one.open(900)
    one.open(901, topic=RETRY)
    one.handle(2000, key_of(1), took=80_000, code=1)
    one.log(62_000, f"send expire msg back. topic={TOPIC}, msgId={key_of(1)}, storeHost=/10.0.0.1:10911, queueId=0, "
                    f"queueOffset={place.queue_offset}")  # fmt: skip
    about: dict[str, Any] = {"REAL_TOPIC": RETRY, "born_timestamp_ms": BEGAN_MS + 1000, "reconsume_times": 1}
    incident.put(62_010, names.SCHEDULE_TOPIC, key_of(1), queue=2, **about)
    incident.put(72_010, RETRY, key_of(1), **about)
    one.handle(72_020, key_of(1), times=1)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"B13": 1}, 0)


# transactions


def half(incident: Incident, at: int, checks: int = 0) -> Place:
    more: dict[str, Any] = {"TRANSACTION_CHECK_TIMES": checks} if checks else {}
    return incident.put(at, names.HALF_TOPIC, key_of(1), REAL_TOPIC=TOPIC, **more)


def mark(incident: Incident, at: int, place: Place) -> None:
    incident.put(at, names.OP_TOPIC, "", f"{place.queue_offset},".encode())


def test_a_transaction_that_a_check_and_its_program_committed_is_P7(incident: Incident) -> None:
    first = half(incident, 1000)
    again = half(incident, 31_000, checks=1)
    incident.commit(31_010, key_of(1), again)
    incident.server(31_010, "Check producer[10.0.0.5:1] transaction state, the producer commit the message."
                            f"RequestHeader: EndTransactionRequestHeader{{commitLogOffset={again.log_offset}, x}}",
                    "transaction.log")  # fmt: skip
    mark(incident, 34_000, again)
    incident.commit(40_000, key_of(1), first)
    incident.trace(40_000, [["EndTransaction", BEGAN_MS + 40_000, "R", "shop", TOPIC, key_of(1), "", "k", "10.0.0.1:1",
                             2, key_of(1), "COMMIT_MESSAGE", "false"]])  # fmt: skip
    verdict, findings = incident.audit()
    assert verdict.causes == {"P7": 1}
    told = {line["event"]: line["summary"] for line in findings[0]["evidence"]}
    assert findings[0]["trigger"] == "the program's own commit and the answer to a check"
    assert "commit, from a check: false" in told["TX"]
    assert any("transaction.log:1" in line["summary"] for line in findings[0]["evidence"])


def test_two_answers_that_both_came_before_a_mark_are_P7(incident: Incident) -> None:
    first = half(incident, 1000)
    again = half(incident, 31_000, checks=1)
    incident.commit(31_010, key_of(1), again)
    incident.commit(32_000, key_of(1), first)
    verdict, _ = incident.audit()
    assert verdict.causes == {"P7": 1}


def crashed(incident: Incident, *, crash: bool = True) -> None:
    """A transaction whose mark is not there, and that a check committed once more."""
    first = half(incident, 1000)
    incident.commit(1010, key_of(1), first)
    if crash:
        incident.crash(10_000)
    again = half(incident, 40_000, checks=1)
    incident.commit(40_010, key_of(1), again)


def test_a_transaction_whose_mark_a_crash_took_is_P8(incident: Incident) -> None:
    crashed(incident)
    verdict, _ = incident.audit()
    assert verdict.causes == {"P8": 1}


def test_a_transaction_without_a_mark_and_without_a_crash_has_no_cause(incident: Incident) -> None:
    crashed(incident, crash=False)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({}, 1)


def test_a_copy_behind_one_that_was_stored_less_durably_names_both_that_may_have_sent_it(incident: Incident) -> None:
    first, second = incident.send(1), incident.send(1, at=1500, queue=1)
    for at, place, good in ((1000, first, "false"), (1500, second, "true")):
        incident.trace(at + 5, [["Pub", BEGAN_MS + at, "R", "shop", TOPIC, key_of(1), "", "k", "127.0.0.1:10911", 1, 3,
                                 0, incident.message_id(place), good]])  # fmt: skip
    verdict, findings = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({}, 1)
    assert "P3" in words(findings), words(findings)
    assert "P5" in words(findings)


# offsets


def owner(incident: Incident, machine: str, pid: int, at: int, **more: Any) -> Consumer:
    """A member that opens the only queue."""
    members, strategy = more.pop("members", 1), more.pop("strategy", "AVG")
    one = Consumer(incident, machine, pid, at, **more)
    one.open(at + 400)
    one.assigned(at + 402, [0], of=1, members=members, strategy=strategy)
    return one


def test_an_offset_that_was_told_after_the_next_owner_had_begun_is_O8(incident: Incident) -> None:
    for number in range(3):
        incident.send(number)
    one = owner(incident, "billing-1", 41, 500)
    for number in range(3):
        one.handle(12_000 + number, key_of(number))
    one.tell(10_900, 0)
    two = owner(incident, "billing-2", 42, 13_000, members=2)
    one.tell(15_000, 3, how="persist")
    one.drop(15_001)
    one.assigned(15_002, [], of=1, members=2)
    for number in range(3):
        two.handle(13_500 + number, key_of(number))
    two.rounds(23_400, 38_400, 3)
    one.stop(40_000)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"O8": 3}, 0)


def test_an_offset_that_another_member_set_lower_is_O12(incident: Incident) -> None:
    for number in range(3):
        incident.send(number)
    one = owner(incident, "billing-1", 41, 500)
    for number in range(3):
        one.handle(2000 + number, key_of(number))
    one.rounds(10_900, 30_900, 3)
    one.tell(31_000, 3, how="persist")
    one.drop(31_001)
    other = Consumer(incident, "billing-3", 43, 600)
    incident.server(35_000, f"[NOTIFYME]update consumer offset less than store. clientHost=10.0.0.9:43, "
                            f"key={TOPIC}@{GROUP}, queueId=0, requestOffset=1, storeOffset=3")  # fmt: skip
    two = owner(incident, "billing-2", 42, 40_000)
    for number in (1, 2):
        two.handle(41_000 + number, key_of(number))
    two.rounds(50_400, 60_400, 3)
    other.stop(70_000)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"O12": 2}, 0)


def test_offsets_that_an_operator_deleted_are_O15(incident: Incident) -> None:
    for number in range(3):
        incident.send(number)
    one = owner(incident, "billing-1", 41, 500)
    for number in range(3):
        one.handle(2000 + number, key_of(number))
    one.rounds(10_900, 30_900, 3)
    one.tell(31_000, 3)
    one.stop(31_001)
    incident.server(35_000, f"Consumer offset manager clean group offset, groupName={GROUP}, offsetTable=true, "
                            "resetOffsetTable=false, pullOffsetTable=true")  # fmt: skip
    two = owner(incident, "billing-2", 42, 40_000)
    for number in range(3):
        two.handle(41_000 + number, key_of(number))
    two.rounds(50_400, 60_400, 3)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"O15": 3}, 0)


# two owners


def contested(
    incident: Incident, *, until: int = 80_000, members: int = 2, strategy: str = "AVG", suspended: bool = False
) -> Consumer:
    """A member that keeps the queue although another one has it too, and both are given a message."""
    incident.send(0, at=50_000)
    one = owner(incident, "billing-1", 41, 500)
    one.rounds(10_900, 45_900, 0)
    if suspended:
        one.log(20_000, f"suspend this consumer, {GROUP}")
    two = owner(incident, "billing-2", 42, 30_000, ip="10.0.0.8", members=members, strategy=strategy)
    two.rounds(40_400, 45_400, 0)
    one.handle(50_100, key_of(0))
    two.handle(50_200, key_of(0))
    one.rounds(50_900, until, 1)
    two.rounds(50_400, until, 1)
    return one


def test_members_that_disagree_on_how_many_they_are_are_R2(incident: Incident) -> None:
    contested(incident).stop(85_000)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"R2": 1}, 0)
    assert verdict.anomalies == {"two_owners": 1}


def test_a_member_whose_log_may_lack_its_end_may_have_learned_of_the_other_one(incident: Incident) -> None:
    contested(incident)
    verdict, findings = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({}, 1)
    assert "the end of the log" in words(findings)


def test_members_with_different_strategies_are_R3(incident: Incident) -> None:
    contested(incident, members=1, strategy="CONSISTENT_HASH")
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"R3": 1}, 0)


def test_members_that_differ_in_two_things_have_no_cause(incident: Incident) -> None:
    contested(incident, strategy="CONSISTENT_HASH")
    verdict, findings = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({}, 1)
    assert all(name in words(findings) for name in ("R1", "R2", "R3"))


def test_members_that_share_a_queue_for_a_moment_have_no_cause(incident: Incident) -> None:
    contested(incident, until=51_000)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({}, 1)
    assert verdict.anomalies == {}


def test_a_member_that_was_suspended_is_R5(incident: Incident) -> None:
    contested(incident, suspended=True)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"R5": 1}, 0)


def test_a_member_that_stood_still_and_was_taken_for_gone_is_R6(incident: Incident) -> None:
    incident.send(0)
    one = owner(incident, "billing-1", 41, 500)
    one.rounds(10_900, 15_900, 0)
    one.handle(16_000, key_of(0), took=140_000)
    incident.server(0, "- listenPort=9876", "namesrv.log", "names")
    incident.server(138_000, "SCAN: remove expired channel from ConsumerManager consumerTable. channel=10.0.0.9:41, "
                             f"consumerGroup={GROUP}")  # fmt: skip
    two = owner(incident, "billing-2", 42, 138_000, ip="10.0.0.8")
    two.handle(139_000, key_of(0))
    two.rounds(148_400, 168_400, 1)
    one.tell(156_100, 1)
    one.tell(156_200, 1, how="persist")
    one.drop(156_201)
    verdict, _ = incident.audit()
    assert (verdict.causes, verdict.undetermined) == ({"R6": 1}, 0)


def unlocked(incident: Incident, *, opened: int, locks: bool = False) -> tuple[dict[str, int], Findings]:
    """Causes, and findings, of a lock that was given back after 25 s, while a handler ran. The next member had the
    queue at ``opened``. ``locks``: the broker's log tells who had the lock.
    """
    incident.send(0)
    one = owner(incident, "billing-1", 41, 500)
    one.log(900, f"the message queue lock OK, {GROUP} {printed()}")
    one.log(901, f"message queue lock OK, {GROUP} {printed()}")
    one.handle(2000, key_of(0), took=60_000)
    one.rounds(10_900, 20_900, 0)
    one.log(25_000, f"unlock messageQueue. group:{GROUP}, clientId:{one.client_id}, mq:{printed()}")
    one.drop(25_001)
    two = owner(incident, "billing-2", 42, opened - 400)
    two.log(opened - 1, f"message queue lock OK, {GROUP} {printed()}")
    two.handle(opened + 100, key_of(0))
    two.rounds(opened + 10_000, 60_900, 1)
    for at, client in [(900, one), (opened - 1, two)] if locks else []:
        text = (
            f"lock a message which has not been locked yet, group={GROUP}, clientId={client.client_id}, mq={printed()}"
        )
        incident.server(at, f"RebalanceLockManager#tryLockBatch: {text}", "lock.log")
    one.stop(70_000)
    verdict, findings = incident.audit()
    return verdict.causes, findings


def test_a_lock_that_was_given_back_while_a_handler_ran_is_R11(incident: Incident) -> None:
    assert unlocked(incident, opened=27_500)[0] == {"R11": 1}


def test_a_lock_that_was_given_back_at_nearly_the_time_of_the_next_owner_is_R11_where_the_broker_says_it_was_free(
    incident: Incident,
) -> None:
    assert unlocked(incident, opened=25_900, locks=True)[0] == {"R11": 1}


@pytest.mark.parametrize("opened", [25_900, 24_100])
def test_two_machines_clocks_do_not_tell_which_of_two_near_moments_was_first(incident: Incident, opened: int) -> None:
    causes, findings = unlocked(incident, opened=opened)
    assert causes == {}
    assert "gave its lock back before" in words(findings)


def test_a_lock_that_was_given_back_after_the_next_owner_had_the_queue_explains_nothing(incident: Incident) -> None:
    assert unlocked(incident, opened=20_000)[0] == {}


# handlers


def test_a_program_that_rolls_its_queue_back_is_L6(incident: Incident) -> None:
    incident.send(0)
    one = owner(incident, "billing-1", 41, 500)
    one.log(901, f"message queue lock OK, {GROUP} {printed()}")
    one.handle(2000, key_of(0), code=0, success=False)
    one.handle(3100, key_of(0))
    one.rounds(10_900, 20_900, 1)
    one.stop(25_000)
    _, findings = incident.audit()
    assert named(findings) == ["L6"]


def test_a_dead_letter_in_a_store_is_told_of(incident: Incident) -> None:
    delayed(incident)
    incident.put(50_000, names.DLQ_PREFIX + GROUP, key_of(7), reconsume_times=16)
    verdict, _ = incident.audit()
    assert verdict.anomalies == {"dead_letter": 1}


# what was read


def test_records_of_pops_and_copies_of_offsets_are_told_of(incident: Incident) -> None:
    import json

    delayed(incident)
    point = {"so": 0, "pt": BEGAN_MS, "it": 60_000, "bm": 0, "n": 1, "q": 0, "t": TOPIC, "c": GROUP, "d": [0]}
    ack = {"ao": 0, "so": 0, "c": GROUP, "t": TOPIC, "q": 0, "pt": BEGAN_MS}
    topic = names.revive_topic("DefaultCluster")
    for where in (names.TIMER_TOPIC, topic):
        incident.put(1000, where, "", json.dumps(point).encode(), TAGS="ck", REAL_TOPIC=topic)
    incident.put(1010, topic, "", json.dumps(ack).encode(), TAGS="ack", REAL_TOPIC=topic)
    incident.server(1000, "new broker registered, BrokerIdentityInfo [clusterName=c, brokerAddr=10.0.0.1:10911] "
                          "HAService: 10.0.0.1:10912", "namesrv.log", "names")  # fmt: skip
    config = incident.folder / "broker-a" / "store" / "config"
    config.mkdir(exist_ok=True)
    (config / "delayOffset.json.bak").write_text('{"offsetTable":{1:4}}')
    (config / "consumerOffset-1795781890491.json").write_text('{"offsetTable":{"orders@billing":{0:2}}}')
    verdict, _ = incident.audit()
    told = "\n".join(verdict.evidence.read)  # type: ignore[attr-defined]
    assert "store, machine broker-a, 5 records, 1 check points of pops, 1 acks of pops" in told
    assert "progress of delays, the generation before, 1 entries; without a time in its name it proves nothing" in told
    assert "consumer offsets, 1 entries, copied at 2026-11-27 12:18:10Z, machine broker-a" in told
    assert "namesrv.log: log of a server, machine names, times +08:00 (the usual one of RocketMQ), 1 lines" in told
