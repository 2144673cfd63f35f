"""Which messages without a trace count as given: not those that a filter, a reset or a missing key explains."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from dejamq_analytics.evidence import polled, server_logs
from dejamq_analytics.evidence.brokers import Brokers
from dejamq_analytics.evidence.client import ClientStart, GivenMessage
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.mark import SECOND, Mark, PropertyFilters, QueueName, Reset
from dejamq_analytics.evidence.stored import Records, Stored
from dejamq_analytics.evidence.text_lines import Line
from dejamq_analytics.evidence.untraced import NOTHING_SHOWN, Shown, Untraced, find
from dejamq_analytics.report.evidence_scope import EvidenceVerdict
from dejamq_analytics.sources.commit_log import scan
from dejamq_proto.records.record import Record, encode, encode_properties
from less_evidence import Loss, wrong
from recorded import RECORDED, audited

QUEUE = QueueName("orders", "broker-a", 0)
SUBSCRIBED = (
    "2026-11-27 20:19:22 INFO HeartbeatThread_1 - subscription changed, {}group: billing {}SubscriptionData "
    "[classFilterMode=false, topic=orders, subString=region = 'EU, x' AND amount > 5, tagsSet=[], codeSet=[], "
    "subVersion=1795795808288, expressionType=SQL92]"
)
RESET = (
    '2026-11-27 20:32:37 INFO AdminBrokerThread_2 - Reset offset, topic=orders, group=billing, queues={"offsetTable":'
    '{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:6}}'
)


def had_queue(member: ClientStart, opened: Mark | None, told: Iterable[tuple[int, int]]) -> None:
    """A member had the queue, and told these offsets at these seconds."""
    hold = member.open("billing", QUEUE, opened)
    for at_s, value in told:
        hold.persist(at_s * SECOND, value)


def stored(offset: int, **facts: str) -> Stored:
    return Stored(QUEUE, offset, offset, f"k{offset}", 0, "", "broker-a", 0, 0, facts=tuple(sorted(facts.items())))


def lost(
    records: list[Stored],
    traced: list[int],
    told: list[tuple[int, int]],
    shown: Shown = NOTHING_SHOWN,
    skew_ms: int | None = None,
    opened_s: int | None = None,
) -> list[int]:
    """How many messages a member lacks traces of: it told these offsets, and was given these at second 1 and on, those
    from offset 6 after second 10.
    """
    stores, member = Records(), ClientStart("c", "billing-1", "10.0.0.1@1#2")
    stores.brokers.add("broker-a")
    stores.by_key.update({one.unique_key: [one] for one in records})
    member.has.add("trace")
    member.skew_ms = skew_ms
    opened = None if opened_s is None else Mark(opened_s * SECOND, 1, "", "", "opened", {})
    had_queue(member, opened, told)
    said = {"group": "billing"}
    by_offset = {one.queue_offset: one for one in records}
    given = [
        GivenMessage(Mark((at + 10 * (offset > 5)) * SECOND, 1, "", "", "entered", said), at, member, by_offset[offset])
        for at, offset in enumerate(traced, 1)
    ]  # fmt: skip
    found: list[Untraced] = find([member], given, stores, shown)
    return [one.messages for one in found if one.who == "billing-1" and one.messages]


def filters(expression: str = "region = 'EU'") -> Shown:
    known = PropertyFilters()
    known.learn([Mark(0, 0, "", "", "filtered", {"group": "billing", "filters": {"orders": expression}})])
    return Shown(known, [])


def test_a_message_that_a_filter_by_properties_may_have_left_out_is_no_lost_trace() -> None:
    records = [stored(0, region="EU"), stored(1, region="US"), stored(2, region="EU"), stored(3, region="EU")]
    assert lost(records, [0, 2], [(0, 0), (9, 3)]) == [1]
    assert lost(records, [0, 2], [(0, 0), (9, 3)], filters()) == []


def test_a_message_that_looks_to_the_filter_like_one_that_was_given_is_a_lost_trace() -> None:
    records = [stored(0, region="EU", amount="7"), stored(1, region="EU", amount="8"), stored(2, region="US")]
    assert lost(records, [0], [(0, 0), (9, 3)], filters()) == [1]
    assert lost(records, [0], [(0, 0), (9, 3)], filters("region = 'EU' AND amount < 8")) == []


def test_words_in_quotes_are_no_properties_of_a_filter() -> None:
    known = PropertyFilters()
    known.learn(
        [Mark(0, 0, "", "", "filtered", {"group": "g", "filters": {"t": "a = 'it''s b' AND c_1 BETWEEN 1 AND 2"}})]
    )
    assert {"a", "c_1"} <= known.properties("t")
    assert not {"it", "s", "b"} & known.properties("t")


def test_a_brokers_log_and_a_poll_of_the_members_tell_filters_by_properties(tmp_path: Path) -> None:
    texts = [SUBSCRIBED.format("add new topic, ", ""), SUBSCRIBED.format("", "OLD: SubscriptionData [x=1] NEW: ")]
    texts += [text.replace("SQL92", "TAG") for text in texts]
    marks = [
        *server_logs.marks([Line(number, 0, number, text, "") for number, text in enumerate(texts)], "broker.log", "a")
    ]
    expression = {"orders": "region = 'EU, x' AND amount > 5"}
    assert [mark.said["filters"] for mark in marks] == [expression, expression]
    asked: dict[str, Any] = {"kind": "connections", "code": 0, "group": "billing", "asked_ms": 1, "at_ms": 2, "body": {
        "subscriptionTable": {
            "orders": {"expressionType": "SQL92", "subString": expression["orders"], "topic": "orders"},
            "%RETRY%billing": {"expressionType": "TAG", "subString": "*", "topic": "%RETRY%billing"},
        }}}  # fmt: skip
    (tmp_path / "evidence-000001.jsonl").write_text(json.dumps(asked) + "\n")
    (told,) = polled.read(tmp_path / "evidence-000001.jsonl", "evidence-000001.jsonl")
    assert isinstance(told, Mark)
    assert told.said == {"group": "billing", "filters": expression}


def forward(at_s: int = 5, new: int = 6) -> Shown:
    return Shown(PropertyFilters(), [Reset("billing", QUEUE, new, at_s * SECOND)])


def test_messages_that_a_reset_jumped_over_are_no_lost_traces() -> None:
    records = [stored(offset) for offset in (0, 1, 2, 3, 5, 6, 7)]  # and one that the store lacks
    told = [(0, 0), (3, 2), (20, 8)]
    assert lost(records, [0, 1, 6, 7], told) == [4]
    assert lost(records, [0, 1, 6, 7], told, forward()) == []
    assert lost(records, [0, 6, 7], told, forward()) == [1]
    assert lost(records, [0, 1, 3, 7], told, forward()) == [2]


def test_a_reset_back_or_one_that_may_have_come_later_explains_no_lost_trace() -> None:
    records = [stored(offset) for offset in range(8)]
    told = [(0, 0), (3, 2), (20, 8)]
    assert lost(records, [0, 1, 6, 7], told, forward(at_s=20)) == [4]
    assert lost(records, [0, 1, 6, 7], told, forward(at_s=12)) == [4]
    assert lost(records, [0, 1, 6, 7], [(0, 0), (3, 7), (20, 8)], forward()) == [4]
    assert lost(records, [0, 1, 6, 7], told, forward(), skew_ms=5000) == [4]


def test_a_brokers_log_tells_where_a_reset_led_and_when_at_the_latest() -> None:
    brokers = Brokers(ClientStarts())
    brokers.begin(
        "broker-a", [*server_logs.marks([Line(5 * SECOND, SECOND, 1, RESET, "")], "broker.log", "broker-a")], set()
    )
    assert brokers.resets == [Reset("billing", QUEUE, 6, 6 * SECOND)]


def test_a_record_without_a_unique_key_has_the_id_that_its_trace_has(tmp_path: Path) -> None:
    """RocketMQ's client shows the broker's id of a message that lacks a key: ``MessageClientExt.getMsgId``."""
    bare = Record(
        "orders", 0, b"x", encode_properties({"TAGS": "paid"}), queue_offset=3, store_host=("10.0.0.9", 10911),
        born_host=("10.0.0.1", 5), store_timestamp_ms=1, born_timestamp_ms=1,
    )  # fmt: skip
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(encode(bare))
    records = Records()
    records.read([str(tmp_path)])
    (found,) = records.of_delivery(bare.offset_message_id, "billing", 0)
    assert (found.queue_offset, found.tags) == (3, "paid")


def test_a_recorded_run_whose_group_filters_by_properties_stays_clean(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "healthy", tmp_path / "run")
    log = tmp_path / "run" / "broker-a" / "logs" / "broker.log"
    log.write_text(log.read_text() + SUBSCRIBED.format("add new topic, ", "") + "\n")
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert verdict.verdict == "clean"


def test_a_store_that_is_empty_is_named_by_its_folder_and_leaves_the_verdict_open(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "healthy", tmp_path / "run")
    (log,) = (tmp_path / "run").rglob("commitlog/*")
    bodies = [record.body.decode() for record, _ in scan(log) if record.topic == "RMQ_SYS_TRACE_TOPIC"]
    (tmp_path / "run" / "orders-1" / "trace.txt").write_text("\n".join(bodies))
    log.unlink()
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert isinstance(verdict, EvidenceVerdict)
    assert any("records in broker-a/store: this store is empty" in one for one in verdict.evidence.lacking)
    assert verdict.verdict == "undetermined"


def test_what_a_group_told_of_counts_from_its_first_trace_on() -> None:
    """Its member told its offset first when it had done all: so nothing it told shows where it began."""
    records, member = Records(), ClientStart("c", "billing-1", "10.0.0.1@1#2")
    some = [stored(offset) for offset in range(3)]
    records.by_key.update({one.unique_key: [one] for one in some})
    member.has.add("trace")
    had_queue(member, None, [(9, 3), (14, 3)])
    given = [GivenMessage(Mark(SECOND, 1, "", "", "entered", {"group": "billing"}), 1, member, some[0])]
    assert find([member], given, records) == [Untraced("the members of billing", 2, QUEUE, 1)]


@pytest.mark.parametrize(("opened_s", "skew_ms", "messages"), [(2, None, [1]), (3, None, []), (2, 5000, [])])
def test_what_was_stored_after_a_member_had_the_queue_was_given_to_it(
    opened_s: int, skew_ms: int | None, messages: list[int]
) -> None:
    """Of its second queue too, as long as the group was given anything that looks like it."""
    records, member = Records(), ClientStart("c", "billing-1", "10.0.0.1@1#2")
    there = [stored(offset)._replace(stored_ms=at_ms) for offset, at_ms in enumerate((1_000, 2_000, 3_500))]
    elsewhere = stored(7)._replace(queue=QUEUE._replace(queue_id=1))
    records.by_key.update({one.unique_key: [one] for one in (*there, elsewhere)})
    member.has.add("trace")
    member.skew_ms = skew_ms
    opened = Mark(opened_s * SECOND, 1, "", "", "opened", {})
    had_queue(member, opened, [(9, 3), (14, 3)])
    given = [GivenMessage(Mark(SECOND, 1, "", "", "entered", {"group": "billing"}), 1, member, elsewhere)]
    assert [one.messages for one in find([member], given, records)] == messages


def test_a_store_that_was_cut_off_after_the_orders_leaves_the_verdict_open(tmp_path: Path) -> None:
    def cut(run: Path) -> None:
        (log,) = run.rglob("commitlog/*")
        log.write_bytes(log.read_bytes()[:4314])

    assert wrong("r3", [Loss("the end of the store", cut)], tmp_path) == []


def test_what_was_stored_behind_the_last_offset_that_a_member_told_is_no_lost_trace() -> None:
    records = [stored(offset)._replace(stored_ms=20_000 if offset > 2 else 0) for offset in range(5)]
    assert lost(records, [0], [(9, 1)], opened_s=2) == []


Told = list[tuple[int, int]]


def maybe(told: dict[str, Told], traced: list[int], opened_s: dict[str, int]) -> list[tuple[str, int]]:
    """Members that may have had a message, with its offset: each told these offsets of its only queue, which it had
    from second 3 on or from ``opened_s``. The first member was given what is traced, of three messages.
    """
    records, some = Records(), [stored(offset) for offset in range(3)]
    records.by_key.update({one.unique_key: [one] for one in some})
    members = [ClientStart(name, name, f"10.0.0.1@{number}#2") for number, name in enumerate(told)]
    for member in members:
        member.has.add("trace")
        had_queue(member, Mark(opened_s.get(member.name, 3) * SECOND, 1, "", "", "opened", {}), told[member.name])
    said = {"group": "billing"}
    given = [
        GivenMessage(Mark(4 * SECOND, 1, "", "", "entered", said), at, members[0], some[at]) for at in traced
    ]  # fmt: skip
    return [(one.who, one.offset) for one in find(members, given, records) if not one.messages]


def test_a_member_may_have_had_the_message_at_which_its_queue_stood() -> None:
    """As RocketMQ tells the lowest offset whose handler has not ended. Nothing lies at the end of a queue."""
    assert maybe({"a": [(9, 0)], "b": [(20, 2)]}, [0, 1, 2], {"b": 12}) == [("b", 2)]
    assert maybe({"a": [(9, 3)]}, [0, 1, 2], {}) == []


def test_a_member_that_told_nothing_may_have_had_what_the_one_before_it_told_last() -> None:
    assert maybe({"a": [(9, 1)], "b": []}, [0, 1, 2], {"b": 12}) == [("b", 1)]


def test_where_nobody_told_an_offset_a_member_may_have_had_the_lowest_message_that_the_group_had() -> None:
    assert maybe({"a": [], "b": []}, [1, 2], {}) == [("b", 1)]


def test_a_member_had_what_lies_between_the_offset_told_before_it_came_and_those_that_it_told() -> None:
    records, some = Records(), [stored(offset) for offset in range(4)]
    records.by_key.update({one.unique_key: [one] for one in some})
    former, later = ClientStart("a", "a", "10.0.0.1@1#2"), ClientStart("b", "b", "10.0.0.1@2#2")
    for member in (former, later):
        member.has.add("trace")
    had_queue(former, Mark(0, 1, "", "", "opened", {}), [(5, 1)])
    had_queue(later, Mark(9 * SECOND, 1, "", "", "opened", {}), [(20, 4)])
    said = {"group": "billing"}
    given = [GivenMessage(Mark(SECOND, 1, "", "", "entered", said), at, former, some[at]) for at in range(4)]
    assert [one for one in find([former, later], given, records) if one.messages] == [Untraced("b", 3, QUEUE, 1)]
