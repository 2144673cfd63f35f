"""Settings of a broker that runs: what can change, what is refused and why."""

import pytest
from dejamq_broker.base.config import BrokerConfig
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.config.live_settings import LiveSettings


class Heard:
    def __init__(self) -> None:
        self.settings = LiveSettings(BrokerConfig())
        self.values: list[object] = []
        for name in ("auto_create_topic_enable", "broker_permission", "channel_expired_timeout_ms"):
            self.settings.changeable[name] = self.values.append


@pytest.mark.parametrize("key", ["auto_create_topic_enable", "autoCreateTopicEnable"])
def test_a_new_value_is_in_force_and_heard_of_by_either_name(key: str) -> None:
    heard = Heard()
    values = heard.settings.update({key: "false"})
    assert (values["auto_create_topic_enable"], heard.values) == ("False", [False])
    assert heard.settings.config.auto_create_topic_enable is False
    assert heard.settings.values() == values


def test_a_value_that_is_in_force_already_is_no_news() -> None:
    heard = Heard()
    heard.settings.update({"broker_permission": "6"})
    assert heard.values == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"store_directory": "/tmp"}, "is read at the start.*can change: auto_create_topic_enable, broker_p"),
        ({"auto_create_topic_enabel": "true"}, "unknown setting.*did you mean auto_create_topic_enable"),
        ({"nothing_like_it_at_all": "1"}, "unknown setting"),
        ({"broker_permission": "six"}, "'six' is not a whole number"),
        ({"channel_expired_timeout_ms": "0"}, "not a time above 0"),
        ({"flush_disk_type": "SYNC_FLUSH"}, "is read at the start"),
    ],
)
def test_what_cannot_change_is_refused_with_a_sentence_and_changes_nothing(values: dict[str, str], text: str) -> None:
    heard = Heard()
    before = heard.settings.values()
    with pytest.raises(DejamqError, match=text) as refused:
        heard.settings.update({"autoCreateTopicEnable": "false"} | values)
    assert refused.value.code is Code.INVALID_PARAMETER
    assert (heard.settings.values(), heard.values) == (before, [])
