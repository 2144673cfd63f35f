"""Runs of a real RocketMQ, recorded by ``tests/rocketmq/record.py``: do readers and rules name what happened?"""

import gc
import gzip
import json
import random
import re
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dejamq_analytics.evidence.client import ClientStart, GivenMessage
from dejamq_analytics.evidence.mark import Mark, QueueName
from dejamq_analytics.evidence.stored import Records, Stored
from dejamq_analytics.evidence.text_lines import layout_of
from dejamq_analytics.evidence.translate import Reading
from dejamq_analytics.evidence.untraced import Untraced, find
from dejamq_analytics.report.evidence_scope import EvidenceVerdict
from dejamq_analytics.run import Request, run_audit
from dejamq_analytics.sources.commit_log import scan
from dejamq_analytics.sources.paths import BadInput
from dejamq_lab.rocketmq.truth import found_twice
from less_evidence import Loss, loss_of, random_loss, single_losses, without_traces, wrong
from recorded import NAMES, RECORDED, audited, causes_of, truth_of

LIKELY = {"o2": "O2", "o20": "O20", "p3": "P3", "r13": "R13", "r2": "R2"}
"""Runs whose cause no evidence tells from others: all findings are undetermined, and name it among them."""


@pytest.mark.parametrize("name", NAMES)
def test_each_duplicate_of_a_recorded_run_has_its_cause(name: str, tmp_path: Path) -> None:
    truth = truth_of(name)
    _, findings = audited(RECORDED / name, tmp_path)
    wrong = [(one["cause"], one["missing"]) for one in findings if one["cause"] not in causes_of(truth, one)]
    if name in LIKELY:
        assert wrong
        assert [one for one in wrong if one[0] or LIKELY[name] not in one[1]] == []
        return
    assert found_twice(findings) == truth.came_twice()
    assert wrong == []
    assert {one["cause"] for one in findings} == truth.expected


def test_a_run_without_duplicates_is_clean(tmp_path: Path) -> None:
    verdict, findings = audited(RECORDED / "healthy", tmp_path)
    assert (verdict.verdict, findings) == ("clean", [])


def without_lines(log: Path, unwanted: str) -> None:
    """Take out the lines that this pattern fits."""
    lines = log.read_text().splitlines(keepends=True)
    left = [line for line in lines if not re.search(unwanted, line)]
    assert len(left) < len(lines)
    log.write_text("".join(left))


@pytest.mark.parametrize(("file", "unwanted", "said"), [
    ("billing-2/rocketmq_client.log", "a new client Instance|start beginning", "the begin of the log of billing-2"),
    ("billing-2/rocketmq_client.log", "the client factory .* shutdown OK", "the end of the log of billing-2"),
    ("billing-2/rocketmq_client.log", " INFO | WARN ", "lines of use in the client's log of machine billing-2"),
    ("broker-a/logs/broker.log", "new consumer connected", "broker.log of the time when billing-2"),
])  # fmt: skip
def test_a_run_is_clean_only_where_logs_tell_all_of_each_members_time(
    file: str, unwanted: str, said: str, tmp_path: Path
) -> None:
    shutil.copytree(RECORDED / "healthy", tmp_path / "run")
    without_lines(tmp_path / "run" / file, unwanted)
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert verdict.verdict == "undetermined"
    assert isinstance(verdict, EvidenceVerdict)
    assert any(lack.startswith(said) for lack in verdict.evidence.lacking), verdict.evidence.lacking


def test_a_run_is_not_clean_where_a_broker_tells_of_a_member_that_left_nothing(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "healthy", tmp_path / "run", ignore=shutil.ignore_patterns("billing-2"))
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert verdict.verdict == "undetermined"


def test_a_finding_says_from_which_line_of_which_file_it_comes(tmp_path: Path) -> None:
    _, findings = audited(RECORDED / "o1", tmp_path)
    died = next(one for one in findings if one["cause"] == "O1")
    said = {line["event"]: line["summary"] for line in died["evidence"]}
    number = int(said["PQ_OPEN"].partition("billing-2/rocketmq_client.log:")[2].rstrip("]"))
    line = (RECORDED / "o1" / "billing-2" / "rocketmq_client.log").read_text().splitlines()[number - 1]
    assert "add a new mq, MessageQueue [topic=orders, brokerName=broker-a, queueId=0]" in line


def all_of_the_first_store_but(part: float) -> Loss:
    """Its begin is left."""

    def take(run: Path) -> None:
        first = sorted(run.rglob("commitlog/*"))[0]
        first.write_bytes(first.read_bytes()[: int(first.stat().st_size * part)])

    return Loss(f"the first store, all but {part:.0%}", take)


