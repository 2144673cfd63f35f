"""Connected producers by client id: the table against a plain list of channels."""

from dejamq_broker.members.producers import ProducerTable
from hypothesis import given
from hypothesis import strategies as st

CLIENTS, GROUPS = ("c1", "c2"), ("g", "h")
BEATS = st.tuples(
    st.just("beat"), st.integers(1, 4), st.sampled_from(CLIENTS), st.sets(st.sampled_from(GROUPS), min_size=1)
)
STEPS = st.one_of(
    BEATS,
    st.tuples(st.just("leave"), st.integers(1, 4)),
    st.tuples(st.just("unregister"), st.sampled_from(CLIENTS), st.sampled_from(GROUPS)),
    st.tuples(st.just("expire"), st.integers(0, 5)),
)


class Plain:
    """Client id, groups and time of the last heartbeat by channel."""

    def __init__(self) -> None:
        self.channels: dict[int, tuple[str, set[str], int]] = {}

    def unregister(self, client_id: str, group: str) -> None:
        for owner, groups, _ in self.channels.values():
            if owner == client_id:
                groups.discard(group)
        self.channels = {channel: one for channel, one in self.channels.items() if one[1]}

    def expire(self, before_ms: int) -> list[str]:
        gone = [channel for channel, (_, _, seen_ms) in self.channels.items() if seen_ms < before_ms]
        return [self.channels.pop(channel)[0] for channel in gone]

    def of(self, client_id: str, group: str = "") -> list[int]:
        found = self.channels.items()
        return sorted(at for at, one in found if one[0] == client_id and (not group or group in one[1]))


@given(st.lists(STEPS, max_size=20))
def test_each_client_has_the_channels_that_were_opened_and_have_not_ended(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    table, plain = ProducerTable(), Plain()
    for now_ms, step in enumerate(steps):
        match step:
            case "beat", channel, client_id, groups:
                table.heartbeat(channel, client_id, sorted(groups), now_ms)
                plain.channels[channel] = client_id, set(groups), now_ms
            case "leave", channel:
                table.leave(channel)
                plain.channels.pop(channel, None)
            case "unregister", client_id, group:
                table.unregister(client_id, "", group)
                plain.unregister(client_id, group)
            case "expire", timeout_ms:
                assert sorted(table.expire(now_ms, timeout_ms)) == sorted(plain.expire(now_ms - timeout_ms))
        check(table, plain)


def check(table: ProducerTable, plain: Plain) -> None:
    for client_id in CLIENTS:
        assert table.channel_of(client_id) == max(plain.of(client_id), default=None)
        for group in GROUPS:
            assert sorted(at for at, _ in table.users(group, client_id)) == plain.of(client_id, group)
