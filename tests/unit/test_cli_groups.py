"""Groups as the command line judges them: pure findings, and plans from given lists."""

import json
from typing import Any

import msgspec
import pytest
from cli_runner import NOBODY, run_here
from dejamq import Admin, DejamqError, MessageQueue
from dejamq.admin.cluster import ClientConnection
from dejamq.admin.groups import GroupSettings
from dejamq.admin.messages import TopicQueues
from dejamq.admin.running import RunningInfo, RunningQueue
from dejamq_cli.groups.lists import GroupFinding, findings
from dejamq_cli.groups.plan_view import View, given_members, given_queues, plan, ranges_text
from dejamq_cli.groups.view import GroupView, MemberView
from dejamq_proto.codes import ConfigError

A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))


def connection(client_id: str, broker: str = "broker-a", **told: Any) -> ClientConnection:
    fields = {"subscriptions": ["orders *"], "message_model": "CLUSTERING"} | told
    return ClientConnection(broker, "consumer", "billing", client_id, "h:1", "0.1.0", 0, "PYTHON", client_id, **fields)


def owned(queue: MessageQueue, *, dropped: bool = False) -> RunningQueue:
    numbers = {name: 0 for name in RunningQueue.__struct_fields__ if name not in ("queue", "dropped", "locked")}
    return RunningQueue(queue=queue, dropped=dropped, locked=False, **numbers)


def member(client_id: str, *queues: MessageQueue | RunningQueue, **told: Any) -> MemberView:
    """One that says that it owns these queues."""
    state = {"allocation": str(told.pop("allocation", "averagely"))} | told.pop("state", {})
    connections = told.pop("connections", None) or (connection(client_id, **told),)
    own = [one if isinstance(one, RunningQueue) else owned(one) for one in queues]
    info = RunningInfo(
        group="billing", client_id=client_id, broker_name="broker-a", properties={}, settings={}, subscriptions=[],
        state=state, queues=own, statuses={}, stacks="",
    )  # fmt: skip
    return MemberView(client_id, tuple(connections), info)


def silent(client_id: str, language: str = "PYTHON") -> MemberView:
    one = msgspec.structs.replace(connection(client_id), language=language)
    return MemberView(client_id, (one,), None, "no answer within 4 s")


def settings(broker: str = "broker-a", **changed: Any) -> GroupSettings:
    fields = {"consume_enable": True, "retry_max_times": 16} | changed
    return GroupSettings(
        broker, "billing", consume_broadcast_enable=True, consume_message_orderly=False, retry_queue_nums=1, **fields
    )  # fmt: skip


def found(*members: MemberView, wanted: frozenset[MessageQueue] = frozenset({A, B}), **more: Any) -> list[GroupFinding]:
    told = more.pop("settings", [settings()])
    return findings(GroupView("billing", members, wanted, {}, **more), told)


def kinds(findings: list[GroupFinding]) -> list[str]:
    return [finding.kind for finding in findings]


# --- findings


def test_a_group_whose_queues_have_one_owner_each_has_no_findings() -> None:
    assert found(member("c1", A), member("c2", B)) == []


def test_a_queue_without_an_owner_and_one_with_two_are_named() -> None:
    first, second = found(member("c1", A), member("c2", A))
    assert first == GroupFinding("two_owners", "orders broker-a:0 is consumed by c1 and c2: its messages come twice")
    assert second == GroupFinding("no_owner", "orders broker-a:1 has no owner: its messages wait")


def test_a_queue_that_was_given_up_is_not_owned() -> None:
    assert kinds(found(member("c1", A, owned(B, dropped=True)), member("c2", B))) == []


def test_a_member_that_does_not_answer_may_own_what_nobody_else_does() -> None:
    (finding,) = found(member("c1", A), silent("c2"))
    assert (finding.kind, finding.harm) == ("silent", False)
    assert "c2 does not say what it consumes: no answer within 4 s" in finding.text


def test_a_member_without_a_queue_is_worth_knowing_and_no_harm() -> None:
    assert found(member("c1", A, B), member("c2")) == [GroupFinding("idle", "c2 has no queue", harm=False)]


@pytest.mark.parametrize("other", ["foreign", "immediate"])
def test_a_member_that_claims_nothing_turns_graceful_hand_over_off_and_is_named(other: str) -> None:
    ours = member("c1", A, B, state={"graceful_handover": "true"})
    theirs = silent("c2", "JAVA") if other == "foreign" else member("c2", state={"graceful_handover": "false"})
    text = "c2 claims no queues, so hand-over is graceful for nobody"
    assert GroupFinding("handover_off", text, harm=False) in found(ours, theirs)
    assert "handover_off" not in kinds(found(ours, silent("c2")))
    assert "handover_off" not in kinds(found(theirs, silent("c3", "GO")))


