import pytest
from dejamq import ConsumeFrom
from dejamq_cli.command_line import status_of
from dejamq_cli.commands.consume import group_start, start_of
from dejamq_cli.terminal.output import BAD_USE, CANNOT_TELL, NO, Format, show_rows
from dejamq_proto.codes import BrokerUnavailable, ConfigError, DejamqError, InvalidName, RouteNotFound, SendTimeout


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), BAD_USE),
        (InvalidName("x"), BAD_USE),
        (BrokerUnavailable("x"), CANNOT_TELL),
        (SendTimeout("x"), CANNOT_TELL),
        (RouteNotFound("x"), NO),
        (DejamqError("x"), NO),
    ],
)
def test_the_exit_status_says_whose_turn_it_is(error: DejamqError, status: int) -> None:
    assert status_of(error) == status


def test_a_table_shows_ids_whole_however_narrow_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"id": "A" * 200, "queues": [1, 2]}], Format.TABLE, empty="nothing")
    assert "A" * 200 in capsys.readouterr().out


def test_json_is_one_array_also_when_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], Format.JSON, empty="nothing")
    assert capsys.readouterr().out == "[]\n"


def test_nothing_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], Format.TABLE, empty="no topics")
    assert capsys.readouterr().out == "no topics\n"


def test_a_group_begins_where_it_is_told() -> None:
    assert group_start("begin") == {"consume_from": ConsumeFrom.FIRST_OFFSET}
    assert group_start("end") == {"consume_from": ConsumeFrom.LAST_OFFSET}
    since = group_start("1970-01-01T00:00:01+00:00")
    assert since == {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": 1000}


def test_a_group_cannot_begin_at_an_offset() -> None:
    with pytest.raises(ConfigError, match="without --group"):
        group_start("17")


def test_a_place_that_is_none_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ConfigError, match=r"--from \(begin, end, an offset, or a time\)"):
        start_of("yesterday")
