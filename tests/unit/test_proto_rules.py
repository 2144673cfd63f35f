"""Rules that every process shares: names, codes and what they mean for a retry, settings' values, journal rotation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dejamq_proto import names
from dejamq_proto.codes import (
    BrokerUnavailable,
    Code,
    ConfigError,
    DejamqError,
    InvalidName,
    MessageTooLarge,
    PermissionDenied,
    RouteNotFound,
    SendTimeout,
    error_for,
)
from dejamq_proto.config.settings import load, setting
from dejamq_proto.journal.events import State
from dejamq_proto.journal.writer import Journal, Level, journal_name, open_journal
from journalled import journalled

# --- names


def test_a_topic_may_have_127_characters_and_a_retry_topic_255() -> None:
    names.check_topic("x" * 127)
    names.check_topic("%RETRY%" + "x" * 248)
    for topic in ("x" * 128, "%RETRY%" + "x" * 249):
        with pytest.raises(InvalidName, match="at most"):
            names.check_topic(topic)


def test_a_groups_name_leaves_room_for_the_retry_prefix() -> None:
    group = "g" * names.MAX_GROUP_SIZE
    names.check_group(group)
    names.check_topic(names.retry_topic(group))
    with pytest.raises(InvalidName):
        names.check_group(group + "g")


@pytest.mark.parametrize("name", ["a.b", "a b", "ä", "a/b", "a\n", "a\x01"])
def test_other_characters_than_rocketmqs_are_refused_in_topics_and_groups(name: str) -> None:
    for check in (names.check_topic, names.check_group):
        with pytest.raises(InvalidName, match="letters, digits"):
            check(name)


@pytest.mark.parametrize("name", ["a", "A-b_9", "%a|b", "x" * 120])
def test_rocketmqs_characters_are_taken(name: str) -> None:
    names.check_topic(name)
    names.check_group(name)


def test_only_retry_and_dead_letter_topics_are_internal() -> None:
    assert names.is_internal("%RETRY%g")
    assert names.is_internal("%DLQ%g")
    assert not names.is_internal("orders")
    assert not names.is_internal("RETRY%g")


# --- codes


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.NO_PERMISSION, PermissionDenied), (Code.MESSAGE_ILLEGAL, MessageTooLarge),
        (Code.TOPIC_NOT_EXIST, RouteNotFound), (Code.NOT_FOUND_TOPIC, RouteNotFound),
        (Code.CONNECT_BROKER_EXCEPTION, BrokerUnavailable), (Code.ACCESS_BROKER_TIMEOUT, SendTimeout),
        (Code.SYSTEM_BUSY, DejamqError), (12_345, DejamqError),
    ],
)  # fmt: skip
def test_a_code_from_the_wire_becomes_the_error_that_programs_catch(code: int, kind: type[DejamqError]) -> None:
    assert type(error_for(code, "x")) is kind


@pytest.mark.parametrize(
    "code",
    [
        Code.TOPIC_NOT_EXIST, Code.SERVICE_NOT_AVAILABLE, Code.SYSTEM_ERROR, Code.SYSTEM_BUSY, Code.NO_PERMISSION,
        Code.NO_BUYER_ID, Code.NOT_IN_CURRENT_UNIT, Code.GO_AWAY,
    ],
)  # fmt: skip
def test_rocketmqs_retriable_codes_are_tried_at_another_broker(code: Code) -> None:
    assert error_for(code, "x").retriable


@pytest.mark.parametrize("code", [Code.MESSAGE_ILLEGAL, Code.INVALID_PARAMETER, Code.ACCESS_BROKER_TIMEOUT])
def test_what_another_broker_would_refuse_as_well_is_not_tried_there(code: Code) -> None:
    assert not error_for(code, "x").retriable


@pytest.mark.parametrize("code", [Code.FLUSH_DISK_TIMEOUT, Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE])
def test_stored_less_safely_than_asked_is_not_a_definite_failure(code: Code) -> None:
    assert not error_for(code, "x").definite


def test_who_raises_an_error_may_know_better_than_its_code() -> None:
    error = DejamqError("x", code=Code.SYSTEM_ERROR, definite=True)
    assert error.definite
    assert error.not_done


def test_errors_are_also_the_kinds_that_python_programs_expect() -> None:
    assert isinstance(SendTimeout("x"), TimeoutError)
    assert isinstance(BrokerUnavailable("x"), ConnectionError)
    assert isinstance(MessageTooLarge("x"), ValueError)
    assert isinstance(InvalidName("x"), ValueError)


# --- settings


@dataclass(frozen=True)
class Sample:
    on: bool = setting(False, rocketmq="switchedOn")
    number: int = setting(1)
    share: float = setting(0.5)
    text: str = setting("a")
    maybe: str | None = setting(None)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"on": "TRUE"}, "on", True), ({"switchedOn": "0"}, "on", False), ({"number": "7"}, "number", 7),
        ({"number": 7.0}, "number", 7), ({"share": 1}, "share", 1.0), ({"text": ["a", "b"]}, "text", "a;b"),
        ({"maybe": None}, "maybe", None), ({"maybe": "x"}, "maybe", "x"),
    ],
)  # fmt: skip
def test_values_are_taken_in_the_forms_that_files_and_programs_write(
    given: dict[str, Any], field: str, value: object
) -> None:
    assert getattr(load(Sample, env={}, overrides=given), field) == value


@pytest.mark.parametrize(
    "given", [{"on": "yes"}, {"on": 1}, {"number": "7.5"}, {"number": 7.5}, {"number": True}, {"text": 5}]
)
def test_values_of_another_kind_are_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        load(Sample, env={}, overrides=given)


def test_an_environment_variable_is_the_settings_name_in_capitals() -> None:
    assert load(Sample, env={"DEJAMQ_NUMBER": "9"}).number == 9


def test_other_variables_of_the_environment_are_nobodys_business() -> None:
    assert load(Sample, env={"DEJAMQ_UNKNOWN": "9", "NUMBER": "3"}) == Sample()


# --- the journal's files


def test_half_of_the_room_is_for_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path, role="broker", process="p", boot_id="b", level=Level.FORENSIC, max_bytes=2000)
    for _ in range(30):
        journal.write(State(state="x"))
    journal.close()
    older = path.with_suffix(".1.jsonl")
    assert path.stat().st_size <= 1000
    assert older.stat().st_size <= 1000
    assert journalled(older)[-1]["seq"] + 1 == journalled(path)[0]["seq"]
    assert journalled(path)[-1]["seq"] == 30


def test_a_journal_below_its_limit_has_one_file(tmp_path: Path) -> None:
    journal = Journal(
        tmp_path / "j.jsonl", role="broker", process="p", boot_id="b", level=Level.FORENSIC, max_bytes=1 << 20
    )
    journal.write(State(state="x"))
    journal.close()
    assert [path.name for path in tmp_path.iterdir()] == ["j.jsonl"]


def test_after_it_was_closed_a_journal_takes_nothing_and_closes_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl", role="broker", process="p", boot_id="b", level=Level.FORENSIC)
    journal.close()
    journal.write(State(state="late"))
    journal.close()
    assert journalled(tmp_path / "j.jsonl") == []


@pytest.mark.parametrize(("directory", "level"), [(False, "forensic"), (True, "off")])
def test_without_a_folder_or_at_level_off_nothing_is_made(tmp_path: Path, directory: bool, level: str) -> None:
    journal = open_journal(
        tmp_path / "journal" if directory else None, role="producer", process="p", boot_id="b", level=level
    )
    assert not journal.on
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "a" / "b", role="producer", process="me@1#2", boot_id="b0", level="audit")
    journal.close()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["producer-me-1-2-b0.jsonl"]


def test_two_starts_of_one_process_have_files_of_their_own() -> None:
    assert journal_name("broker", "a", "b1") != journal_name("broker", "a", "b2")
