"""Readers of single lines, records and files of evidence, in all the shapes that versions and machines give them."""

import gzip
from datetime import timedelta
from pathlib import Path

import pytest
from dejamq_analytics.evidence import client_log, found, go_log, offset_files, polled, server_logs, trace
from dejamq_analytics.evidence.client import origin_of
from dejamq_analytics.evidence.mark import Mark, QueueName
from dejamq_analytics.evidence.text_lines import GMT8, Line, layout_of, lines_of, raw_lines, zones_of
from dejamq_analytics.evidence.trace import TraceMessage
from dejamq_analytics.evidence.translate import shift_of
from dejamq_analytics.sources.paths import BadInput

QUEUE = QueueName("orders", "broker-a", 2)
PRINTED = "MessageQueue [topic=orders, brokerName=broker-a, queueId=2]"
UTC = timedelta(0)


def of_client(text: str) -> Mark:
    """The mark of one line of a Java client."""
    (told,) = client_log.marks([Line(0, 1000, 7, text, "41")], "billing/client.log", "billing")
    return told


def of_server(text: str) -> Mark:
    (told,) = server_logs.marks([Line(0, 1000, 7, text, "")], "a/broker.log", "a")
    return told


# lines of text


def written(path: Path, text: bytes) -> Path:
    path.write_bytes(text)
    return path