def test_a_broadcasting_group_without_traces_is_not_clean_although_nobody_heard_of_its_offsets(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RECORDED / "o20", run)
    (log,) = (run / "broker-a" / "store" / "commitlog").iterdir()
    without_traces(log, lambda record: True)
    verdict, _ = audited(run, tmp_path / "out")
    assert verdict.verdict == "undetermined"


def test_a_broadcasting_group_is_not_clean_where_a_whole_member_may_be_missing(tmp_path: Path) -> None:
    """Whether its own log says that it broadcasts, or only the broker's."""
    (machine,) = (loss for loss in single_losses(RECORDED / "o20") if loss.what == "machine billing-2")
    (other,) = (loss for loss in single_losses(RECORDED / "o20") if loss.what == "machine billing-1")
    cut = all_of_the_first_store_but(6 / 10)
    assert wrong("o20", [machine, cut], tmp_path / "one") == []
    assert wrong("o20", [machine, other, cut], tmp_path / "both") == []


def test_without_traces_an_audit_does_not_say_clean(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "healthy", tmp_path / "run", ignore=shutil.ignore_patterns("commitlog"))
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert verdict.verdict == "undetermined"
    assert isinstance(verdict, EvidenceVerdict)
    assert any("trace records of billing-1" in lack for lack in verdict.evidence.lacking)


