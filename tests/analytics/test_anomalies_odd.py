"""Each odd history shows its anomaly and its neighbours show none: one audit of all of them."""

import re

import pytest
import stories_polls  # noqa: F401  # they register themselves
from dejamq_analytics import AuditResult, audit
from journals import History
from pyspark.sql import Row, SparkSession
from stories_odd import ODD

KINDS = {kind for kind, _ in ODD.values() if kind}
EVIDENCE = {
    "buried-too-soon": ["APPEND"],
    "given-back-after-success": ["APPEND", "DELIVER", "RESULT"],
    "refused-and-read": ["SEND_RESULT", "DELIVER"],
    "rolled-back-and-read": ["END_TRANSACTION", "DELIVER"],
    "committed-without-a-half": ["APPEND"],
    "another-message-at-its-place": ["DELIVER", "DELIVER"],
    "delayed-for-less": ["APPEND", "APPEND"],
    "sent-past-what-was-deleted": ["PULL"],
    "read-before-its-commit": ["DELIVER"],
}


@pytest.fixture(scope="module")
def audited_odd(quick: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """All of them, in one audit."""
    directory = tmp_path_factory.mktemp("odd")
    (directory / "elsewhere").mkdir()
    for name, (_, write) in ODD.items():
        history = History(directory, name)
        write(history)
        history.end()
    return audit(quick, [str(directory)])


@pytest.fixture(scope="module")
def found(audited_odd: AuditResult) -> dict[str, list[Row]]:
    """Anomalies by history: a broker is named after its own."""
    rows: dict[str, list[Row]] = {}
    for row in audited_odd.anomalies.collect():
        rows.setdefault(row.broker_name.removesuffix("-broker-0"), []).append(row)
    return rows


@pytest.mark.parametrize("name", ODD)
def test_an_odd_history_shows_its_anomaly_and_a_sound_one_none(found: dict[str, list[Row]], name: str) -> None:
    wanted = ODD[name][0]
    kinds = [row.kind for row in found.get(name, []) if row.kind in KINDS | {"lost"}]
    assert kinds == ([wanted] if wanted else []), found.get(name)


@pytest.mark.parametrize("name", EVIDENCE)
def test_an_anomaly_names_its_lines(found: dict[str, list[Row]], name: str) -> None:
    (row,) = [row for row in found[name] if row.kind == ODD[name][0]]
    assert [line.event for line in row.evidence] == EVIDENCE[name]
    assert all(line.boot_id.startswith(name.replace("-", "")) for line in row.evidence)
    assert row.detail


def test_anomalies_have_ids_of_their_own(found: dict[str, list[Row]]) -> None:
    ids = [row.anomaly_id for rows in found.values() for row in rows]
    assert len(ids) == len(set(ids))


def test_a_clock_that_is_wrong_makes_a_cause_undetermined_and_is_named(audited_odd: AuditResult) -> None:
    """Without it the later delivery would look like the first one, and a cause be told of the wrong owner."""
    rows = {row.consumer_group: row for row in audited_odd.findings.where("identity = 'I1'").collect()}
    agreed, behind, ahead = (rows[name] for name in ("clocks-that-agree", "a-clock-behind", "a-clock-ahead"))
    assert (agreed.cause, agreed.certainty) == ("O1", "certain")
    assert (behind.cause, ahead.cause) == (None, None)
    words = r"the clock of a-clock-{0}-c2 is 3599\d\d\d ms {1} that of a broker \(consumer-\*-aclock{0}c2\.jsonl\)"
    assert re.fullmatch(words.format("behind", "behind"), behind.missing)
    assert re.fullmatch(words.format("ahead", "ahead of"), ahead.missing)
