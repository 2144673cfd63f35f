"""Numbers and names that strangers chose: what counts as a number, what a reader's terminal gets."""

import csv
import io

import msgspec
import pytest
from dejamq_broker.dedup import in_log
from dejamq_broker.deferred.delay import restored
from dejamq_broker.deferred.transactions.records import OP_TAG, ended_by, prepared_offset
from dejamq_broker.pop.copies import read_reference
from dejamq_broker.pop.records import NOBODY_KEEPS, FoundRecord
from dejamq_broker.store.dump import text_of
from dejamq_cli.commands.dlq import csv_cell, csv_line
from dejamq_cli.terminal.tables import blocks, moment
from dejamq_proto import names
from dejamq_proto.codes import LONGEST_TEXT, ConfigError
from dejamq_proto.records.record import Record, encode_properties
from dejamq_proto.texts import MOST_32, MOST_64, number_of, printable

NO_NUMBERS = [
    "",
    "-1",
    "+1",
    " 1",
    "1 ",
    "1_0",
    "٣",
    "²",
    "1.5",
    "0x1",
    "9" * 5000,
    str(MOST_64 + 1),
    "1\x00",
    "\ud800",
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_in_plain_digits_or_beyond_64_bits_is_none(text: str) -> None:
    assert number_of(text) is None
    assert number_of(None) is None


@pytest.mark.parametrize("number", [0, 7, MOST_32, 1 << 53, MOST_64])
def test_a_number_is_read_up_to_the_most_that_fits(number: int) -> None:
    assert number_of(str(number)) == number
    assert number_of("0" * 5000 + str(number)) == number
    assert number_of(str(number), MOST_32) == (number if number <= MOST_32 else None)


def of(properties: dict[str, str], topic: str = "t", body: bytes = b"x") -> Record:
    return Record(topic, 0, body, encode_properties(properties))


@pytest.mark.parametrize("text", ["9" * 5000, "٣", str(1 << 31), "²"])
def test_a_delayed_record_whose_queue_cannot_be_is_passed_over_and_holds_up_no_others(text: str) -> None:
    record = of({names.PROPERTY_REAL_TOPIC: "t", names.PROPERTY_REAL_QUEUE: text}, names.SCHEDULE_TOPIC)
    assert restored(record) is None
    assert in_log.queue_of(record) == 0


@pytest.mark.parametrize("text", ["9" * 5000, "٣", "²", str(1 << 63)])
def test_numbers_in_records_that_cannot_be_are_none(text: str) -> None:
    assert read_reference(of({names.PROPERTY_POP_REF: f"t 0 {text} 1 g"})) is None
    assert prepared_offset({names.PROPERTY_PREPARED_QUEUE_OFFSET: text}) is None
    assert ended_by(of({names.PROPERTY_TAGS: OP_TAG}, body=f"7,{text},8".encode())) == [7, 8]
    body = msgspec.UNSET
    assert FoundRecord(body, None, None, f"1 {text} 3 c").keeper() is None  # type: ignore[arg-type]  # the body is no matter
    assert FoundRecord(body, None, None, f"1,{text} c").keeper_in_order() == NOBODY_KEEPS  # type: ignore[arg-type]


@pytest.mark.parametrize("chosen", ["\x1b[2J", "\x9b31m", "a\nb", "\u202e", "\u2028", "\x00", "\ud800"])
def test_a_name_that_was_chosen_to_drive_a_terminal_is_shown_in_letters(chosen: str) -> None:
    line = {
        "log_offset": 0, "topic": f"t{chosen}", "queue_id": 0, "queue_offset": 0, "store_size": 1,
        "store_timestamp": 1 << 62, "tags": chosen, "keys": chosen,
    }  # fmt: skip
    for text in (printable(chosen), text_of(line), blocks([{"name": chosen}])):
        assert text.isprintable()


@pytest.mark.parametrize("timestamp_ms", [-(1 << 63), 1 << 62, (1 << 63) - 1])
def test_a_time_that_no_calendar_has_is_told_as_a_number(timestamp_ms: int) -> None:
    assert moment(timestamp_ms) == f"{timestamp_ms} ms"


@pytest.mark.parametrize(("timestamp_ms", "day"), [(-86_400_000 * 365, "1969"), (4_102_488_000_000, "2100")])
def test_times_before_1970_and_in_2100_are_times(timestamp_ms: int, day: str) -> None:
    assert moment(timestamp_ms).startswith(day)


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(text: str) -> None:
    (cells,) = csv.reader(io.StringIO(csv_line([csv_cell(text), "x"]).decode(), newline=""))
    assert cells == [f"'{text}", "x"]


@pytest.mark.parametrize("text", ["", "-5", "+1.5", "a=b", "two\nlines", 'a "quote", a comma'])
def test_other_cells_are_as_they_are(text: str) -> None:
    (cells,) = csv.reader(io.StringIO(csv_line([csv_cell(text), "x"]).decode(), newline=""))
    assert cells == [text, "x"]


def test_an_error_that_quotes_a_huge_name_has_an_end() -> None:
    assert len(str(ConfigError("x" * 70_000))) == LONGEST_TEXT