def test_broadcasting_members_all_own_every_queue() -> None:
    assert found(*(member(name, A, B, message_model="BROADCASTING") for name in ("c1", "c2"))) == []


def test_brokers_that_know_different_members_are_a_finding() -> None:
    both = [connection("c1", "broker-a"), connection("c1", "broker-b")]
    other = MessageQueue("orders", "broker-b", 0)
    (finding,) = found(member("c1", A, connections=both), member("c2", other), wanted=frozenset({A, other}))
    assert finding == GroupFinding(
        "members_differ", "brokers know different members: broker-a knows c1, c2; broker-b knows c1"
    )


def test_a_broker_without_queues_of_the_group_need_not_know_its_members() -> None:
    everywhere = [connection("c1", "broker-a"), connection("c1", "broker-z")]
    assert found(member("c1", A, B, connections=everywhere), member("c2"), wanted=frozenset({A, B}))[0].kind == "idle"


def test_members_have_to_want_and_to_do_the_same() -> None:
    text = {finding.kind: finding.text for finding in found(
        member("c1", A), member("c2", B, subscriptions=["orders paid"], allocation="consistent_hash"),
    )}  # fmt: skip
    assert text == {
        "subscriptions_differ": "members are subscribed differently: orders *, orders paid",
        "allocations_differ": "members share queues out by averagely and consistent_hash",
    }
    mixed = found(member("c1", A, B), member("c2", A, B, message_model="BROADCASTING"))
    assert "models_differ" in kinds(mixed)


def test_a_client_id_of_several_processes_is_a_finding() -> None:
    assert kinds(found(member("c1", A, B), clashing=frozenset({"c1"}))) == ["clash"]


def test_settings_that_differ_between_brokers_are_named_and_a_pause_is_told() -> None:
    differing = [settings(), settings("broker-b", retry_max_times=3, consume_enable=False)]
    first, second, third = found(member("c1", A, B), settings=differing)
    assert first.text == "consume_enable differs between brokers: broker-a True, broker-b False"
    assert second.text == "retry_max_times differs between brokers: broker-a 16, broker-b 3"
    assert third == GroupFinding("paused", "paused at broker-b: dejamq group resume billing", harm=False)


def test_a_group_without_members_has_no_owners_to_miss() -> None:
    assert found() == []


# --- plans


def test_queues_and_members_may_be_given_as_text() -> None:
    assert given_members("c2, c1") == ("c2", "c1")
    assert given_queues("2") == tuple(MessageQueue("topic", "broker-a", number) for number in range(2))
    assert [queue.broker_name for queue in given_queues("x:1,y:2", "orders")] == ["x", "y", "y"]


@pytest.mark.parametrize("text", ["", "x", "x:", "x:0", "0", "x:-1", "x:1,x:2", "99999999999"])
def test_queues_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--queues"):
        given_queues(text)


def test_shares_are_those_of_the_sdk_whatever_the_order_of_the_lists() -> None:
    view = View("1", ("c3", "c1", "c2"), given_queues("8"))
    shares = plan("averagely", [view]).shares[0]
    assert {name: [queue.queue_id for queue in some] for name, some in shares.items()} == {
        "c1": [0, 1, 2], "c2": [3, 4, 5], "c3": [6, 7],
    }  # fmt: skip


def test_each_topic_is_shared_out_by_itself() -> None:
    queues = (*given_queues("2", "orders"), *given_queues("2", "refunds"))
    shares = plan("averagely", [View("1", ("c1", "c2"), queues)]).shares[0]
    assert ranges_text(shares["c1"]) == "orders broker-a:0 refunds broker-a:0"


def test_of_two_views_the_queues_whose_owner_differs_may_have_two_or_none() -> None:
    views = [View("1", ("c1", "c2"), given_queues("4")), View("2", ("c1", "c2", "c3"), given_queues("4"))]
    rows = plan("averagely", views).queue_rows()
    assert [(row["queue_id"], row["owners"], row["overlap"], row["gap"]) for row in rows] == [
        (0, ["c1", "c1"], False, False),
        (1, ["c1", "c1"], False, False),
        (2, ["c2", "c2"], False, False),
        (3, ["c2", "c3"], True, True),
    ]


def test_a_queue_that_only_one_view_has_may_have_no_owner_but_never_two() -> None:
    views = [View("1", ("c1",), given_queues("1")), View("2", ("c1",), given_queues("2"))]
    row = plan("averagely", views).queue_rows()[1]
    assert (row["owners"], row["overlap"], row["gap"]) == ([None, "c1"], False, True)


def test_two_processes_with_one_id_take_the_same_queues_and_leave_others() -> None:
    rows = plan("averagely", [View("1", ("c1", "c1"), given_queues("4"))]).queue_rows()
    assert [(row["overlap"], row["gap"]) for row in rows] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]


