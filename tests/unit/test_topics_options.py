"""Options of the Spark source of topics: what they mean, and the words for those that cannot work."""

from typing import Any

import pytest
from dejamq_proto.codes import ConfigError

pytest.importorskip("pyspark", reason="the source needs the extra 'analytics'")

from dejamq_analytics.topics.options import Bound, ReadOptions
from dejamq_analytics.topics.places import EARLIEST, LATEST, TopicQueue

OFFSETS = '{"t": {"broker-a": {"0": 7, "1": -1}}}'


def options(**given: Any) -> ReadOptions:
    return ReadOptions.of({"namesrv": "a:9876;b:9876", "topic": "t", **given})


def test_without_more_than_an_address_and_a_topic_the_defaults_hold() -> None:
    read = options()
    assert (read.namesrvs, read.topics) == (("a:9876", "b:9876"), ("t",))
    assert (read.begin, read.end, read.fail_on_data_loss, read.patience_s) == (None, None, True, 30)
    assert (read.most_records, read.most_offsets, read.commit_group, read.account) == (None, None, None, None)


def test_several_topics_have_commas_between() -> None:
    assert options(topic="t, %DLQ%group").topics == ("t", "%DLQ%group")


def test_names_may_be_written_in_any_case_as_spark_hands_them_on() -> None:
    assert options(failondataloss="FALSE").fail_on_data_loss is False


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "earliest"}, Bound(word=EARLIEST)),
        ({"startingOffsets": "Latest"}, Bound(word=LATEST)),
        ({"startingTimestamp": "0"}, Bound(timestamp_ms=0)),
        (
            {"startingOffsets": OFFSETS},
            Bound(offsets={TopicQueue("t", "broker-a", 0): 7, TopicQueue("t", "broker-a", 1): LATEST}),
        ),
    ],
)
def test_a_begin_is_a_word_a_time_or_an_offset_of_each_queue(given: dict[str, str], bound: Bound) -> None:
    assert options(**given).begin == bound


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": " , "}, "the option topic is missing"),
        ({"namesrv": ""}, "the option namesrv is missing"),
        ({"startingOffset": "latest"}, "no option is called startingoffset: there are namesrv, topic, startingOffsets"),
        ({"startingOffsets": "newest"}, "earliest, latest or JSON, not 'newest'"),
        ({"startingOffsets": '{"t": 3}'}, "offsets are written"),
        ({"startingOffsets": "3"}, "offsets are written"),
        ({"endingOffsets": '{"t": {"b": {"0": -3}}}'}, "-3 is no offset"),
        ({"endingOffsets": '{"t": {"b": {"0": true}}}'}, "True is no offset"),
        ({"endingOffsets": '{"t": {"b": {"x": 3}}}'}, "offsets are written"),
        ({"endingOffsets": "latest", "endingTimestamp": "5"}, "say the same thing: leave one out"),
        ({"startingTimestamp": "-1"}, "startingTimestamp is a number from 0, not '-1'"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition is a number from 1, not '0'"),
        ({"pullBatchSize": "many"}, "pullBatchSize is a number from 1, not 'many'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is true or false, not 'no'"),
        ({"accessKey": "me"}, "accessKey needs a secret"),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_what_to_write(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options(**given)
    assert words in str(raised.value)


def test_a_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAMQ_SECRET_KEY", "quiet")
    account = options(accessKey="me").account
    assert account is not None
    assert account.secret_key == "quiet"


@pytest.mark.parametrize("given", [{"maxOffsetsPerTrigger": "5"}, {"commitGroup": "g"}])
def test_options_of_streams_are_refused_in_a_batch(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="are of streams"):
        options(**given).check_batch()


@pytest.mark.parametrize("given", [{"endingOffsets": "latest"}, {"endingTimestamp": "5"}])
def test_an_end_is_refused_in_a_stream(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="a stream goes on until it is stopped"):
        options(**given).check_stream()
