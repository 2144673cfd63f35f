"""Connected producers by client id: the table against a plain list of channels."""

from dejamq_broker.members.producers import ProducerTable
from hypothesis import given
from hypothesis import strategies as st

CLIENTS, GROUPS = ("c1", "c2"), ("g", "h")
STEPS = st.one_of(
    st.tuples(st.just("beat"), st.integers(1, 4), st.sampled_from(CLIENTS), st.sets(st.sampled_from(GROUPS), min_size=1)),
    st.tuples(st.just("leave"), st.integers(1, 4)),
    st.tuples(st.just("unregister"), st.sampled_from(CLIENTS), st.sampled_from(GROUPS)),
    st.tuples(st.just("expire"), st.integers(0, 5)),
)  # fmt: skip


@given(st.lists(STEPS, max_size=20))
def test_each_client_has_the_channels_that_were_opened_and_have_not_ended(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    table, plain = ProducerTable(), dict[int, tuple[str, set[str], int]]()
    for now_ms, step in enumerate(steps):
        match step:
            case "beat", channel, client_id, groups:
                table.heartbeat(channel, client_id, sorted(groups), now_ms)
                plain[channel] = client_id, set(groups), now_ms
            case "leave", channel:
                table.leave(channel)
                plain.pop(channel, None)
            case "unregister", client_id, group:
                table.unregister(client_id, group)
                for channel, (owner, groups, _) in list(plain.items()):
                    if owner == client_id:
                        groups.discard(group)
                        if not groups:
                            del plain[channel]
            case "expire", timeout_ms:
                gone = [channel for channel, (_, _, seen_ms) in plain.items() if now_ms - seen_ms > timeout_ms]
                assert sorted(table.expire(now_ms, timeout_ms)) == sorted(plain.pop(channel)[0] for channel in gone)
        for client_id in CLIENTS:
            mine = [channel for channel, (owner, _, _) in plain.items() if owner == client_id]
            assert table.channel_of(client_id) == max(mine, default=None)
            for group in GROUPS:
                users = [channel for channel, _ in table.users(group, client_id)]
                assert sorted(users) == sorted(channel for channel in mine if group in plain[channel][1])
