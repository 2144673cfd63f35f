"""What a message may ask of the timer, and where it waits."""

import pytest
from dejamq_broker.timer.rules import SlotPlace, TimerRules, due, rolled
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, BadRecord, Record, decode_properties, encode_properties
from delay_world import Clock
from hypothesis import given
from hypothesis import strategies as st

NOW = Clock().now_ms
DAY_MS = 86_400_000
HALF_HOUR_MS = 1_800_000


def rules(window: int = 172_800, precision_ms: int = 1000) -> TimerRules:
    return TimerRules(precision_ms, 3 * DAY_MS, window, Clock())


def asking(**properties: object) -> Record:
    return Record("orders", 3, b"x", encode_properties({name: str(value) for name, value in properties.items()}))


@pytest.mark.parametrize(
    ("properties", "out_ms"),
    [
        ({"TIMER_DELIVER_MS": NOW + 2500}, NOW + 2000),
        ({"TIMER_DELIVER_MS": NOW + 2000}, NOW + 1000),
        ({"TIMER_DELAY_MS": 1}, NOW),
        ({"TIMER_DELAY_MS": 1500}, NOW + 1000),
        ({"TIMER_DELAY_SEC": 3}, NOW + 2000),
        ({"TIMER_DELIVER_MS": NOW + 9000, "TIMER_DELAY_MS": 5500, "TIMER_DELAY_SEC": 2}, NOW + 1000),
        ({"TIMER_DELIVER_MS": NOW + 9000, "TIMER_DELAY_MS": 5500}, NOW + 5000),
        ({"TIMER_DELAY_SEC": 3 * 86_400}, NOW + 3 * DAY_MS - 1000),
    ],
)  # fmt: skip
def test_a_message_waits_in_the_slot_that_is_over_when_it_is_due(properties: dict[str, int], out_ms: int) -> None:
    waiting = rules().waiting(asking(**properties))
    assert (waiting.topic, waiting.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert waiting.properties == {name: str(value) for name, value in properties.items()} | {
        "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "orders", "REAL_QID": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    "properties",
    [
        {}, {"TIMER_DELIVER_MS": NOW}, {"TIMER_DELAY_MS": 0}, {"TIMER_DELAY_SEC": -5}, {"TIMER_DELIVER_MS": 1},
        {"TIMER_DELIVER_MS": NOW + 5000, "TIMER_OUT_MS": NOW},
    ],
    ids=["no time", "now", "at once", "before now", "long ago", "has waited before"],
)  # fmt: skip
def test_a_message_whose_time_has_come_does_not_wait(properties: dict[str, int]) -> None:
    record = asking(**properties)
    assert rules().waiting(record) is record


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"TIMER_DELAY_MS": "soon"}, "no number"),
        ({"TIMER_DELAY_MS": ""}, None),
        ({"TIMER_DELIVER_MS": "1" * 4000}, "no number"),
        ({"TIMER_DELIVER_MS": "٣"}, "no number"),
        ({"TIMER_DELAY_SEC": 3 * 86_400 + 1}, "at most 259200 s"),
        ({"TIMER_DELIVER_MS": NOW, "TIMER_DEL_UNIQKEY": "k"}, "too late to recall"),
    ],
)
def test_a_time_that_cannot_be_is_refused(properties: dict[str, object], why: str | None) -> None:
    record = asking(**properties)
    if why is None:
        assert rules().waiting(record) is record
        return
    with pytest.raises(BadRecord, match=f"timer message illegal, .*{why}"):
        rules().waiting(record)


@pytest.mark.parametrize(
    ("in_ms", "place"),
    [
        (HALF_HOUR_MS - 1000, SlotPlace(NOW + HALF_HOUR_MS - 1000, rolled=False)),
        (HALF_HOUR_MS, SlotPlace(NOW + HALF_HOUR_MS // 2, rolled=True)),
        (HALF_HOUR_MS * 4 // 3 - 1000, SlotPlace(NOW + HALF_HOUR_MS // 2, rolled=True)),
        (HALF_HOUR_MS * 4 // 3, SlotPlace(NOW + HALF_HOUR_MS, rolled=True)),
        (DAY_MS, SlotPlace(NOW + HALF_HOUR_MS, rolled=True)),
    ],
)
def test_a_message_beyond_the_window_waits_on_the_way(in_ms: int, place: SlotPlace) -> None:
    assert rules(window=1800).place(NOW + in_ms, NOW + 400) == place


@pytest.mark.parametrize(("kept_h", "longest_h"), [(72, 48), (12, 8), (1, 2 / 3)])
def test_no_message_waits_in_one_place_for_more_than_two_thirds_of_the_time_that_the_log_is_kept(
    kept_h: int, longest_h: float
) -> None:
    timing = TimerRules(1000, 3 * DAY_MS, 172_800, Clock(), kept_h * 2 * HALF_HOUR_MS)
    out_ms, stored_ms, waits_ms = NOW + 3 * DAY_MS, NOW, list[int]()
    while (place := timing.place(out_ms, stored_ms)).rolled:
        waits_ms.append(place.slot_ms - stored_ms)
        stored_ms = place.slot_ms
    assert max(waits_ms) == longest_h * 2 * HALF_HOUR_MS
    assert out_ms - stored_ms <= longest_h * 2 * HALF_HOUR_MS


@given(st.integers(1, 3 * DAY_MS), st.integers(0, 5000), st.sampled_from([10, 200, 1000]), st.integers(2, 5000))
def test_a_slot_begins_before_its_messages_are_due_and_is_over_soon_after(
    delay_ms: int, later_ms: int, precision_ms: int, window: int
) -> None:
    timing = rules(window, precision_ms)
    out_ms = timing.out_ms(NOW + delay_ms)
    assert out_ms % precision_ms == 0
    assert NOW + delay_ms <= out_ms + precision_ms < NOW + delay_ms + precision_ms
    place = timing.place(out_ms, NOW + later_ms)
    assert place.slot_ms <= out_ms
    assert place.slot_ms % precision_ms == 0
    assert place.rolled == (place.slot_ms < out_ms) or out_ms < NOW + later_ms + window * precision_ms
    assert not place.rolled or place.slot_ms > NOW + later_ms - precision_ms


def test_a_rolled_message_counts_its_rolls() -> None:
    once = rolled(asking(UNIQ_KEY="k"), 17)
    assert once.properties == {"UNIQ_KEY": "k", "TIMER_ROLL_TIMES": "1", "TIMER_DEQUEUE_MS": "17"}
    assert rolled(once, 18).properties["TIMER_ROLL_TIMES"] == "2"


def test_a_message_without_room_for_more_properties_is_delivered_without_them() -> None:
    full = asking(a="x" * (MAX_PROPERTIES_SIZE - 10))
    assert decode_properties(due(full, 1, 2).raw_properties) == full.properties
    assert due(asking(a="x"), 1, 2).properties == {"a": "x", "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "2"}