def test_a_log_without_its_end_leaves_undetermined_why_its_process_ended(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o1", tmp_path / "run")
    (tmp_path / "run" / "broker-a" / "logs" / "broker.log").unlink()
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert verdict.causes.get("O1", 0) == 0
    assert any("the end of the log of billing-1" in missing for missing in verdict.undetermined_missing)


def causes_in(folder: Path, out: Path) -> dict[str, int]:
    """Causes that an audit names, with how often."""
    return audited(folder, out)[0].causes


def test_rotated_and_gzipped_logs_with_other_line_ends_tell_the_same(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o1", tmp_path / "run")
    for log in [*(tmp_path / "run").rglob("*.log")]:
        text = log.read_bytes().replace(b"\n", b"\r\n")
        middle = text.find(b"\n", len(text) // 2) + 1
        older = log.parent / "other_days" / f"{log.stem}-1.log.gz"
        older.parent.mkdir(exist_ok=True)
        older.write_bytes(gzip.compress(text[:middle]))
        log.write_bytes(text[middle:])
    assert causes_in(tmp_path / "run", tmp_path / "out") == {"O1": 1, "O7": 3}


def test_the_log_of_an_application_tells_the_same(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o1_client4", tmp_path / "run")
    for log in [*(tmp_path / "run").rglob("rocketmq_client.log")]:
        lines = log.read_text().splitlines()
        laid = [re.sub(r"^(\S+ \S+) (\w+) (\w+) - ", r"\2 [main] \1 --- \3: ", line) for line in lines]
        log.with_name("application.out").write_text("\n".join([*laid, "INFO [main] what another library says"]))
        log.unlink()
    layout = layout_of("%level [%thread] %d --- %logger: %msg%n")
    folder = str(tmp_path / "run")
    reading = Reading([folder], zones={"application": timedelta(0)}, layout=layout)
    _, verdict = run_audit(Request([], reading=reading, engine="duckdb"), lambda text: None)
    assert verdict.causes == {"O1": 1, "O7": 3}


def test_a_log_in_another_zone_than_it_was_taken_for_names_no_cause(tmp_path: Path) -> None:
    reading = Reading([str(RECORDED / "o9")], zones={"billing-1": timedelta(hours=9)})
    _, verdict = run_audit(Request([], reading=reading, engine="duckdb"), lambda text: None)
    assert (verdict.causes, verdict.undetermined) == ({}, 1)


def test_an_exported_trace_beside_its_store_counts_once(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o1", tmp_path / "run")
    store = tmp_path / "run" / "broker-a" / "store" / "commitlog" / ("0" * 20)
    bodies = [record.body.decode() for record, _ in scan(store) if record.topic == "RMQ_SYS_TRACE_TOPIC"]
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "exported.txt").write_text("\n".join(bodies))
    reading = Reading([str(tmp_path / "run"), str(tmp_path / "trace")])
    _, verdict = run_audit(Request([], reading=reading, engine="duckdb"), lambda text: None)
    assert (verdict.deliveries, verdict.causes) == (16, {"O1": 1, "O7": 3})


def test_a_log_that_lacks_a_round_of_offsets_names_no_cause(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o7", tmp_path / "run")
    log = tmp_path / "run" / "billing-1" / "rocketmq_client.log"
    lines = log.read_text().splitlines(keepends=True)
    rounds = sorted({line[:19] for line in lines if "[persistAll]" in line})
    log.write_text("".join(line for line in lines if not ("[persistAll]" in line and line.startswith(rounds[1]))))
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert (verdict.causes, verdict.undetermined) == ({}, 8)


def test_an_offset_that_was_polled_proves_that_the_broker_had_it(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o3", tmp_path / "run")
    log = tmp_path / "run" / "broker-a" / "logs" / "broker.log"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if "unregister a consumer[" not in line))
    before, _ = audited(tmp_path / "run", tmp_path / "before")
    assert (before.causes, before.undetermined) == ({}, 4)
    told = (RECORDED / "o3" / "billing-1" / "rocketmq_client.log").read_text().splitlines()
    last = next(line[:23] for line in reversed(told) if "[persistAll]" in line)
    at_ms = round((datetime.fromisoformat(f"{last}+08:00").timestamp()) * 1000)
    poll = {"kind": "offsets", "code": 0, "broker": "broker-a", "asked_ms": at_ms + 5, "at_ms": at_ms + 8,
            "body": {"offsetTable": {"orders@billing": {"0": 8, "1": 8}}}}  # fmt: skip
    (tmp_path / "run" / "evidence-000001.jsonl").write_text(json.dumps(poll) + "\n")
    assert causes_in(tmp_path / "run", tmp_path / "after") == {"O3": 4}


def test_a_send_that_the_client_gave_up_is_not_taken_for_its_own_retry(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "p1", tmp_path / "run")
    log = tmp_path / "run" / "orders-1" / "rocketmq_client.log"
    log.write_text(log.read_text().replace("resend at once", "throw exception"))
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert (verdict.causes, verdict.undetermined) == ({}, 1)


def test_traces_and_stores_alone_leave_undetermined_why_a_record_came_again(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "o1", tmp_path / "run", ignore=shutil.ignore_patterns("*.log"))
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    assert (verdict.deliveries, verdict.causes, verdict.undetermined) == (16, {}, 4)
    assert all("rocketmq_client.log" in missing for missing in verdict.undetermined_missing)


def test_an_audit_since_another_one_tells_what_more_evidence_settles(tmp_path: Path) -> None:
    log = tmp_path / "run" / "broker-a" / "logs" / "broker.log"
    shutil.copytree(RECORDED / "o1", tmp_path / "run", ignore=shutil.ignore_patterns("broker.log"))
    before, _ = audited(tmp_path / "run", tmp_path / "out")
    assert before.causes == {"O7": 3}
    shutil.copy(RECORDED / "o1" / "broker-a" / "logs" / "broker.log", log)
    reading = Reading([str(tmp_path / "run")])
    told = []
    for _ in range(2):
        request = Request([], out=tmp_path / "out", reading=reading, engine="duckdb", since="last")
        told.append(run_audit(request, lambda text: None)[1])
    assert [(one.causes, one.undetermined) for one in told] == [({"O1": 1}, 0), ({}, 0)]


def test_the_report_draws_how_exact_the_time_of_each_line_is(tmp_path: Path) -> None:
    audited(RECORDED / "o1", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert 'aria-label="When each line was"' in page
    assert re.search(r"\d UTC, within 1000 ms, by the clock of billing-1:", page)
    assert re.search(r"\d UTC, within 1 ms, by the clock of billing-2:", page)


def test_evidence_that_tells_nothing_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(BadInput, match="nothing that tells of a client or a broker"):
        run_audit(Request([], reading=Reading([str(tmp_path)]), engine="duckdb"), lambda text: None)
    assert gc.isenabled(), "it is off during a translation"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_tells_of_a_recorded_run_what_duckdb_tells(tmp_path: Path) -> None:
    told = []
    for engine in ("duckdb", "spark"):
        out = tmp_path / engine
        run_audit(Request([], out=out, reading=Reading([str(RECORDED / "o1")]), engine=engine), lambda text: None)
        rows = [row for part in out.rglob("findings/*/*.parquet") for row in pq.read_table(part).to_pylist()]
        told.append(sorted(rows, key=lambda row: str(row["finding_id"])))
    assert told[0] == told[1]


FOUND = [
    ("r9", ["middle of broker-a/logs/filter.log, 1138120409"]),
    ("r10", ["end of broker-a/logs/filter.log, 2156635513"]),
    ("r10", ["begin of broker-a/logs/store.log, 15907973"]),
    ("o1_alone", ["some of the store, 831987945", "below ERROR of billing-2"]),
    ("o9_client4", ["end of billing-2/rocketmq_client.log, 977950886", "some of the traces, 1073898744"]),
    ("o9_client4", ["machine billing-2", "some of the traces, 580036942", "below WARN of billing-2"]),
    ("b13", ["time 1795796068125-1795796097250 of all", "time 1795796097250-1795796126375 of all"]),
    ("o3", ["time 1795784243375-1795784261250 of all", "time 1795784225500-1795784243375 of all"]),
    ("o1_go", ["time 1795785544500-1795785559875 of all"]),
    ("o1_go", ["time 1795785559875-1795785575250 of all", "file billing-2/rocketmq-go.log"]),
    ("o10", ["lines of billing-2/rocketmq_client.log, 1381461358", "some of the store, 817200113"]),
    ("o8", ["some of the store, 4197162949", "begin of billing-2/rocketmq_client.log, 78017500"]),
    ("o8", ["some of the traces, 3046937373", "lines of billing-1/rocketmq_client.log, 2673629513"]),
    ("p8", ["below WARN of billing-1", "some of the store, 2553521427"]),
    ("o9", ["some of the traces, 571697827"]),
    ("r9", ["some of the traces, 3722640310"]),
    ("o2", ["some of the store, 2811415840", "middle of billing-2/rocketmq_client.log, 1032775987"]),
    ("o10", ["end of billing-1/rocketmq_client.log, 3845801398"]),
    ("o10", ["some of the traces, 626843697"]),
    ("r6", ["time 1795798413500-1795798433625 of all"]),
    ("p1", ["end of billing-1/rocketmq_client.log, 3021215559"]),
    ("p3", ["middle of billing-1/rocketmq_client.log, 2048016878"]),
    ("p3", ["machine billing-1", "file broker-a/store/commitlog/00000000000000000000"]),
]
"""Losses after which an audit once said something wrong. ``prove_less_evidence.py`` finds such."""


@pytest.mark.parametrize(("name", "losses"), FOUND)
def test_a_loss_that_once_made_an_audit_wrong_does_not_any_more(name: str, losses: list[str], tmp_path: Path) -> None:
    assert wrong(name, [loss_of(one) for one in losses], tmp_path) == []


@pytest.mark.parametrize("number", range(8))
def test_less_evidence_never_makes_a_verdict_wrong(number: int, tmp_path: Path) -> None:
    """Of one run, the same each time; ``prove_less_evidence.py`` takes all, others each time, and each single loss."""
    chance = random.Random(number)
    name = chance.choice(NAMES)
    losses = [random_loss(RECORDED / name, chance) for _ in range(chance.randint(1, 3))]
    assert wrong(name, losses, tmp_path) == [], (name, [loss.what for loss in losses])


def test_deliveries_of_a_message_with_two_copies_are_not_of_the_one_in_a_store_that_ends_too_early(
    tmp_path: Path,
) -> None:
    assert wrong("p3", [all_of_the_first_store_but(1 / 8)], tmp_path) == []


def test_a_broadcasting_member_whose_log_tells_no_name_leaves_open_whether_it_had_the_message_before(
    tmp_path: Path,
) -> None:
    """Its traces alone do not say whether it is another member (L8) or one that lost its offsets (O20)."""
    (without_names,) = (
        loss for loss in single_losses(RECORDED / "o20") if loss.what == "below WARN of billing-2"
    )  # fmt: skip
    assert wrong("o20", [without_names], tmp_path) == []


def test_lost_traces_of_messages_that_offsets_were_told_of_leave_the_verdict_open(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "healthy", tmp_path / "run")
    (store,) = (tmp_path / "run").rglob("commitlog/*")
    chance = random.Random(1)
    without_traces(store, lambda record: True, lambda: chance.random() < 1 / 10)
    verdict, findings = audited(tmp_path / "run", tmp_path / "out")
    assert (verdict.verdict, findings) == ("undetermined", [])
    assert isinstance(verdict, EvidenceVerdict)
    assert any("message(s) that " in lack for lack in verdict.evidence.lacking), verdict


def test_a_tag_that_a_group_leaves_out_is_no_lost_trace() -> None:
    queue = QueueName("orders", "broker-a", 0)
    tagged = [
        Stored(queue, offset, offset, f"k{offset}", 0, "", "", 0, 0, tags=tags)
        for offset, tags in enumerate(("paid", "sent", "paid", "paid"))
    ]
    records, member = Records(), ClientStart("c", "billing-1", "10.0.0.1@1#2")
    member.has.add("trace")
    hold = member.open("billing", queue, None)
    hold.persist(1, 0)
    hold.persist(2, 4)
    records.by_key.update({one.unique_key: [one] for one in tagged})
    said = {"group": "billing"}
    given = [GivenMessage(Mark(1, 1, "", "", "entered", said), 1, member, one) for one in (tagged[0], tagged[3])]
    assert find([member], given, records) == [
        Untraced("billing-1", 1, queue, 2), Untraced("the members of billing", 1, queue, 2)
    ]  # fmt: skip