def test_a_share_is_told_in_few_words() -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in (0, 1, 2, 5)]
    assert ranges_text([*queues, MessageQueue("orders", "broker-b", 7)]) == "orders broker-a:0-2,5 broker-b:7"
    assert ranges_text([]) == "-"


def test_a_plan_from_given_lists_asks_nobody() -> None:
    ran = run_here("group", "plan", "--queues", "4", "--members", "c1,c2", "--namesrv", NOBODY)
    assert (ran.status, ran.errors) == (0, "")
    assert ran.picture() == (
        "member  queues  which\nc1  2  topic broker-a:0-1\nc2  2  topic broker-a:2-3\n\nevery queue has one owner\n"
    )


def test_two_given_views_are_shown_beside_each_other() -> None:
    ran = run_here("group", "plan", "--queues", "broker-a:2,broker-b:2", "--members", "c1,c2", "--members", "c1,c2,c3")
    assert ran.status == 1
    assert ran.picture() == (
        "view 1: 2 members, 4 queues, averagely\n"
        "member  queues  which\n"
        "c1  2  topic broker-a:0-1\n"
        "c2  2  topic broker-b:0-1\n"
        "\n"
        "view 2: 3 members, 4 queues, averagely\n"
        "member  queues  which\n"
        "c1  2  topic broker-a:0-1\n"
        "c2  1  topic broker-b:0\n"
        "c3  1  topic broker-b:1\n"
        "\n"
        "queue  view 1  view 2\n"
        "topic broker-b:1  c2  c3\n"
    )
    assert "1 of 4 queues may have two owners, or none" in ran.one_line()


def test_a_plan_for_programs_has_views_shares_and_queues() -> None:
    ran = run_here("group", "plan", "--queues", "2", "--members", "c1,c1", "--topic", "orders", "-o", "json")
    assert ran.status == 1
    told = json.loads(ran.output)
    assert told["strategy"] == "averagely"
    assert told["views"] == [{
        "members": ["c1", "c1"], "queues": ["orders broker-a:0", "orders broker-a:1"],
        "shares": [{"member": "c1", "queues": ["orders broker-a:0"]}],
    }]  # fmt: skip
    assert told["queues"][1] == {
        "topic": "orders", "broker": "broker-a", "queue_id": 1, "owners": [None], "overlap": False, "gap": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--queues", "4"),
        ("--members", "c1"),
        ("--queues", "4", "--members", ","),
        ("--queues", "x", "--members", "c"),
        ("--queues", "4", "--members", "c1", "--strategy", "by_luck"),
    ],
)
def test_a_plan_of_too_little_or_of_nonsense_is_bad_use(arguments: tuple[str, ...]) -> None:
    ran = run_here("group", "plan", *arguments)
    assert ran.status == 2
    assert "--" in ran.one_line() or "averagely" in ran.errors


# --- plans of a live group whose servers tell different things


class DisagreeingAdmin(Admin):
    """broker-b has not heard of c2, and name server n:2 not of broker-b's queue; asks nobody."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(namesrv)
        self._asked = namesrv

    async def members(self, group: str) -> dict[str, list[str]]:
        return {"broker-a": ["c1", "c2"], "broker-b": ["c1"]}

    async def connections(self, group: str | None = None, *, broker_name: str | None = None) -> list[ClientConnection]:
        return [connection("c1")]

    async def routes(self, topic: str) -> dict[str, list[TopicQueues] | DejamqError]:
        queues = [TopicQueues("broker-a", 1, 1, 6), TopicQueues("broker-b", 1, 1, 6)]
        return {self._asked: queues if self._asked == "n:1" else queues[:1]}


@pytest.fixture
def disagreeing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("access.admin_session", "groups.plan"):
        monkeypatch.setattr(f"dejamq_cli.{module}.Admin", DisagreeingAdmin)


def test_what_brokers_and_name_servers_tell_differently_are_views_of_a_live_group(disagreeing: None) -> None:
    ran = run_here("group", "plan", "billing", "--strategy", "averagely", "--namesrv", "n:1;n:2", "-o", "json")
    assert ran.status == 1
    told = json.loads(ran.output)
    seen = [(view["members"], view["queues"]) for view in told["views"]]
    both, one = ["orders broker-a:0", "orders broker-b:0"], ["orders broker-a:0"]
    assert seen == [(["c1"], one), (["c1"], both), (["c1", "c2"], one), (["c1", "c2"], both)]
    assert [(row["owners"], row["overlap"], row["gap"]) for row in told["queues"]] == [
        (["c1", "c1", "c1", "c1"], False, False),
        ([None, "c1", None, "c2"], True, True),
    ]


def test_a_view_of_one_name_server_is_one_view(disagreeing: None) -> None:
    ran = run_here("group", "plan", "billing", "--strategy", "averagely", "--members", "c1,c2", "--namesrv", "n:1")
    assert (ran.status, ran.errors) == (0, "")
    assert "every queue has one owner" in ran.output