def test_a_line_of_version_5_tells_its_process_and_milliseconds(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", b"1970-01-01 08:00:01.250 INFO  [41] [main] [X#?:?] - hello\n")
    (line,) = lines_of(log, GMT8)
    assert (line.at_us, line.within_us, line.number, line.pid) == (1_250_000, 1000, 1, "41")


def test_a_line_of_version_4_may_end_with_two_letters(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", b"1970-01-01 00:00:01,250 INFO RocketmqClient - hello\r\n")
    (line,) = lines_of(log, UTC)
    assert (line.at_us, line.text) == (1_250_000, " INFO RocketmqClient - hello")


def test_a_line_of_a_server_has_whole_seconds(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", b"1970-01-01 08:00:01 INFO main - hello\n")
    assert [line.within_us for line in lines_of(log, GMT8)] == [1_000_000]


def test_lines_without_a_date_and_torn_ones_are_left_out(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", b"1970-01-01 00:00:01 a\n\tat java\n1970-01-99 00:00:02 b\n1970-01-01 00:0")
    assert [line.number for line in lines_of(log, UTC)] == [1]


def test_a_gzipped_log_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = b"".join(b"1970-01-01 00:00:01 line %d\n" % number for number in range(20_000))
    log = written(tmp_path / "client.1", gzip.compress(whole)[:-500])
    assert len([*raw_lines(log)]) > 1000


def test_a_log_tells_its_zone_by_times_in_its_lines(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", b"2026-01-01 03:30:01,000 INFO A - version: 1767225600900, 1767225601000\n")
    zone = zones_of({log: "a.log"}, {})[log]
    assert zone == (timedelta(hours=3, minutes=30), "by times in its lines")


def test_a_log_of_version_4_that_tells_no_zone_has_that_of_the_others(tmp_path: Path) -> None:
    one = written(tmp_path / "one.log", b"2026-01-01 02:00:01,000 INFO A - version: 1767225601000\n")
    two = written(tmp_path / "two.log", b"2026-01-01 02:00:01,000 INFO A - hello\n")
    new = written(tmp_path / "new.log", b"2026-01-01 02:00:01.000 INFO  [1] [main] [A] - hello\n")
    zones = zones_of({path: path.name for path in (one, two, new)}, {})
    assert [zones[path].offset for path in (one, two, new)] == [timedelta(hours=2), timedelta(hours=2), GMT8]


def test_a_zone_that_is_told_counts_for_its_part_of_the_paths(tmp_path: Path) -> None:
    log = written(tmp_path / "billing.log", b"2026-01-01 02:00:01,000 INFO A - version: 1767225601000\n")
    assert zones_of({log: "billing.log"}, {"billing": timedelta(hours=-5)})[log] == (timedelta(hours=-5), "as told")


def test_the_pattern_of_an_application_finds_date_and_text(tmp_path: Path) -> None:
    layout = layout_of("%-5level [%thread] %d{yyyy-MM-dd HH:mm:ss.SSS} %logger{36} - %msg%n")
    log = written(
        tmp_path / "app.log", b"WARN  [main] 1970-01-01 00:00:01.250 a.b.C - suspend this consumer, billing\n"
    )
    (line,) = lines_of(log, UTC, layout)
    assert (line.at_us, line.text) == (1_250_000, "suspend this consumer, billing")


def test_a_pattern_without_a_date_is_refused() -> None:
    with pytest.raises(BadInput, match="needs %d and %msg"):
        layout_of("%level %msg%n")


# the client log


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        ("- doRebalance, billing, add a new mq, " + PRINTED, "opened", {"group": "billing", "queue": QUEUE}),
        ("- doRebalance, billing, remove unnecessary mq, " + PRINTED, "dropped", {"queue": QUEUE}),
        (
            "- doRebalance, billing, add a new pull request PullRequest [consumerGroup=billing, "
            f"messageQueue={PRINTED}, nextOffset=17]", "begun", {"value": 17},
        ),
        (
            f"- [BUG]doRebalance, billing, try remove unnecessary mq, {PRINTED}, because pull is pause, so",
            "idle", {"queue": QUEUE},
        ),
        (
            f"- [BUG]doRebalance, billing, remove unnecessary mq, {PRINTED}, because pull is pause, so try to fixed it",
            "idle", {"queue": QUEUE},
        ),
        (f"- Fix Offset, billing, remove unnecessary mq, {PRINTED} Droped: true", "fixed", {"queue": QUEUE}),
        (
            f"- [persistAll] Group: billing ClientId: 10.0.0.9@41#7 updateConsumeOffsetToBroker {PRINTED} 12",
            "persisted", {"value": 12, "client_id": "10.0.0.9@41#7", "reason": "persistAll"},
        ),
        (
            f"- client rebalanced result changed. allocateMessageQueueStrategyName=AVG, group=billing, topic=orders, "
            f"clientId=10.0.0.9@41#7, mqAllSize=4, cidAllSize=2, rebalanceResultSize=1, rebalanceResultSet=[{PRINTED}]",
            "assigned", {"queues": [QUEUE], "all_queues": 4, "all_members": 2, "strategy": "AVG"},
        ),
        (
            f"- rebalanced result changed. allocateMessageQueueStrategyName=AVG, group=billing, topic=orders, "
            f"clientId=10.0.0.9@41#7, mqAllSize=4, cidAllSize=2, rebalanceResultSize=1, rebalanceResultSet=[{PRINTED}]",
            "assigned", {"queues": [QUEUE]},
        ),
        (
            f"- sendKernelImpl exception, resend at once, InvokeID: -7, RT: 2006ms, Broker: {PRINTED}",
            "tried_again", {"cost_ms": 2006, "queue": QUEUE},
        ),
        (
            "- the topic[orders] route info changed, old[null] ,new[TopicRouteData [brokerDatas=[BrokerData "
            "[brokerName=broker-a, brokerAddrs={0=10.0.0.1:10911, 1=10.0.0.2:10911}, enableActingMaster=false]]]]",
            "routed", {"brokers": {"broker-a": "10.0.0.1:10911"}},
        ),
        ("- the client factory [10.0.0.9@41#7] shutdown OK", "closed", {"client_id": "10.0.0.9@41#7"}),
        (
            "- receive broker's notification[10.0.0.1:10911], the consumer group: billing changed, rebalance",
            "told", {"group": "billing"},
        ),
        ("- sendMessageBack Exception, billing", "not_sent_back", {"group": "billing"}),
        (
            "- Failed to send message back, consumerGroup=billing, brokerName=broker-a, mq=null, message=x",
            "not_sent_back", {"group": "billing"},
        ),
    ],
)  # fmt: skip
def test_a_line_of_a_java_client_tells_what_it_did(text: str, what: str, said: dict[str, object]) -> None:
    told = of_client(text)
    assert told.what == what
    assert {name: told.said[name] for name in said} == said


def test_the_messages_that_a_client_threw_away_are_read_from_its_line() -> None:
    message = (
        "MessageExt [brokerName=broker-a, queueId=2, storeSize=1, queueOffset=5, sysFlag=0, reconsumeTimes=1, "
        "properties={UNIQ_KEY=C0A8, TAGS=paid}]"
    )
    told = of_client(
        f"- processQueue is dropped without process consume result. messageQueue={PRINTED}, msgs=[{message}]"
    )
    assert told.said["messages"] == [(2, 5, 1, "C0A8")]


@pytest.mark.parametrize(
    ("message", "what", "more"),
    [
        ("fetch offset of mq from broker success", "begun", {"value": 17}),
        ("update offset to broker success", "persisted", {"value": 17}),
        ("remove unnecessary mq when updateProcessQueueTable", "dropped", {}),
        ("remove unnecessary mq because unsubscribed", "unsubscribed", {}),
        ("remove unnecessary mq because pull was expired, prepare to fix it", "idle", {}),
    ],
)
def test_a_line_of_a_go_client_tells_what_it_did(message: str, what: str, more: dict[str, object]) -> None:
    text = (
        f'time="1970-01-01T08:00:01+08:00" level=info msg="{message}" MessageQueue="{PRINTED}" consumerGroup=billing '
        "offset=17"
    )
    as_json = (
        f'{{"time":"1970-01-01T08:00:01+08:00","msg":"{message}","MessageQueue":"{PRINTED}","consumerGroup":"billing",'
        '"offset":17}'
    )
    for line in (text, as_json):
        (told,) = go_log.marks([(3, line)], "go.log", "billing")
        assert (told.at_us, told.what, told.said["queue"], told.said["group"]) == (1_000_000, what, QUEUE, "billing")
        assert {name: told.said[name] for name in more} == more


# servers


CHANNEL = (
    "ClientChannelInfo [channel=[id: 0xbd, L:/10.0.0.1:10911 - R:/10.0.0.9:56790], clientId=10.0.0.9@41#7, "
    "language=JAVA, version=479, lastUpdateTimestamp=1795781880852]"
)


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        (
            f" INFO A - new consumer connected, group: billing CONSUME_PASSIVELY CLUSTERING channel: {CHANNEL}",
            "joined", {"group": "billing", "client_id": "10.0.0.9@41#7", "address": "10.0.0.9:56790"},
        ),
        (f" INFO A - unregister a consumer[billing] from consumerGroupInfo {CHANNEL}", "left", {"group": "billing"}),
        (
            f" WARN A - NETTY EVENT: remove not active channel[{CHANNEL}] from ConsumerGroupInfo groupChannelTable, "
            "consumer group: billing", "lost", {"group": "billing", "client_id": "10.0.0.9@41#7"},
        ),
        (
            " WARN A - [NOTIFYME]update consumer offset less than store. clientHost=/10.0.0.9:56790, "
            "key=orders@billing, queueId=2, requestOffset=5, storeOffset=9", "lowered",
            {"topic": "orders", "group": "billing", "queue_id": 2, "new": 5, "old": 9},
        ),
        (
            ' INFO A - Reset offset, topic=orders, group=billing, queues={"offsetTable":{{"brokerName":"broker-a",'
            '"queueId":2,"topic":"orders"}:7}}', "reset_to", {"offsets": {2: 7}},
        ),
        (" INFO main - last shutdown abnormally, store path root dir: /home/rocketmq/store", "began",
         {"how": "abnormally"}),
        (" INFO main - load /home/rocketmq/store/config/consumerOffset.json.bak OK", "loaded", {"bak": ".bak"}),
        (
            " INFO A - RebalanceLockManager#tryLockBatch: lock a message which has not been locked yet, "
            f"group=billing, clientId=10.0.0.9@41#7, mq={PRINTED}", "locked",
            {"queue": QUEUE, "client_id": "10.0.0.9@41#7"},
        ),
        (
            " INFO A - tryLockBatch, message queue not locked, I got it. Group: billing NewClientId: 10.0.0.9@41#7 "
            f"{PRINTED}",
            "locked_4", {"queue": QUEUE, "client_id": "10.0.0.9@41#7"},
        ),
        (
            " WARN A - RebalanceLockManager#tryLock: try to lock a expired message queue, group=billing, "
            f"mq={PRINTED}, old client id=a, new client id=b", "taken_over", {"owner": "a", "client_id": "b"},
        ),
    ],
)  # fmt: skip
def test_a_line_of_a_server_tells_what_it_saw(text: str, what: str, said: dict[str, object]) -> None:
    told = of_server(text)
    assert told.what == what
    assert {name: told.said[name] for name in said} == said


# the trace topic


def records(*fields: list[str], end: str = "\x02") -> list[Mark]:
    body = "".join("\x01".join(record) + end for record in fields)
    return [*trace.marks(TraceMessage("a store log offset 7", "10.0.0.9:1", body, 900, 901))]


BEFORE = ["SubBefore", "1000", "DefaultRegion", "billing", "R" * 32, "M" * 32, "2", "order-17"]
AFTER = ["SubAfter", "R" * 32, "M" * 32, "12", "true", "order-17", "1", "1012", "billing"]


def test_records_of_a_handler_are_read_with_their_request() -> None:
    entered, ended = records(BEFORE, AFTER)
    assert (entered.what, entered.at_us, entered.said["group"], entered.said["times"]) == ("entered", 1e6, "billing", 2)
    assert (ended.what, ended.at_us, ended.said["status"], ended.said["success"]) == (
        "ended",
        1_012_000,
        "timeout",
        True,
    )


def test_a_record_of_an_old_client_has_no_time_of_its_own() -> None:
    (ended,) = records([*AFTER[:7]])
    assert (ended.at_us, ended.said["group"], ended.said["timed"]) == (900_000, "", False)


def test_records_that_run_together_are_told_apart() -> None:
    assert [mark.what for mark in records(AFTER, BEFORE, end="")] == ["ended", "entered"]


def test_a_record_that_is_torn_or_unknown_is_left_out() -> None:
    assert records(["SubBefore", "10"], ["Pub", "x"] + ["y"] * 14, ["SubBefore", "soon", *BEFORE[2:]]) == []


@pytest.mark.parametrize("length", [14, 15])
def test_a_send_is_read_in_its_lengths(length: int) -> None:
    fields = [
        "Pub", "1000", "DefaultRegion", "shop", "orders", "M1,M2", "paid", "order-17", "10.0.0.1:10911", "8", "3", "0",
        "0A", "true", "10.0.0.9",
    ]  # fmt: skip
    (sent,) = records(fields[:length])
    assert (sent.said["unique_keys"], sent.said["offset_message_id"], sent.said["success"]) == (
        ["M1", "M2"],
        "0A",
        True,
    )


def test_an_id_names_the_process_that_made_it() -> None:
    origin = origin_of("C00002027EEE4E0E2F2A8888C1740000")
    assert origin is not None
    assert (origin.ip, origin.pid) == ("192.0.2.2", 0x7EEE)
    assert origin_of("01ABCDEF") is None


# files


def test_offsets_are_read_from_a_copy_with_the_time_in_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "consumerOffset-1795781890491.json"
    copy.write_text('{"dataVersion":{"timestamp":1},"offsetTable":{"orders@billing":{0:2,1:6}}}')
    (told,) = offset_files.marks(copy, "copy", "a")
    assert told.at_us == 1_795_781_890_491_000
    assert told.said["offsets"] == {("orders", "billing", 0): 2, ("orders", "billing", 1): 6}


def test_a_damaged_file_of_offsets_tells_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "consumerOffset-1795781890491.json"
    copy.write_text('{"offsetTable":{"orders@bill')
    assert [*offset_files.marks(copy, "copy", "a")] == []


def test_polled_answers_give_traces_offsets_and_names_of_brokers(tmp_path: Path) -> None:
    file = tmp_path / "evidence-000001.jsonl.gz"
    lines = [
        '{"kind":"session","event":"file","format":1}',
        '{"kind":"trace","born_host":"10.0.0.9:1","born_ms":5,"stored_ms":6,"body":"x","broker":"broker-a"}',
        '{"kind":"offsets","asked_ms":5,"at_ms":6,"code":0,"broker":"broker-a",'
        '"body":{"offsetTable":{"orders@billing":{"0":2}}}}',
        '{"kind":"routes","asked_ms":5,"at_ms":6,"code":0,"body":{"brokerDatas":[{"brokerName":"broker-a",'
        '"brokerAddrs":{"0":"10.0.0.1:10911"}}]}}',
        '{"kind":"members","code":1}',
        '{"kind":"tra',
    ]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    one, offsets, routes = polled.read(file, "evidence")
    assert isinstance(one, TraceMessage)
    assert one.body == "x"
    assert isinstance(offsets, Mark)
    assert offsets.said["offsets"] == {("orders", "billing", 0): 2}
    assert isinstance(routes, Mark)
    assert routes.said["brokers"] == {"broker-a": "10.0.0.1:10911"}


def test_each_file_is_known_by_its_name_or_its_lines(tmp_path: Path) -> None:
    names = {
        "a/other_days/rocketmq_client-1.log.gz": found.CLIENT, "b/otherdays/broker.3.log.gz": found.SERVER,
        "b/consumerOffset.json.bak": found.OFFSETS, "c/evidence-000001.jsonl": found.POLLED,
        "d/notes.txt": found.UNKNOWN,
    }  # fmt: skip
    contents = {
        "e/app.log": (f"2026-01-01 00:00:00 doRebalance, billing, add a new mq, {PRINTED}\n", found.CLIENT),
        "e/exported": ("SubBefore\x011\x01x\n", found.TRACE),
        "e/service.out": ('time="x" level=info msg="MessageQueue do balance done" topic=orders\n', found.GO),
        "e/old": ("2026-01-01 00:00:00 INFO main - last shutdown normally, store path\n", found.SERVER),
    }
    for name in (*names, *contents):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(contents[name][0] if name in contents else "")
    told = {one.shown: one.kind for one in found.found_in([str(tmp_path)])}
    assert told == names | {name: kind for name, (_, kind) in contents.items()}


def test_the_machine_of_a_file_is_the_folder_above_those_of_rocketmq(tmp_path: Path) -> None:
    assert found.host_of(tmp_path / "billing-1" / "logs" / "rocketmqlogs" / "other_days", tmp_path) == "billing-1"
    assert found.host_of(tmp_path, tmp_path) == tmp_path.name


def test_a_folder_that_is_not_there_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no such directory of evidence"):
        found.found_in(["/nowhere"])


@pytest.mark.parametrize(
    ("late_ms", "shift"),
    [
        ([20, 35, 4, 90], None), ([20, 4000, 15, 5], None), ([5020, 5004, 5090], -5004), ([4000], -4000), ([], None),
        ([-4980, -4965, -4910], 4980),
        ([-2990, -2995, 0], 2995),  # a slow message hides nothing
        ([20, 15, 30, 6020, 6010, 6040], -6010), ([20, 15, 30, -5990, -5980], 5990),  # the clock stepped
    ],
)  # fmt: skip
def test_a_clock_that_is_wrong_for_a_part_of_the_time_is_a_wrong_clock(late_ms: list[int], shift: int | None) -> None:
    times = [(10_000_000 + 60_000 * at - late, 10_000_000 + 60_000 * at) for at, late in enumerate(late_ms)]
    assert shift_of(times) == shift
