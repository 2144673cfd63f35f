"""Log lines of servers: what code says, as fields; and the settings that a process tells first."""

import json
import logging
import sys
from dataclasses import dataclass

import pytest
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import load, setting, shown
from dejamq_proto.serving import logs
from dejamq_proto.serving.logs import WatchingConfig
from dejamq_proto.serving.otlp_target import OtlpTarget


def a_record(
    text: str, *values: object, logger: str = "dejamq_broker.members.clients", trace: bool = False
) -> logging.LogRecord:
    error = None
    if trace:
        try:
            raise ValueError("broken")
        except ValueError:
            error = sys.exc_info()
    return logging.LogRecord(logger, logging.WARNING, "f.py", 1, text, values, error)


def told(text: str, *values: object, logger: str = "dejamq_broker.members.clients") -> str:
    """The line without its time."""
    line = logs.TextLines().format(a_record(text, *values, logger=logger))
    time, _, rest = line.partition(" ")
    assert time.startswith("time=20")
    assert time.endswith("+00:00")
    return rest


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("client_id_clash group=g client=c1", "event=client_id_clash group=g client=c1"),
        ("send_refused code=X remark=no room, try later", 'event=send_refused code=X remark="no room, try later"'),
        ("group_differs members of g differ", 'event=group_differs message="members of g differ"'),
        ("route_unknown topic=t: asked again: why=x", 'event=route_unknown topic="t: asked again:" why=x'),
        ('setting name=a value="b c"', 'event=setting name=a value="b c"'),
        ("writes_accepted ", "event=writes_accepted"),
        ("Something happened", 'event=message message="Something happened"'),
        ("name=", 'event=message message="name="'),
        ("asked name=", 'event=asked name=""'),
        ("line one\nline two", 'event=line message="one\\nline two"'),
    ],
)
def test_what_code_says_becomes_fields(text: str, line: str) -> None:
    assert told(text) == f"level=warning logger=dejamq_broker.members.clients {line}"


@pytest.mark.parametrize(
    "chosen",
    [
        "c event=x level=error",
        "a\nevent=b",
        "\x1b[2J",
        "\x9b31m",
        "\u202ex",
        "a\u2028b",
        'q" group="z',
        "\ud800",
        "=",
        "a\\n",
    ],
)
def test_what_a_stranger_has_chosen_is_one_value_in_one_line_that_drives_no_terminal(chosen: str) -> None:
    for value in (chosen, ValueError(chosen)):
        record = a_record("client_joined client=%s group=%s", value, "g")
        line = logs.TextLines().format(record)
        assert line.isprintable()
        assert line.endswith(" group=g")
        assert [name for name, _ in logs.fields(record)][3:] == ["event", "client", "group"]
        found = logs.JsonLines().format(record)
        assert found.isprintable()
        assert json.loads(found)["client"] == chosen


def test_lines_of_libraries_are_one_message() -> None:
    line = 'level=warning logger=asyncio event=message message="poll took a=1 second"'
    assert told("poll took a=%d second", 1, logger="asyncio") == line


def test_a_traceback_follows_the_line() -> None:
    lines = logs.TextLines().format(a_record("step_failed name=x", trace=True)).splitlines()
    assert lines[0].endswith("event=step_failed name=x")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: broken"


def test_json_is_one_object_a_line_with_the_same_fields() -> None:
    line = logs.JsonLines().format(a_record("step_failed name=%s text=a b", "x", trace=True))
    assert "\n" not in line
    found = json.loads(line)
    assert (found["event"], found["name"], found["text"], found["level"]) == ("step_failed", "x", "a b", "warning")
    assert found["traceback"].endswith("ValueError: broken")


@dataclass(frozen=True, kw_only=True)
class Config(WatchingConfig):
    listen: str = setting("127.0.0.1:1", help="where")
    admin_password: str = setting("", help="not for logs")
    journal_dir: str | None = setting(None, help="where the journal goes")
    journal_level: str = setting("audit", help="how much")


def test_a_process_tells_what_was_chosen_before_what_was_not(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(listen="127.0.0.1:2", admin_password="open sesame", journal_dir="/var/j")
    with caplog.at_level(logging.INFO):
        logs.tell_start(config, server="broker")
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("starting server=broker version=")
    assert said[1:-2] == [
        "setting name=listen value=127.0.0.1:2 default=127.0.0.1:1",
        'setting name=admin_password value=*** default=""',
        "setting name=journal_dir value=/var/j default=none",
    ]
    assert said[-2].startswith("settings_default log_level=info log_format=text ")
    assert "listen=127" not in said[-2]
    assert said[-1] == "journal directory=/var/j level=audit"
    assert "sesame" not in caplog.text


def test_lines_are_held_until_a_warning_or_until_the_start_succeeded(capsys: pytest.CaptureFixture[str]) -> None:
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        logs.configure(Config())
        logging.getLogger("dejamq_broker.app").info("first")
        assert capsys.readouterr().err == ""
        for handler in logging.root.handlers:
            handler.flush()  # as the end of the process does
        assert capsys.readouterr().err == ""
        logging.getLogger("dejamq_broker.app").warning("second")
        assert [line.rpartition("=")[2] for line in capsys.readouterr().err.splitlines()] == ["first", "second"]
        release = logs.configure(Config())
        logging.getLogger("dejamq_broker.app").info("third")
        release()
        logging.getLogger("dejamq_broker.app").info("fourth")
        release()
        assert [line.rpartition("=")[2] for line in capsys.readouterr().err.splitlines()] == ["third", "fourth"]
    finally:
        logging.basicConfig(handlers=handlers, level=level, force=True)


def test_secrets_are_not_shown() -> None:
    assert shown(Config(admin_password="x"))["admin_password"] == "***"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"log_level": "loud"}, "log_level is one of"), ({"log_format": "xml"}, "log_format is text or json"),
        ({"metricsExporterType": "OTLP"}, "metrics_exporter_type is DISABLE, PROM or OTLP_GRPC"),
        ({"metricsExporterType": "OTLP_GRPC"}, "needs metrics_otlp_target"),
        ({"metrics_otlp_target": "collector"}, "metrics_otlp_target is http://HOST:PORT"),
        ({"metrics_otlp_target": "ftp://collector:1"}, "metrics_otlp_target is http://HOST:PORT"),
        ({"metrics_otlp_target": "http://c:1", "metricsGrpcExporterHeader": "token"}, "is name:value"),
        ({"metrics_otlp_interval_ms": "0"}, "metrics_otlp_interval_ms must be more than 0"),
        ({"metrics_listen": "5557"}, "metrics_listen is HOST:PORT"),
    ],
)  # fmt: skip
def test_settings_of_how_a_server_is_watched_are_checked(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(Config, env={}, overrides=settings).validate_watching()


def test_metrics_go_where_rocketmqs_settings_of_an_exporter_say() -> None:
    given = {
        "metricsExporterType": "OTLP_GRPC", "metricsGrpcExporterTarget": "collector:4317",
        "metricsGrpcExporterHeader": "Api-Key:a, team:b", "metricGrpcExporterIntervalInMills": "1000",
    }  # fmt: skip
    config = load(Config, env={}, overrides=given)
    config.validate_watching()
    assert config.otlp_target == OtlpTarget("collector:4317", (("api-key", "a"), ("team", "b")), 1000, 3000)
    assert (config.metrics_on, config.metrics_address) == (True, "")
    assert shown(config)["metrics_otlp_secret_header"] == "***"


def test_metrics_are_served_where_rocketmq_serves_them_when_its_setting_asks() -> None:
    assert Config().metrics_address == ""
    assert Config(metrics_exporter_type="PROM").metrics_address == "127.0.0.1:5557"
    assert Config(metrics_exporter_type="PROM", metrics_listen="127.0.0.1:9").metrics_address == "127.0.0.1:9"
